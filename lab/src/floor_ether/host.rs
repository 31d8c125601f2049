//! The host's end: keeps `depth` requests in flight and takes the time of each.

use super::args::FloorEtherArgs;
use super::case::FloorEtherCase;
use super::end::{FloorEtherCounts, FloorEtherEnd, place};
use super::pack::{FloorRecord, FloorRecordKind};
use crate::floor::{BlockRandom, DataDirection, FloorMemory, ThreadUsage, ThreadUsageProbe};
use hdrhistogram::Histogram;
use std::ptr;
use std::time::{Duration, Instant};

/// Longest time without an answer: then frames were lost, and are not sent again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counts of a measured run.
pub(super) struct FloorEtherOutcome {
    pub(super) requests: u64,
    pub(super) elapsed: Duration,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) host: ThreadUsage,
    pub(super) target: ThreadUsage,
    pub(super) zero_copy: bool,
    /// The host's counters, warm-up included.
    pub(super) counts: FloorEtherCounts,
}

pub(super) struct FloorEtherHost {
    case: FloorEtherCase,
    end: FloorEtherEnd,
    /// The caller's buffers, one a slot.
    buffers: FloorMemory,
    started: Vec<Instant>,
    random: BlockRandom,
    blocks: u32,
    requests: u64,
    latency_ns: Histogram<u64>,
    answered: Vec<u16>,
}

impl FloorEtherHost {
    pub(super) fn new(
        args: &FloorEtherArgs,
        case: FloorEtherCase,
        end: FloorEtherEnd,
    ) -> anyhow::Result<FloorEtherHost> {
        Ok(FloorEtherHost {
            case,
            end,
            buffers: FloorMemory::new(case.bs * case.depth, true)?,
            started: vec![Instant::now(); case.depth],
            random: BlockRandom::default(),
            blocks: u32::try_from(args.memory / case.bs)?,
            requests: 0,
            latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
            answered: Vec::with_capacity(case.depth),
        })
    }

    /// Warms up and measures.
    pub(super) fn run(
        &mut self,
        args: &FloorEtherArgs,
        target: &ThreadUsageProbe,
    ) -> anyhow::Result<FloorEtherOutcome> {
        let host = ThreadUsageProbe::current();
        let now = Instant::now();
        for slot in 0..u16::try_from(self.case.depth)? {
            self.submit(slot, now)?;
        }
        self.turn_until(now + Duration::from_secs_f64(args.warmup))?;
        self.latency_ns.clear();
        let (requests, begin) = (self.requests, Instant::now());
        let before = (host.sample(), target.sample());
        self.turn_until(begin + Duration::from_secs_f64(args.seconds))?;
        let elapsed = begin.elapsed();
        let after = (host.sample(), target.sample());
        Ok(FloorEtherOutcome {
            requests: self.requests - requests,
            elapsed,
            latency_ns: self.latency_ns.clone(),
            host: after.0.since(before.0),
            target: after.1.since(before.1),
            zero_copy: self.end.zero_copy,
            counts: self.end.counts(self.requests),
        })
    }

    fn submit(&mut self, slot: u16, now: Instant) -> anyhow::Result<()> {
        let block = self.random.below(self.blocks);
        self.started[usize::from(slot)] = now;
        let command = FloorRecord { what: FloorRecordKind::Command, slot, block };
        // SAFETY: no payload.
        unsafe { self.end.put(command, (ptr::null(), 0))? };
        if self.case.rw == DataDirection::Read {
            return Ok(());
        }
        let buffer = self.buffers.at(usize::from(slot) * self.case.bs, self.case.bs);
        for index in 0..self.case.pieces() {
            let (at, bytes) = self.case.span(index);
            let record = FloorRecord { what: FloorRecordKind::Data { index }, slot, block };
            // SAFETY: within the slot's buffer, which lives as long as this host.
            unsafe { self.end.put(record, (buffer.add(at), bytes))? };
        }
        Ok(())
    }

    fn turn_until(&mut self, deadline: Instant) -> anyhow::Result<()> {
        let mut received = Instant::now();
        loop {
            self.end.flush()?;
            let FloorEtherHost { case, end, buffers, answered, .. } = self;
            end.receive(|record, payload| match record.what {
                FloorRecordKind::Data { index } => {
                    place(case, buffers, record.slot.into(), index, payload)
                }
                FloorRecordKind::Completion => answered.push(record.slot),
                FloorRecordKind::Command => {}
            })?;
            let now = Instant::now();
            let mut answered = std::mem::take(&mut self.answered);
            if !answered.is_empty() {
                received = now;
            }
            for slot in answered.drain(..) {
                let waited = now - self.started[usize::from(slot)];
                self.latency_ns.saturating_record(waited.as_nanos() as u64);
                self.requests += 1;
                self.submit(slot, now)?;
            }
            self.answered = answered;
            anyhow::ensure!(
                now - received < PATIENCE,
                "no reply for {PATIENCE:?}: {} frames were dropped",
                self.end.counts(0).lost
            );
            if now >= deadline {
                return Ok(());
            }
        }
    }
}
