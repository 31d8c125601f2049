//! The host's end: keeps `depth` requests in flight and takes the time of each.

use super::args::Args;
use super::case::Case;
use super::end::{Counts, End, place};
use super::pack::{Record, What};
use crate::floor::{Direction, Memory, Probe, Random, Sample};
use hdrhistogram::Histogram;
use std::ptr;
use std::time::{Duration, Instant};

/// Longest time without an answer: then frames were lost, and are not sent again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counts of a measured run.
pub(super) struct Outcome {
    pub(super) requests: u64,
    pub(super) elapsed: Duration,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) host: Sample,
    pub(super) target: Sample,
    pub(super) zero_copy: bool,
    /// The host's counters, warm-up included.
    pub(super) counts: Counts,
}

pub(super) struct Host {
    case: Case,
    end: End,
    /// The caller's buffers, one a slot.
    buffers: Memory,
    started: Vec<Instant>,
    random: Random,
    blocks: u32,
    requests: u64,
    latency_ns: Histogram<u64>,
    answered: Vec<u16>,
}

impl Host {
    pub(super) fn new(args: &Args, case: Case, end: End) -> anyhow::Result<Host> {
        Ok(Host {
            case,
            end,
            buffers: Memory::new(case.bs * case.depth, true)?,
            started: vec![Instant::now(); case.depth],
            random: Random::default(),
            blocks: u32::try_from(args.memory / case.bs)?,
            requests: 0,
            latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
            answered: Vec::with_capacity(case.depth),
        })
    }

    /// Warms up and measures.
    pub(super) fn run(&mut self, args: &Args, target: &Probe) -> anyhow::Result<Outcome> {
        let host = Probe::current();
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
        Ok(Outcome {
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
        let command = Record { what: What::Command, slot, block };
        // SAFETY: no payload.
        unsafe { self.end.put(command, (ptr::null(), 0))? };
        if self.case.rw == Direction::Read {
            return Ok(());
        }
        let buffer = self.buffers.at(usize::from(slot) * self.case.bs, self.case.bs);
        for index in 0..self.case.pieces() {
            let (at, octets) = self.case.span(index);
            let record = Record { what: What::Data { index }, slot, block };
            // SAFETY: within the slot's buffer, which lives as long as this host.
            unsafe { self.end.put(record, (buffer.add(at), octets))? };
        }
        Ok(())
    }

    fn turn_until(&mut self, deadline: Instant) -> anyhow::Result<()> {
        let mut received = Instant::now();
        loop {
            self.end.flush()?;
            let Host { case, end, buffers, answered, .. } = self;
            end.receive(|record, payload| match record.what {
                What::Data { index } => place(case, buffers, record.slot.into(), index, payload),
                What::Completion => answered.push(record.slot),
                What::Command => {}
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
                "frames were lost: {:?}",
                self.end.counts(0)
            );
            if now >= deadline {
                return Ok(());
            }
        }
    }
}
