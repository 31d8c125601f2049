//! Both ends of a lane on one thread, independent of time: how many requests leave together, and how many turns they
//! take. `cargo xtask instructions` runs this under callgrind.

use crate::order::TargetReactorMessage;
use crate::{Export, HandTarget, ServerConfig, Subsystem};
use roadtrain_host_engine::{
    Class, ConnectedLanes, Front, FrontTurn, HandHost, HostConfig, IoCompletion, IoOp, IoRequest,
    LaneId,
};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const NQN: &str = "nqn.2024-01.test:disk";
/// Environment variable that selects one run: `read` or `write`, depth, requests. Otherwise the test runs a little of
/// everything.
const WANTED: &str = "ROADTRAIN_PER_IO";
const IO_BYTES: usize = 4096;
const NAMESPACE_BYTES: u64 = 16 << 20;
const LBA_BYTES: u32 = 512;

/// Keeps `depth` requests in flight until all are done.
struct PerIoLoad {
    op: IoOp,
    left: u32,
    free: Vec<Buffer>,
    done: u32,
    next: u64,
}

impl PerIoLoad {
    fn new(op: IoOp, depth: u32, ios: u32) -> PerIoLoad {
        let free = (0..depth).map(|_| Buffer::alloc(IO_BYTES)).collect();
        PerIoLoad { op, left: ios, free, done: 0, next: 0 }
    }

    fn take(&mut self, completion: IoCompletion) {
        assert!(completion.status.is_success(), "{}", completion.status);
        self.done += 1;
        self.free.extend(completion.buffer);
    }

    fn submit(&mut self, turn: &mut dyn FrontTurn, lane: usize) {
        while self.left > 0
            && let Some(buffer) = self.free.pop()
        {
            // Pseudo-random order over the whole namespace, to defeat prefetchers.
            self.next = (self.next + 0x9e37) % (NAMESPACE_BYTES / IO_BYTES as u64);
            let blocks = IO_BYTES as u32 / LBA_BYTES;
            let slba = self.next * u64::from(blocks);
            let (fua, urgent, class) = (false, false, Class::Normal);
            let buffer = Some(buffer);
            let request = IoRequest {
                op: self.op,
                nsid: 1,
                slba,
                blocks,
                fua,
                urgent,
                class,
                buffer,
                token: lane as u64,
            };
            turn.submit(LaneId(lane), request).unwrap();
            self.left -= 1;
        }
    }
}

impl Front for PerIoLoad {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            self.take(completion);
        }
        self.submit(turn, 0);
    }
}

/// A load for each lane. That of the second lane has nothing in flight in most turns.
struct Loads {
    lanes: [PerIoLoad; 2],
    turns: u32,
}

impl Front for Loads {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            self.lanes[completion.token as usize].take(completion);
        }
        self.lanes[0].submit(turn, 0);
        self.turns += 1;
        if self.turns.is_multiple_of(4) {
            self.lanes[1].submit(turn, 1);
        }
    }
}

