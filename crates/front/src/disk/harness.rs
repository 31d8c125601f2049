//! A memory disk behind a mock reactor, for tests of fronts.
//!
//! Watches fire every turn: a spurious wake-up is allowed, and costs only time. The lane reads when a request is
//! submitted and writes when it is completed, in any order, so that all possible races occur.

use super::{DiskInfo, test_info};
use roadtrain_host_engine::{
    Allocation, AllocationQuery, Front, FrontTurn, Interest, IoCompletion, IoOp, IoRequest, LaneId,
    UringCommand,
};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// A request at the lane: operation, slba, blocks, FUA, urgent.
pub(crate) type SubmittedRequest = (IoOp, u64, u32, bool, bool);

#[derive(Clone)]
pub(crate) struct MockOptions {
    pub(crate) info: DiskInfo,
    /// Requests that the lane takes at a time.
    pub(crate) room: usize,
    /// Block and status: requests that begin in this block fail with it.
    pub(crate) fails: Option<(u64, Status)>,
    pub(crate) lanes: usize,
    /// Allocated blocks that the target reports; `None` if it does not support the query.
    pub(crate) allocated: Option<Vec<std::ops::Range<u64>>>,
}

impl Default for MockOptions {
    fn default() -> Self {
        MockOptions { info: test_info(), room: 8, fails: None, lanes: 1, allocated: None }
    }
}

/// Time between two turns.
const TURN_NS: u64 = 100_000;

/// Mock of the lane and the reactor.
pub(crate) struct Mock {
    pub(crate) disk: Arc<Mutex<Vec<u8>>>,
    options: MockOptions,
    turns: u64,
    random: u64,
    pub(crate) in_flight: Vec<IoRequest>,
    completions: VecDeque<IoCompletion>,
    pub(crate) watches: Vec<u64>,
    ready: VecDeque<u64>,
    /// Pending allocation queries.
    queries: VecDeque<(AllocationQuery, u64)>,
    /// All allocation queries so far.
    pub(crate) all_queries: Vec<AllocationQuery>,
    pub(crate) submitted: Vec<SubmittedRequest>,
    /// Lane of each request.
    pub(crate) lanes: Vec<LaneId>,
    /// True while the target does not answer.
    pub(crate) silent: bool,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) stopped: bool,
}

