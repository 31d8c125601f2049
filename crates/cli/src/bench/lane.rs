//! A load on one lane: keeps requests in flight, times them, checks their data.

use super::latency::Latencies;
use super::plan::LoadPlan;
use super::rng::SplitMix;
use super::run_state::{RunPhase, RunState};
use super::schedule::Schedule;
use super::step::DepthSteps;
use super::sweep::{self, Sweep, SweepKind, SweepResult};
use super::verify::{ExpectedBlock, Ledger};
use super::workload::{PickedRequest, RequestSequence};
use roadtrain_host_engine::{FrontTurn, IoCompletion, IoOp, IoRequest, LaneId};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::Batching;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Token bit of sweep requests.
const SWEEP: u64 = 1 << 31;
/// Most error descriptions that are kept.
const ERROR_TEXTS_MAX: usize = 5;

/// Lane and position of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadPosition {
    /// The lane's number over all reactors.
    pub lane: u32,
    /// The lane's ID on its reactor.
    pub id: LaneId,
    /// The lane's index at the host.
    pub host_lane: usize,
    /// The lane's index among the lanes of its load.
    pub part: u32,
    /// The load's index among the loads of its reactor.
    pub index: usize,
}

/// Results of a load on one lane.
pub(super) struct LaneResult {
    /// The load's number: 0 for the main one.
    pub load: usize,
    /// The lane's number over all reactors.
    pub lane: u32,
    /// The lane's index among the lanes of its load.
    pub part: u32,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Requests that failed, and blocks that were wrong.
    pub errors: u64,
    /// Descriptions of the first errors.
    pub error_texts: Vec<String>,
    /// Blocks whose data was checked and right.
    pub blocks_checked: u64,
    /// Requests that were due but not sent at the end (open loop).
    pub unsent: u64,
    /// The lane's index at the host.
    pub host_lane: usize,
    /// Counters of the lane in the measured time, once they are known. Zero for a stream on the main load's lane, whose
    /// result has them.
    pub batching: Batching,
    /// Requests completed in each window, if the depth changed.
    pub windows: Vec<u32>,
}

enum LoadStage {
    Fill(Sweep),
    /// Waits for the other lanes.
    Ready,
    Load,
    /// Sends no more requests; waits for those in flight.
    Drain,
    ReadBack(Sweep),
    Done,
}

struct Flight {
    buffer: Option<Buffer>,
    started: Instant,
    slot: u64,
    generation: u32,
    is_read: bool,
}

/// A load on one lane.
pub(super) struct LaneLoad {
    plan: Arc<LoadPlan>,
    run_state: Arc<RunState>,
    /// The lane on its reactor.
    id: LaneId,
    /// Index among the loads of its reactor, in the high bits of tokens.
    token_base: u64,
    stage: LoadStage,
    first_slot: u64,
    workload: RequestSequence,
    schedule: Option<Schedule>,
    steps: Option<DepthSteps>,
    ledger: Option<Ledger>,
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// Requests still to be sent (`--ios`).
    remaining: u64,
    /// True once the measurement has begun.
    has_begun: bool,
    latency_ns: u64,
    result: LaneResult,
}

