//! The floor: one bare TCP socket over loopback that moves exactly the bytes of an NVMe/TCP workload,
//! with perfect batching and no protocol. What it reaches is the physical limit on a machine.
//!
//! A read is a 72 byte request one way and a 24 byte header with the data the other; a write is
//! 72 bytes with the data one way and 24 bytes back. As a real target and host must, the target
//! reads and writes random blocks of a large memory and the host moves data to its caller's buffers.
//! Sockets, buffers and prefetching are tuned by `reactor::tuning`, like the product's.

mod args;
mod cipher;
mod host;
mod inbox;
mod link;
mod memory;
mod result;
mod send_buffer;
mod sizes;
mod target;

pub(crate) use args::{DataDirection, FloorArgs, parse_bytes};
pub(crate) use cipher::{FloorCipher, SealingCost};
pub(crate) use host::BlockRandom;
pub(crate) use memory::FloorMemory;
pub(crate) use result::{ThreadUsage, ThreadUsageProbe, latencies};

use crate::measure::Measure;
use anyhow::Context;
use roadtrain_reactor::tuning;
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Runs the floor and prints its result.
pub(crate) fn main(args: &FloorArgs) -> anyhow::Result<()> {
    let measure = run(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&measure)?);
    } else {
        print!("{}", result::text(args, &measure));
    }
    if let Some(cipher) = args.seal {
        let SealingCost { host_us, target_us } = SealingCost::measure(cipher, args)?;
        println!("  {cipher:?} alone, CPU-us/IO: host {host_us:.2}, target {target_us:.2}");
    }
    Ok(())
}

/// Runs the floor: the target and the host each on a pinned thread of their own.
pub(crate) fn run(args: &FloorArgs) -> anyhow::Result<Measure> {
    args.check()?;
    let listener = TcpListener::bind("127.0.0.1:0").context("listen on loopback")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let target = scope.spawn(move || -> anyhow::Result<target::FloorCounts> {
            tuning::pin_to_core(args.target_core).context("pin the target")?;
            let mut target = target::FloorTarget::new(args)?;
            sender.send(result::ThreadUsageProbe::current())?;
            let (stream, _) = listener.accept()?;
            target.serve(stream)
        });
        let host = scope.spawn(move || -> anyhow::Result<result::FloorOutcome> {
            tuning::pin_to_core(args.host_core).context("pin the host")?;
            let target = receiver.recv().context("the target did not start")?;
            let mut host = host::FloorHost::new(args, TcpStream::connect(address)?)?;
            host.run(args, &target)
        });
        let outcome = host.join().expect("the host does not panic")?;
        let counts = target.join().expect("the target does not panic")?;
        Ok(outcome.measure(args, &counts))
    })
}
