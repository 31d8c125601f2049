//! Idle to busy: how long the first request after a time of idleness takes, and the same of a bare socket.
//!
//! Both ends are threads of this process, each on a core of its own. The product's requests are submitted on its
//! reactor's thread, as the bare ones on theirs. All run side by side, at different moments.

use crate::floor::BlockRandom;
use anyhow::Context;
use roadtrain_host_engine::{
    Class, Front, FrontTurn, HostConfig, HostController, IoOp, IoRequest, LaneId,
};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::tuning;
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

const NQN: &str = "nqn.2024-01.lab:first";
const HOSTNQN: &str = "nqn.2024-01.lab:host";
const BLOCK: usize = 4096;
const BLOCKS: u32 = 16384;
const REQUEST: usize = 72;
const ANSWER: usize = 24 + BLOCK;
/// Requests without a pause before those that count.
const WARM_UP: u32 = 20;
const HOST_CORE: usize = 0;
const TARGET_CORE: usize = 1;

/// Options.
#[derive(clap::Args)]
pub(crate) struct FirstArgs {
    /// Seconds of idleness before each request
    #[arg(long, default_value_t = 10.0)]
    pause: f64,
    /// Requests of each kind
    #[arg(long, default_value_t = 12)]
    requests: u32,
}

/// Measures and prints.
pub(crate) fn main(args: &FirstArgs) -> anyhow::Result<()> {
    let pause = Duration::from_secs_f64(args.pause);
    let apart = pause / 3;
    let begin = |name, run: fn(Duration, u32) -> anyhow::Result<Vec<u64>>| {
        let requests = args.requests;
        let thread = thread::spawn(move || run(pause, requests));
        thread::sleep(apart);
        (name, thread)
    };
    let runs = [
        begin("bare socket", bare),
        begin("sleeping", |pause, requests| product(pause, requests, WaitPolicy::Sleep)),
        begin("by default", |pause, requests| product(pause, requests, WaitPolicy::Adaptive)),
    ];
    println!("us from a request to its answer, after {} s of idleness", args.pause);
    for (name, thread) in runs {
        let mut times = thread.join().ok().context("a thread has panicked")??;
        times.sort_unstable();
        let quartiles = [0, 1, 2, 3, 4].map(|part| {
            let at = times.len().saturating_sub(1) * part / 4;
            times.get(at).map_or(0.0, |&ns| ns as f64 / 1e3)
        });
        println!("{name:12} {quartiles:8.0?} (least, quartiles, most)");
    }
    Ok(())
}

/// Two threads and a socket, no protocol.
fn bare(pause: Duration, requests: u32) -> anyhow::Result<Vec<u64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let target = thread::spawn(move || answer(&listener));
    let host = thread::spawn(move || -> anyhow::Result<Vec<u64>> {
        tuning::pin_to_core(HOST_CORE)?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut answer = [0; ANSWER];
        let mut times = Vec::new();
        for request in 0..WARM_UP + requests {
            if request >= WARM_UP {
                thread::sleep(pause);
            }
            let sent = std::time::Instant::now();
            stream.write_all(&[0; REQUEST])?;
            stream.read_exact(&mut answer)?;
            times.push(sent.elapsed().as_nanos() as u64);
        }
        Ok(times.split_off(WARM_UP as usize))
    });
    let times = host.join().ok().context("the host has panicked")?;
    target.join().ok().context("the target has panicked")??;
    times
}

fn answer(listener: &TcpListener) -> anyhow::Result<()> {
    tuning::pin_to_core(TARGET_CORE)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let memory = vec![7; BLOCK * BLOCKS as usize];
    let mut random = BlockRandom::default();
    let (mut request, mut answer) = ([0; REQUEST], [0; ANSWER]);
    while stream.read_exact(&mut request).is_ok() {
        let at = random.below(BLOCKS) as usize * BLOCK;
        answer[ANSWER - BLOCK..].copy_from_slice(&memory[at..at + BLOCK]);
        stream.write_all(&answer)?;
    }
    Ok(())
}

fn product(pause: Duration, requests: u32, waiting: WaitPolicy) -> anyhow::Result<Vec<u64>> {
    let kind = StoreKind::Memory { size: BLOCK as u64 * u64::from(BLOCKS) };
    let store = StoreSpec { kind, lba_bytes: BLOCK as u32, read_only: false };
    let subsystem = Subsystem { namespaces: vec![Export::new(1, store)], ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse()?], vec![subsystem]);
    (config.cores, config.waiting) = (vec![TARGET_CORE], waiting);
    let server = Server::start(config)?;
    let address = *server.addresses().first().context("it listens")?;
    let mut config = HostConfig::new(address, NQN, HOSTNQN, [7; 16]);
    (config.lanes, config.cores, config.waiting) = (1, vec![HOST_CORE], waiting);
    let (times, answers) = channel();
    let controller = HostController::connect(config, |_, _| {
        let buffer = Some(Buffer::alloc(BLOCK));
        let (random, times) = (BlockRandom::default(), times.clone());
        Box::new(Lone { buffer, due: Instant::default(), answered: 0, pause, random, times })
    })?;
    let wanted = (WARM_UP + requests) as usize;
    let all: Vec<u64> = answers.iter().take(wanted).collect();
    controller.stop();
    controller.join();
    Ok(all.into_iter().skip(WARM_UP as usize).collect())
}

/// One request, a pause, one request.
struct Lone {
    /// While no request is in flight.
    buffer: Option<Buffer>,
    due: Instant,
    answered: u32,
    pause: Duration,
    random: BlockRandom,
    times: Sender<u64>,
}

impl Front for Lone {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        if turn.stopping() {
            return turn.stop();
        }
        while let Some(completion) = turn.next_completion() {
            self.answered += 1;
            let pause = if self.answered >= WARM_UP { self.pause } else { Duration::ZERO };
            (self.due, self.buffer) = (turn.now() + pause, completion.buffer);
            let _ = self.times.send(completion.latency_ns);
        }
        if turn.now() < self.due || self.buffer.is_none() {
            return;
        }
        let request = IoRequest {
            op: IoOp::Read,
            nsid: 1,
            slba: self.random.below(BLOCKS).into(),
            blocks: 1,
            fua: false,
            urgent: false,
            class: Class::Normal,
            buffer: self.buffer.take(),
            token: 0,
        };
        if let Err(refused) = turn.submit(LaneId(0), request) {
            self.buffer = refused.buffer; // it is tried again in the next turn
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.buffer.as_ref().map(|_| self.due)
    }
}
