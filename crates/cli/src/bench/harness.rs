//! A reactor with a namespace in memory, without sockets and clock, to test loads.

use super::generator::{Generator, ReactorLanes};
use super::lane::LaneResult;
use super::plan::LoadPlan;
use super::run_state::RunState;
use roadtrain_host_engine::{
    Front, FrontTurn, Interest, IoCompletion, IoOp, IoRequest, LaneId, UringCommand,
};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// A reactor. Requests wait in `queue` until [`LoadHarness::execute`] completes them.
pub(super) struct LoadHarness {
    pub(super) now: u64,
    pub(super) queue: VecDeque<(LaneId, IoRequest)>,
    pub(super) capacity: u32,
    pub(super) status: Status,
    pub(super) stopped: bool,
    /// True once the reactor has to stop.
    pub(super) stopping: bool,
    pub(super) store: Vec<u8>,
    completions: VecDeque<IoCompletion>,
    block_bytes: usize,
}

impl LoadHarness {
    pub(super) fn new(bytes: usize, block_bytes: usize) -> LoadHarness {
        LoadHarness {
            now: 1_000,
            queue: VecDeque::new(),
            capacity: 1024,
            status: Status::SUCCESS,
            stopped: false,
            stopping: false,
            store: vec![0; bytes],
            completions: VecDeque::new(),
            block_bytes,
        }
    }

    /// Executes and completes the `n` oldest requests, `ns` later.
    pub(super) fn execute(&mut self, n: usize, ns: u64) {
        self.now += ns;
        for _ in 0..n {
            let Some((_, mut request)) = self.queue.pop_front() else { return };
            let start = request.slba as usize * self.block_bytes;
            if let (true, Some(buffer)) = (self.status.is_success(), &mut request.buffer) {
                assert_eq!(buffer.len(), request.blocks as usize * self.block_bytes);
                let range = &mut self.store[start..start + buffer.len()];
                match request.op {
                    IoOp::Read => buffer.copy_from_slice(range),
                    IoOp::Write => range.copy_from_slice(buffer),
                    _ => panic!("a load only reads and writes"),
                }
            }
            self.complete(request, ns);
        }
    }

    /// Completes the oldest request without executing it.
    pub(super) fn complete_blindly(&mut self) {
        let Some((_, request)) = self.queue.pop_front() else { return };
        self.complete(request, 1);
    }

    fn complete(&mut self, request: IoRequest, latency_ns: u64) {
        self.completions.push_back(IoCompletion {
            token: request.token,
            op: request.op,
            status: self.status,
            buffer: request.buffer,
            latency_ns,
        });
    }
}

impl FrontTurn for LoadHarness {
    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn next_completion(&mut self) -> Option<IoCompletion> {
        self.completions.pop_front()
    }

    fn room(&self, _: LaneId) -> u32 {
        self.capacity.saturating_sub(self.queue.len() as u32)
    }

    fn submit(&mut self, lane: LaneId, request: IoRequest) -> Result<(), IoRequest> {
        if self.room(lane) == 0 {
            return Err(request);
        }
        self.queue.push_back((lane, request));
        Ok(())
    }

    fn watch(&mut self, _: RawFd, _: Interest, _: u64) {}

    fn unwatch(&mut self, _: u64) {}

    fn next_ready(&mut self) -> Option<u64> {
        None
    }

    unsafe fn command(&mut self, _: &UringCommand, _: u64) {}

    fn next_command(&mut self) -> Option<(u64, i32)> {
        None
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stopping(&self) -> bool {
        self.stopping
    }
}

/// Creates a generator for all of `plans` on one reactor, its run state, and the receiver of results.
pub(super) fn generators(plans: Vec<LoadPlan>) -> (Generator, Arc<RunState>, Receiver<LaneResult>) {
    let run_state = Arc::new(RunState::new(plans.iter().map(|plan| plan.lanes)));
    let plans: Vec<Arc<LoadPlan>> = plans.into_iter().map(Arc::new).collect();
    let lanes = ReactorLanes { reactor: (0, 1), first: 0, main: plans[0].lanes };
    let (results, inbox) = channel();
    let generator = Generator::new(&plans, &run_state, lanes, results).expect("memory for a test");
    (generator, run_state, inbox)
}

/// Creates a generator for a main load alone.
pub(super) fn generator(plan: LoadPlan) -> (Generator, Arc<RunState>, Receiver<LaneResult>) {
    generators(vec![plan])
}

/// Runs turns and completes requests until the generator ends.
pub(super) fn finish(generator: &mut Generator, harness: &mut LoadHarness) {
    for _ in 0..1_000_000 {
        generator.turn(harness);
        if harness.stopped {
            return;
        }
        harness.execute(16, 100);
    }
    panic!("does not end");
}

/// Runs turns until the region is prepared, then starts the measurement.
pub(super) fn begin(generator: &mut Generator, run_state: &RunState, harness: &mut LoadHarness) {
    generator.turn(harness);
    while !run_state.all_prepared() {
        harness.execute(16, 100);
        generator.turn(harness);
    }
    run_state.measure_from(Instant(harness.now));
    generator.turn(harness);
}