impl LaneLoad {
    /// Creates the part of `plan` that runs on `place`, with a buffer for each of its requests in flight.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(
        plan: Arc<LoadPlan>,
        run_state: Arc<RunState>,
        place: LoadPosition,
        buffers: impl Iterator<Item = Buffer>,
    ) -> io::Result<LaneLoad> {
        let (load, part) = (plan.load, place.part);
        let slots = plan.slots_of(part);
        let (count, seed) = (slots.end - slots.start, plan.author.seed);
        let stream = (plan.number as u64) << 32 | u64::from(part);
        let mut rng = SplitMix::new(seed, !stream);
        let flight = |mut buffer: Buffer| {
            sweep::randomise(&mut buffer, &mut rng);
            let started = Instant::default();
            Flight { buffer: Some(buffer), started, slot: 0, generation: 0, is_read: true }
        };
        let flights: Vec<Flight> = buffers.map(flight).collect();
        let stage = match plan.fill {
            true => LoadStage::Fill(Sweep::new(&plan, SweepKind::Fill, plan.share_of(part))?),
            false => LoadStage::Ready,
        };
        Ok(LaneLoad {
            id: place.id,
            token_base: (place.index as u64) << 32,
            stage,
            first_slot: slots.start,
            workload: RequestSequence::new(load.rw, load.rwmixread, count, seed, stream),
            schedule: load.rate.map(|rate| Schedule::new(rate, part, plan.lanes)),
            steps: plan.wave.map(DepthSteps::new),
            ledger: plan.verify.then(|| Ledger::new(count)),
            free: (0..flights.len() as u32).rev().collect(),
            flights,
            remaining: plan.ios_of(part).unwrap_or(u64::MAX),
            has_begun: false,
            latency_ns: 0,
            result: LaneResult {
                load: plan.number,
                lane: place.lane,
                part,
                reads: Latencies::new(),
                writes: Latencies::new(),
                errors: 0,
                error_texts: Vec::new(),
                blocks_checked: 0,
                unsent: 0,
                host_lane: place.host_lane,
                batching: Batching::default(),
                windows: Vec::new(),
            },
            plan,
            run_state,
        })
    }

    /// True once the load has ended.
    #[must_use]
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, LoadStage::Done)
    }

    /// Returns the results after the end.
    #[must_use]
    pub(super) fn into_result(self) -> LaneResult {
        let windows = self.steps.map(DepthSteps::into_windows).unwrap_or_default();
        LaneResult { windows, ..self.result }
    }

    /// Returns the latest time of the next turn.
    #[must_use]
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        const POLL: std::time::Duration = std::time::Duration::from_millis(1);
        match (&self.stage, &self.schedule) {
            (LoadStage::Ready, _) => Some(now + POLL),
            // The end of the measurement has to be noticed between two arrivals, too.
            (LoadStage::Load, Some(schedule)) if !self.free.is_empty() => {
                Some(schedule.next().min(now + POLL * 20))
            }
            (LoadStage::Load, None) => self.steps.as_ref().and_then(|steps| steps.next(now)),
            _ => None,
        }
    }

    /// Takes a completion of this lane.
    #[inline]
    pub(super) fn complete(&mut self, completion: IoCompletion, now: Instant, phase: RunPhase) {
        if completion.token & SWEEP != 0 {
            return self.complete_sweep(completion);
        }
        let index = completion.token as u32;
        let flight = &mut self.flights[index as usize];
        let is_read = flight.is_read;
        let latency = match self.schedule {
            Some(_) => now.0.saturating_sub(flight.started.0),
            None => completion.latency_ns,
        };
        let status = completion.status;
        flight.buffer = completion.buffer;
        if let Some(steps) = &mut self.steps {
            steps.record(flight.started, now);
        }
        self.free.push(index);
        if self.ledger.is_some() {
            self.verify(index as usize, status);
        }
        if !status.is_success() {
            return self.fail(index as usize, status);
        }
        if phase == RunPhase::Measure {
            self.latency_ns += latency;
            if self.run_state.watched.load(Ordering::Relaxed) {
                self.progress().tally.count(latency);
            }
            let latencies = if is_read { &mut self.result.reads } else { &mut self.result.writes };
            latencies.record(latency);
        }
    }

    #[cold]
    fn fail(&mut self, index: usize, status: Status) {
        let flight = &self.flights[index];
        let what = if flight.is_read { "reading" } else { "writing" };
        self.record_error(format!("{what} block {}: {status}", self.plan.lba_of(flight.slot)));
        if status.is(Status::HOST_PATH_ERROR) || status.is(Status::HOST_ABORTED) {
            self.run_state.lost.store(true, Ordering::Relaxed);
        }
    }

    fn record_error(&mut self, text: String) {
        self.result.errors += 1;
        if self.result.error_texts.len() < ERROR_TEXTS_MAX {
            self.result.error_texts.push(text);
        }
    }

    /// Checks data that was read; records data that was written. After a failed write the slot's content is unknown.
    fn verify(&mut self, index: usize, status: Status) {
        let flight = &self.flights[index];
        let (slot, is_read) = (flight.slot, flight.is_read);
        let Some(ledger) = &mut self.ledger else { return };
        let local = slot - self.first_slot;
        if !is_read {
            return ledger.release(local, if status.is_success() { flight.generation } else { 0 });
        }
        let generation = ledger.generation(local);
        ledger.release(local, generation);
        let (true, Some(data)) = (status.is_success(), &flight.buffer) else { return };
        let expected = match generation {
            0 if self.plan.writes() => ExpectedBlock::Whatever,
            0 => ExpectedBlock::Earlier,
            generation => ExpectedBlock::Generation(generation),
        };
        let mut swept = SweepResult::default();
        sweep::check(&self.plan, data, slot, expected, &mut swept);
        self.record_sweep(swept);
    }

    fn record_sweep(&mut self, swept: SweepResult) {
        self.result.blocks_checked += swept.checked;
        swept.wrong.into_iter().for_each(|text| self.record_error(text));
    }

    fn complete_sweep(&mut self, completion: IoCompletion) {
        let (LoadStage::Fill(sweep) | LoadStage::ReadBack(sweep)) = &mut self.stage else { return };
        let index = (completion.token & (SWEEP - 1)) as usize;
        let swept = sweep.complete(&self.plan, self.ledger.as_mut(), completion, index);
        self.record_sweep(swept);
    }

    /// Runs the load's stage after the completions of this turn.
    pub(super) fn turn(&mut self, turn: &mut dyn FrontTurn, phase: RunPhase) {
        match self.stage {
            LoadStage::Load => self.load(turn, phase),
            LoadStage::Fill(_) | LoadStage::ReadBack(_) => self.sweep(turn, phase),
            LoadStage::Ready if phase > RunPhase::Prepare => {
                if let Some(schedule) = &mut self.schedule {
                    schedule.start(turn.now());
                }
                self.stage = LoadStage::Load;
                self.load(turn, phase);
            }
            LoadStage::Ready => self.progress().prepared.store(true, Ordering::Relaxed),
            LoadStage::Drain if self.free.len() == self.flights.len() => self.end_drain(turn),
            LoadStage::Drain | LoadStage::Done => {}
        }
        self.publish();
    }

    fn progress(&self) -> &super::run_state::LaneProgress {
        &self.run_state.loads[self.result.load][self.result.part as usize]
    }

    fn publish(&self) {
        let (progress, result) = (self.progress(), &self.result);
        let requests = result.reads.count() + result.writes.count();
        progress.requests.store(requests, Ordering::Relaxed);
        progress.latency_ns.store(self.latency_ns, Ordering::Relaxed);
        progress.errors.store(result.errors, Ordering::Relaxed);
    }

    fn load(&mut self, turn: &mut dyn FrontTurn, phase: RunPhase) {
        if phase == RunPhase::Measure && !std::mem::replace(&mut self.has_begun, true) {
            self.steps.iter_mut().for_each(|steps| steps.begin(self.run_state.began_at()));
        }
        if phase == RunPhase::Stop || self.remaining == 0 {
            if let Some(schedule) = &self.schedule {
                self.result.unsent = schedule.due(turn.now());
            }
            self.stage = LoadStage::Drain;
            return self.turn(turn, phase);
        }
        self.submit(turn);
    }

    /// Sends as many requests as may be in flight (and are due).
    fn submit(&mut self, turn: &mut dyn FrontTurn) {
        let now = turn.now();
        let depth = self.steps.as_ref().map_or(u32::MAX, |steps| steps.depth(now)) as usize;
        while let Some(&index) = self.free.last() {
            if self.flights.len() - self.free.len() >= depth {
                return;
            }
            if self.remaining == 0 || self.schedule.as_ref().is_some_and(|s| s.next() > now) {
                return;
            }
            let Some(pick) = self.pick() else { return };
            let request = self.prepare(index, pick, now);
            if let Err(request) = turn.submit(self.id, request) {
                return self.undo_prepare(index, request);
            }
            self.free.pop();
            self.remaining -= 1;
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
        }
    }

    /// Picks the next request, in slots of the region.
    #[inline]
    fn pick(&mut self) -> Option<PickedRequest> {
        let pick = self.workload.next();
        let slot = match &mut self.ledger {
            Some(ledger) => ledger.take(pick.slot)?,
            None => pick.slot,
        };
        Some(PickedRequest { slot: self.first_slot + slot, ..pick })
    }

    #[inline]
    fn prepare(&mut self, index: u32, pick: PickedRequest, now: Instant) -> IoRequest {
        let flight = &mut self.flights[index as usize];
        flight.started = self.schedule.as_ref().map_or(now, Schedule::next);
        flight.slot = pick.slot;
        flight.is_read = pick.is_read;
        let mut buffer = flight.buffer.take();
        if let (false, Some(ledger), Some(data)) = (pick.is_read, &self.ledger, &mut buffer) {
            flight.generation = ledger.next_generation(pick.slot - self.first_slot);
            sweep::stamp(&self.plan, data, pick.slot, flight.generation);
        }
        IoRequest {
            op: if pick.is_read { IoOp::Read } else { IoOp::Write },
            nsid: self.plan.nsid,
            slba: self.plan.lba_of(pick.slot),
            blocks: self.plan.slot_blocks,
            fua: false,
            urgent: false,
            class: self.plan.load.class.into(),
            buffer,
            token: self.token_base | u64::from(index),
        }
    }

    /// Undoes `prepare` for a request that the lane had no capacity for.
    fn undo_prepare(&mut self, index: u32, request: IoRequest) {
        let flight = &mut self.flights[index as usize];
        flight.buffer = request.buffer;
        if let Some(ledger) = &mut self.ledger {
            let local = flight.slot - self.first_slot;
            ledger.release(local, ledger.generation(local));
        }
    }

    fn end_drain(&mut self, turn: &mut dyn FrontTurn) {
        self.progress().finished_at.store(turn.now().0.max(1), Ordering::Relaxed);
        let wants_check = self.plan.verify && self.plan.writes() && !turn.stopping();
        self.stage = LoadStage::Done;
        if wants_check && !self.run_state.lost.load(Ordering::Relaxed) {
            match Sweep::new(&self.plan, SweepKind::ReadBack, self.plan.share_of(self.result.part))
            {
                Ok(sweep) => self.stage = LoadStage::ReadBack(sweep),
                Err(error) => self.record_error(format!("reading back: {error}")),
            }
            self.turn(turn, RunPhase::Stop);
        }
    }

    fn sweep(&mut self, turn: &mut dyn FrontTurn, phase: RunPhase) {
        let filling = matches!(self.stage, LoadStage::Fill(_));
        let (LoadStage::Fill(sweep) | LoadStage::ReadBack(sweep)) = &mut self.stage else { return };
        if self.result.errors > 0 || filling && phase == RunPhase::Stop {
            sweep.abandon();
        }
        sweep.submit(&self.plan, self.ledger.as_ref(), (turn, self.id), self.token_base | SWEEP);
        if sweep.is_done() {
            self.stage = if filling { LoadStage::Ready } else { LoadStage::Done };
            self.turn(turn, phase);
        }
    }
}