/// Connects a host and a target by `lanes` lanes.
fn connected(lanes: u32, queue_entries: u16) -> (HandHost, HandTarget) {
    let policy = PolicyConfig::none();
    let kind = StoreKind::Memory { size: NAMESPACE_BYTES };
    let store = StoreSpec { kind, lba_bytes: LBA_BYTES, read_only: false };
    let subsystem = Subsystem { namespaces: vec![Export::new(1, store)], ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    config.policy = policy;
    let mut target = HandTarget::new(&config);
    let mut config = HostConfig::new(target.address(), NQN, "nqn.x:host", [7; 16]);
    (config.policy, config.lanes, config.queue_entries) = (policy, lanes, queue_entries);
    (config.keep_alive, config.timeout) = (Duration::ZERO, Duration::from_secs(60));
    config.waiting = WaitPolicy::Sleep;
    let for_thread = config.clone();
    let connecting = std::thread::spawn(move || ConnectedLanes::new(&for_thread));
    while !connecting.is_finished() {
        target.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    let host = HandHost::new(&config, connecting.join().unwrap());
    target.set_waiting(WaitPolicy::Sleep);
    (host, target)
}

/// Longest wait for one end while the other may have a part of a PDU, in milliseconds.
const PART_MS: libc::c_int = 100;

/// Waits until data sent by one end has arrived at the other, whose reactor does not sleep.
fn wait(sockets: &[RawFd]) {
    assert!(is_readable(sockets, 60_000), "nothing comes");
}

/// True if data is readable within `limit` milliseconds.
fn is_readable(sockets: &[RawFd], limit: libc::c_int) -> bool {
    let poll = |&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<libc::pollfd> = sockets.iter().map(poll).collect();
    // SAFETY: `polls` is a valid array of that length.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, limit) > 0 }
}

/// Measured function. callgrind finds it by this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn roadtrain_counted(host: &mut HandHost, target: &mut HandTarget, load: &mut PerIoLoad) {
    let (at_host, at_target) = (host.sockets(), target.sockets());
    let ios = load.left;
    host.step(load);
    let mut idle = 0;
    while load.done < ios {
        // On a busy machine a part of a PDU may arrive first, without effect; the rest follows.
        let has_request = is_readable(&at_target, PART_MS);
        if has_request {
            target.step();
        }
        let has_answer = is_readable(&at_host, PART_MS);
        if has_answer {
            host.step(load);
        }
        idle = if has_request || has_answer { 0 } else { idle + 1 };
        assert!(idle < 300, "nothing comes");
    }
}

fn run(op: IoOp, depth: u32, ios: u32) {
    let (mut host, mut target) = connected(1, depth as u16 + 1);
    let mut load = PerIoLoad::new(op, depth, ios);
    roadtrain_counted(&mut host, &mut target, &mut load);
    assert_eq!((load.done, load.left), (ios, 0));
}

#[test]
fn both_ends_of_a_lane_run_in_one_thread() {
    let wanted = std::env::var(WANTED).ok();
    let Some(wanted) = wanted else {
        for (op, depth) in [(IoOp::Read, 1), (IoOp::Read, 32), (IoOp::Write, 1), (IoOp::Write, 32)]
        {
            run(op, depth, 256);
        }
        return;
    };
    let mut words = wanted.split(' ');
    let op = match words.next() {
        Some("read") => IoOp::Read,
        Some("write") => IoOp::Write,
        _ => panic!("{WANTED}={wanted}"),
    };
    let mut number = || words.next().and_then(|word| word.parse().ok()).expect(WANTED);
    run(op, number(), number());
}

/// One lane always has something to receive; data for the other one is received, too.
#[test]
fn a_lane_next_to_a_busy_one_is_received_from() {
    let (mut host, mut target) = connected(2, 33);
    let lanes = [PerIoLoad::new(IoOp::Read, 32, 32_000), PerIoLoad::new(IoOp::Read, 1, u32::MAX)];
    let mut loads = Loads { lanes, turns: 0 };
    let (at_host, at_target) = (host.sockets(), target.sockets());
    let both = [&at_host[..], &at_target[..]].concat();
    host.step(&mut loads);
    while loads.lanes[0].done < 32_000 {
        wait(&both);
        // On a busy machine a part of a request may arrive first, without a completion.
        if is_readable(&at_target, 0) {
            target.step();
        }
        if is_readable(&at_host, 0) {
            host.step(&mut loads);
        }
    }
    let rounds = 32_000 / 32;
    assert!(
        loads.lanes[1].done > rounds / 16,
        "{} answers in {rounds} rounds",
        loads.lanes[1].done
    );
}

/// Front that stops when its load is done and the target has replied to another thread.
struct Stopping {
    load: PerIoLoad,
    ios: u32,
    answer: Receiver<()>,
    /// Requests that are done, and that are left, at the end.
    result: Rc<Cell<(u32, u32)>>,
    /// Time of the next check for the reply, once the load is done.
    next_check: Option<Instant>,
}

impl Front for Stopping {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        while let Some(completion) = turn.next_completion() {
            self.load.take(completion);
        }
        self.load.submit(turn, 0);
        if self.load.done < self.ios {
            let _ = self.answer.try_recv();
        } else if self.answer.try_recv().is_ok() {
            self.result.set((self.load.done, self.load.left));
            turn.stop();
        } else {
            // The reply is no event of the host, which makes no turn without one.
            self.next_check = Some(turn.now() + Duration::from_millis(1));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_check
    }
}

/// Host and target on one thread, whose loop sleeps while neither has work. Events of either one wake it.
#[test]
fn a_host_and_a_target_share_one_loop() {
    const IOS: u32 = 3200;
    for (op, depth) in [(IoOp::Read, 1), (IoOp::Write, 1), (IoOp::Read, 32), (IoOp::Write, 32)] {
        let (host, mut target) = connected(1, 33);
        let (orders, (reply, answer)) = (target.orders(), sync_channel(1));
        let result = Rc::<Cell<_>>::default();
        let load = PerIoLoad::new(op, depth, IOS);
        let result_of_front = result.clone();
        let front = Stopping { load, ios: IOS, answer, result: result_of_front, next_check: None };
        // The last reply comes after the load is done, while both sleep.
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let heartbeats = std::thread::spawn(move || {
            while !is_done.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                orders.send(TargetReactorMessage::Heartbeat(reply.clone()));
            }
        });
        target.run_with_host(host, front);
        done.store(true, Relaxed);
        heartbeats.join().unwrap();
        assert_eq!(result.get(), (IOS, 0));
        assert!(target.sleeps() > 0, "it has never slept");
    }
}
