//! The limit of the Ethernet transport: two ports at a veth pair move exactly the frames of its workload, full and
//! without a protocol: no acknowledgements, no retransmission, as many requests in flight as there are credits.
//!
//! A read is a command record one way, then data records and a completion the other; a write is a command with data
//! records, then a completion. As a real target and host must, the target reads and writes random blocks of a large
//! memory, the host moves data to its caller's buffers, and both check each frame's header.

mod args;
mod case;
mod end;
mod host;
mod links;
mod pack;
mod result;
mod target;

use crate::floor::ThreadUsageProbe;
use anyhow::Context;
pub(crate) use args::FloorEtherArgs;
use case::FloorEtherCase;
use end::FloorEtherEnd;
pub(crate) use result::EtherResult;
use roadtrain_reactor::tuning;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs all cases and prints them.
pub(crate) fn main(args: &FloorEtherArgs) -> anyhow::Result<()> {
    anyhow::ensure!(args.memory >= args.bs && args.bs >= 512, "--bs is 512 to --memory");
    anyhow::ensure!(args.rounds > 0, "--rounds is at least 1");
    let results = measure_apart(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&results)?);
    } else {
        print!("{}", result::page(&results).markdown());
    }
    Ok(())
}

/// Measures in a thread of its own, which moves to the namespace; threads that it starts are there, too.
pub(crate) fn measure_apart(args: &FloorEtherArgs) -> anyhow::Result<Vec<EtherResult>> {
    thread::scope(|scope| {
        scope.spawn(|| measure(args)).join().expect("the measurement does not panic")
    })
}

fn measure(args: &FloorEtherArgs) -> anyhow::Result<Vec<EtherResult>> {
    let links = links::FloorEtherLinks::new(args.interfaces.as_deref())?;
    let mut results = Vec::new();
    for mtu in args.mtu.iter().copied() {
        links.set_mtu(mtu)?;
        let cases: Vec<FloorEtherCase> = FloorEtherCase::all(args, mtu).collect();
        let mut runs: Vec<Vec<EtherResult>> = vec![Vec::new(); cases.len()];
        for _ in 0..args.rounds {
            for (case, runs) in cases.iter().zip(&mut runs) {
                runs.push(run(args, case, &links).with_context(|| case.to_string())?);
            }
        }
        results.extend(runs.into_iter().filter_map(EtherResult::median));
    }
    Ok(results)
}

/// The target and the host each on a pinned thread of their own.
fn run(
    args: &FloorEtherArgs,
    case: &FloorEtherCase,
    links: &links::FloorEtherLinks,
) -> anyhow::Result<EtherResult> {
    let mut host_end = FloorEtherEnd::open(args, case, &links.host, end::HOST_SOCKET)?;
    let mut target_end = FloorEtherEnd::open(args, case, &links.target, end::TARGET_SOCKET)?;
    host_end.meet(&target_end, end::TARGET_SOCKET);
    target_end.meet(&host_end, end::HOST_SOCKET);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let (over, case) = (&over, *case);
        let target = scope.spawn(move || -> anyhow::Result<end::FloorEtherCounts> {
            tuning::pin_to_core(args.target_core).context("pin the target")?;
            let mut target = target::FloorEtherTarget::new(args, case, target_end)?;
            sender.send(ThreadUsageProbe::current())?;
            target.serve(over)
        });
        let host = scope.spawn(move || -> anyhow::Result<host::FloorEtherOutcome> {
            tuning::pin_to_core(args.host_core).context("pin the host")?;
            let target = receiver.recv().context("the target did not start")?;
            let outcome = host::FloorEtherHost::new(args, case, host_end)?.run(args, &target);
            over.store(true, Ordering::Relaxed);
            outcome
        });
        let outcome = host.join().expect("the host does not panic");
        over.store(true, Ordering::Relaxed); // also when it never began
        let counts = target.join().expect("the target does not panic")?;
        Ok(EtherResult::new(&case, &outcome?, &counts))
    })
}
