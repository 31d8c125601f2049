//! The same number in flight over one connection and over many, to one reactor.

use super::result::{ConnectionRow, Least};
use super::serve::{self, NQN, Process};
use super::{Args, exchange};
use crate::measure::{Measure, median};
use crate::noise::quiet;
use crate::{procfs, product};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Connections, and how many are in flight on each: a queue of 1,024 entries takes one less.
const PLANS: [(usize, usize); 4] = [(1, 1023), (16, 64), (128, 8), (1024, 1)];
/// Throughput of 16 connections, of that of one. With more the time is the kernel's: see the bare exchange.
const OF_ONE_MIN: (usize, f64) = (16, 0.8);
/// Jain's index over the connections.
const FAIRNESS_MIN: f64 = 0.95;
/// Queue entries that every host asks for at least.
const ENTRIES_MIN: usize = 32;
/// Between two looks at the target's memory.
const LOOK: Duration = Duration::from_millis(50);

/// The set-ups while they are measured, in turns.
#[derive(Default)]
pub(super) struct Runs {
    /// By plan: the product's runs and those of the bare exchange.
    rows: [(Vec<Measure>, Vec<Measure>); PLANS.len()],
    errors: [Option<String>; PLANS.len()],
    /// By plan and round: throughput of that of one connection.
    of_one: [Vec<f64>; PLANS.len()],
}

impl Runs {
    /// Each once.
    pub(super) fn round(&mut self, args: &Args) {
        let mut one = None;
        for (at, &(connections, depth)) in PLANS.iter().enumerate() {
            eprintln!("connections-{connections}");
            let bare = || exchange::run(connections, depth, args.seconds);
            match quiet(args.retries, bare) {
                Ok(measure) => self.rows[at].1.push(measure),
                Err(e) => eprintln!("bare exchange: {e:#}"),
            }
            if args.floor_only {
                continue;
            }
            match quiet(args.retries, || measured(args, connections, depth)) {
                Ok(measure) => {
                    let one = *one.get_or_insert(measure.iops);
                    self.of_one[at].push(measure.iops / one);
                    self.rows[at].0.push(measure);
                }
                Err(e) => {
                    eprintln!("connections-{connections}: {e:#}");
                    self.errors[at] = Some(format!("{e:#}"));
                }
            }
        }
    }

    pub(super) fn finish(self) -> Vec<ConnectionRow> {
        let Runs { rows, errors, of_one } = self;
        let all = PLANS.iter().zip(rows).zip(errors).zip(of_one);
        all.map(|(((&(connections, depth), (products, bares)), error), of_one)| {
            let median_of = |runs: &[Measure]| (!runs.is_empty()).then(|| Measure::median(runs));
            let product = median_of(&products);
            let is_judged = connections == OF_ONE_MIN.0;
            let of_one = median(of_one).filter(|_| is_judged);
            let fairness = product.as_ref().and_then(|m| m.fairness).filter(|_| connections > 1);
            ConnectionRow {
                connections,
                depth,
                bare: median_of(&bares),
                of_one: of_one.map(|value| Least { value, bound: OF_ONE_MIN.1 }),
                fairness: fairness.map(|value| Least { value, bound: FAIRNESS_MIN }),
                product,
                error,
            }
        })
        .collect()
    }
}

/// One run against a target of its own, whose namespace is written before and whose memory is looked at meanwhile.
fn measured(args: &Args, connections: usize, depth: usize) -> anyhow::Result<Measure> {
    let port = serve::free_port()?;
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let line = format!(
        "serve -a 127.0.0.1 -s {port} -n {NQN} --namespace mem:64MiB --cores 1 --max-queues 1024"
    );
    let target = Process::start(&args.program, &words(&line))?;
    let entries = (depth + 1).max(ENTRIES_MIN);
    let line = format!(
        "bench -t tcp -a 127.0.0.1 -s {port} -n {NQN} --rw randread --bs 4096 --lanes {connections} \
         --depth {depth} --queue-size {entries} --cores 0 --ramp 0.5 --seconds {} --json",
        args.seconds
    );
    let written = format!(
        "bench -t tcp -a 127.0.0.1 -s {port} -n {NQN} --rw write --bs 131072 --depth 8 --lanes 1 --ios 512"
    );
    product::finish(Command::new(&args.program).args(words(&written)))?;
    let pid = target.pid();
    let before = procfs::resident_bytes(pid)?;
    let (is_over, cpu) = (AtomicBool::new(false), procfs::cpu_seconds(pid)?);
    let (measure, most) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = before;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(procfs::resident_bytes(pid).unwrap_or(0));
                thread::sleep(LOOK);
            }
            most
        });
        let measure = product::run(&args.program, &words(&line));
        is_over.store(true, Ordering::Relaxed);
        (measure, watch.join().expect("it does not panic"))
    });
    let measure = measure?;
    // Over the whole run, as long as the load takes most of it.
    let requests = measure.iops * (args.seconds + 0.5);
    let target_us = (procfs::cpu_seconds(pid)? - cpu) * 1e6 / requests.max(1.0);
    Ok(Measure {
        target_kib: Some((most - before) as f64 / 1024.0),
        target_cpu_us_per_io: measure.target_cpu_us_per_io.or(Some(target_us)),
        ..measure
    })
}