impl Mock {
    /// Lets `time` pass, in whole turns.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.turns += time.as_nanos() as u64 / TURN_NS;
    }

    pub(crate) fn new(options: MockOptions, seed: u64) -> Self {
        let info = &options.info;
        let bytes = info.blocks as usize * info.lba_bytes as usize;
        Mock {
            disk: Arc::new(Mutex::new(patterned(0..bytes))),
            options,
            turns: 0,
            random: 88_172_645_463_325_252 + seed,
            in_flight: Vec::new(),
            completions: VecDeque::new(),
            watches: Vec::new(),
            ready: VecDeque::new(),
            queries: VecDeque::new(),
            all_queries: Vec::new(),
            submitted: Vec::new(),
            lanes: Vec::new(),
            silent: false,
            stopping: Arc::default(),
            stopped: false,
        }
    }

    pub(crate) fn options(&self) -> &MockOptions {
        &self.options
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn range(&self, request: &IoRequest) -> std::ops::Range<usize> {
        let lba_bytes = self.options.info.lba_bytes as usize;
        let start = request.slba as usize * lba_bytes;
        start..start + request.blocks as usize * lba_bytes
    }

    fn fails(&self, request: &IoRequest) -> Option<Status> {
        self.options.fails.filter(|(slba, _)| *slba == request.slba).map(|(_, status)| status)
    }

    fn complete_some(&mut self) {
        let count = self.random(self.in_flight.len() + 1);
        for _ in 0..count {
            let at = self.random(self.in_flight.len());
            let request = self.in_flight.swap_remove(at);
            let range = self.range(&request);
            let status = self.fails(&request).unwrap_or(Status::SUCCESS);
            if status.is_success() {
                let disk = &mut self.disk.lock().unwrap()[range];
                match (request.op, &request.buffer) {
                    (IoOp::Write, Some(buffer)) => disk.copy_from_slice(buffer),
                    (IoOp::WriteZeroes { .. }, _) => disk.fill(0),
                    (IoOp::Discard, _) => disk.fill(0xdd),
                    _ => {}
                }
            }
            let IoRequest { token, op, buffer, .. } = request;
            self.completions.push_back(IoCompletion { token, op, status, buffer, latency_ns: 0 });
        }
    }

    /// Runs one turn of `front`.
    pub(crate) fn turn(&mut self, front: &mut impl Front) {
        self.turns += 1;
        if !self.silent {
            self.complete_some();
        }
        self.ready.extend(self.watches.drain(..));
        front.turn(self);
    }

    /// Runs turns until the front ends the reactor.
    pub(crate) fn run<F: Front>(mut self, mut front: F) -> (Mock, F) {
        while !self.stopped {
            self.turn(&mut front);
            let at_once = front.deadline().is_some_and(|at| at <= self.now());
            if self.in_flight.is_empty() && !at_once {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        (self, front)
    }
}

impl FrontTurn for Mock {
    fn now(&self) -> Instant {
        Instant(self.turns * TURN_NS)
    }

    fn next_completion(&mut self) -> Option<IoCompletion> {
        self.completions.pop_front()
    }

    fn room(&self, _: LaneId) -> u32 {
        (self.options.room - self.in_flight.len()) as u32
    }

    fn submit(&mut self, lane: LaneId, mut request: IoRequest) -> Result<(), IoRequest> {
        // The lane may be full in spite of the reported room.
        if self.random(10) == 0 {
            return Err(request);
        }
        let range = self.range(&request);
        if let Some(buffer) = &mut request.buffer {
            assert_eq!(buffer.len(), range.len(), "exactly the bytes of the blocks");
            assert!(range.len() <= self.options.info.max_transfer_bytes as usize);
            if request.op == IoOp::Read {
                buffer.copy_from_slice(&self.disk.lock().unwrap()[range]);
            }
        } else {
            assert!(!matches!(request.op, IoOp::Read | IoOp::Write));
        }
        let IoRequest { op, slba, blocks, fua, urgent, .. } = request;
        self.lanes.push(lane);
        self.submitted.push((op, slba, blocks, fua, urgent));
        self.in_flight.push(request);
        Ok(())
    }

    fn watch(&mut self, _: RawFd, _: Interest, key: u64) {
        assert!(!self.watches.contains(&key), "watched twice");
        self.watches.push(key);
    }

    fn unwatch(&mut self, key: u64) {
        self.watches.retain(|&watched| watched != key);
    }

    fn next_ready(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    #[allow(unsafe_code, reason = "as the trait has it")]
    unsafe fn command(&mut self, _: &UringCommand, _: u64) {}

    fn next_command(&mut self) -> Option<(u64, i32)> {
        None
    }

    fn query_allocation(&mut self, query: AllocationQuery, key: u64) -> bool {
        assert!(self.queries.is_empty(), "one after the other");
        self.all_queries.push(query);
        self.queries.push_back((query, key));
        self.options.allocated.is_some() || self.queries.pop_back().is_none()
    }

    /// Reports three blocks more as known than the first ranges cover.
    fn next_allocation(&mut self) -> Option<(u64, Option<Allocation>)> {
        if self.silent || self.random(4) > 0 {
            return None;
        }
        let (query, key) = self.queries.pop_front()?;
        let (slba, end) = (query.slba, query.slba + query.blocks);
        if self.options.fails.is_some_and(|(block, _)| (slba..end).contains(&block)) {
            return Some((key, None));
        }
        let all = self.options.allocated.iter().flatten();
        let cut = all.map(|range| range.start.max(slba)..range.end.min(end));
        let inside: Vec<_> = cut.filter(|range| !range.is_empty()).collect();
        let reported = inside.len().min(query.ranges.into());
        let behind =
            inside.get(reported).map_or(end, |next| next.start.min(inside[reported - 1].end + 3));
        Some((
            key,
            Some(Allocation { known: slba..behind, allocated: inside[..reported].to_vec() }),
        ))
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Initial content of the disk: a period of a prime length, so that no two blocks near each other are alike.
pub(crate) fn patterned(range: Range<usize>) -> Vec<u8> {
    static PERIOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..65_521_usize).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    });
    let mut bytes = Vec::with_capacity(range.len() + PERIOD.len());
    bytes.extend_from_slice(&PERIOD[range.start % PERIOD.len()..]);
    while bytes.len() < range.len() {
        bytes.extend_from_slice(&PERIOD);
    }
    bytes.truncate(range.len());
    bytes
}
