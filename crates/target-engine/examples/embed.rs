//! Embedding the host: reads random blocks over one lane, as fast as it can, for a few seconds.
//!
//!     cargo run --release --example embed -- 127.0.0.1:4420 nqn.2024-01.example:disk [depth] [policy] [read|write]
//!
//! A [`Front`] runs on the reactor of the lane: it takes completions and submits requests.

use roadtrain_host_engine::{
    Class, Front, FrontTurn, HostConfig, HostController, IoOp, IoRequest, LaneId,
};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_reactor::metrics::Batching;
use roadtrain_reactor::tuning::thread_cpu_ns;
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_system::buffer::{Arena, Buffer};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 4096;
const SECONDS: u64 = 3;

struct RandomReader {
    nsid: u32,
    blocks: u64,
    per_request: u32,
    op: IoOp,
    depth: u32,
    state: u64,
    started: Option<(Instant, u64)>,
    idle: Vec<Buffer>,
    completed: u64,
    errors: u64,
    latency_ns: u64,
}

impl RandomReader {
    fn request(&mut self, buffer: Buffer) -> IoRequest {
        // xorshift64: the blocks need not be unpredictable.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let slots = self.blocks / u64::from(self.per_request);
        let slba = self.state % slots * u64::from(self.per_request);
        IoRequest {
            op: self.op,
            nsid: self.nsid,
            slba,
            blocks: self.per_request,
            fua: false,
            urgent: false,
            class: Class::Normal,
            buffer: Some(buffer),
            token: 0,
        }
    }

    fn report(&self, started: (Instant, u64)) {
        let seconds = started.0.elapsed().as_secs_f64();
        println!(
            "{:.0} IOPS, mean {:.1} us, {:.2} host CPU-us per I/O, {} errors",
            self.completed as f64 / seconds,
            self.latency_ns as f64 / 1e3 / self.completed.max(1) as f64,
            (thread_cpu_ns() - started.1) as f64 / 1e3 / self.completed.max(1) as f64,
            self.errors,
        );
    }
}

impl Front for RandomReader {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        let started = *self.started.get_or_insert_with(|| (Instant::now(), thread_cpu_ns()));
        while let Some(completion) = turn.next_completion() {
            self.completed += 1;
            self.errors += u64::from(!completion.status.is_success());
            self.latency_ns += completion.latency_ns;
            self.idle.extend(completion.buffer);
        }
        let over = started.0.elapsed() >= Duration::from_secs(SECONDS) || turn.stopping();
        if over && self.idle.len() == self.depth as usize {
            self.report(started);
            return turn.stop();
        }
        while !over && let Some(buffer) = self.idle.pop() {
            let request = self.request(buffer);
            if let Err(request) = turn.submit(LaneId(0), request) {
                self.idle.extend(request.buffer);
                break;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn, rest @ ..] = &arguments[..] else {
        return Err(
            "usage: embed ADDRESS:PORT NQN [DEPTH] [none|i10] [read|write] [BYTES] [spin]".into()
        );
    };
    let depth: u32 = rest.first().map_or(Ok(128), |depth| depth.parse())?;
    let host_nqn = "nqn.2014-08.org.nvmexpress:uuid:6c1b4f5e-8f3c-4b6a-9d8e-2f0a7c5d3e21";
    let mut config = HostConfig::new(address.parse::<SocketAddr>()?, nqn, host_nqn, [0x6c; 16]);
    config.queue_entries = 1024;
    config.cores = vec![0];
    config.policy = match rest.get(1).map(String::as_str) {
        Some("i10") => PolicyConfig::i10(),
        _ => PolicyConfig::none(),
    };
    let op = match rest.get(2).map(String::as_str) {
        Some("write") => IoOp::Write,
        _ => IoOp::Read,
    };
    let bytes: usize = rest.get(3).map_or(Ok(BLOCK_BYTES), |bytes| bytes.parse())?;
    if rest.get(4).is_some() {
        config.waiting = WaitPolicy::BusyPoll;
    }
    let idle: Vec<Buffer> = Arena::new(depth as usize, bytes)?.collect();
    let mut idle = Some(idle);
    let controller = HostController::connect(config, |_, view| {
        let namespace =
            view.info().namespaces.first().cloned().expect("the target has a namespace");
        Box::new(RandomReader {
            nsid: namespace.nsid,
            blocks: namespace.blocks,
            per_request: bytes as u32 / namespace.block_bytes,
            op,
            depth,
            state: 0x9e37_79b9_7f4a_7c15,
            started: None,
            idle: idle.take().unwrap_or_default(),
            completed: 0,
            errors: 0,
            latency_ns: 0,
        })
    })?;
    let view = controller.view().clone();
    controller.join();
    let batching: Batching = view.lanes().iter().map(|lane| lane.batching).sum();
    let each = |count: u64| count as f64 / batching.requests.max(1) as f64;
    println!("{:.3} sends and {:.3} receives each", each(batching.sends), each(batching.receives));
    Ok(())
}
