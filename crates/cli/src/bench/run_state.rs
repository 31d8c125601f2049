//! State shared by the main thread and the lanes: one writer for each value, no lock.

use super::tally::{LatencyTally, TallyCounts};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Phase of all lanes; only ever advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum RunPhase {
    /// Fill the region if needed, then wait.
    Prepare,
    /// Run the load, without counting.
    Ramp,
    /// Run the load, and count.
    Measure,
    /// Stop.
    Stop,
}

/// Progress of a load on one lane, written by it once a turn. Two cache lines each.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct LaneProgress {
    /// Requests that succeeded while measuring.
    pub requests: AtomicU64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: AtomicU64,
    /// Their latencies, if [`RunState::watched`].
    pub tally: LatencyTally,
    /// Requests that failed, and blocks that were wrong.
    pub errors: AtomicU64,
    /// True when the load is ready to start.
    pub prepared: AtomicBool,
    /// Time when the lane had sent all of its load (engine clock; 0: not yet).
    pub finished_at: AtomicU64,
}

/// State shared by the main thread and the lanes.
pub(super) struct RunState {
    phase: AtomicU8,
    /// True when the controller is lost: requests fail because of the path.
    pub lost: AtomicBool,
    /// True to end at once, with requests in flight.
    pub abandoned: AtomicBool,
    /// True while the progress is displayed.
    pub watched: AtomicBool,
    /// Start of the measurement (engine clock).
    began_at: AtomicU64,
    /// The main load's progress, then each stream's: one entry for each of its lanes.
    pub loads: Vec<Vec<LaneProgress>>,
}

/// Sums of all lanes of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadProgress {
    /// Requests that succeeded while measuring.
    pub requests: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: u64,
    /// Their latencies.
    pub counts: TallyCounts,
    /// Requests that failed, and blocks that were wrong.
    pub errors: u64,
}

impl RunState {
    /// Creates the state for the given lane count of each load, the main one first; in [`RunPhase::Prepare`].
    #[must_use]
    pub(super) fn new(lanes: impl Iterator<Item = u32>) -> RunState {
        let load = |lanes| (0..lanes).map(|_| LaneProgress::default()).collect();
        RunState {
            phase: AtomicU8::new(RunPhase::Prepare as u8),
            lost: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            began_at: AtomicU64::new(0),
            loads: lanes.map(load).collect(),
        }
    }

    /// Returns the phase.
    #[inline]
    #[must_use]
    pub(super) fn phase(&self) -> RunPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => RunPhase::Prepare,
            1 => RunPhase::Ramp,
            2 => RunPhase::Measure,
            _ => RunPhase::Stop,
        }
    }

    /// Advances to `phase`.
    pub(super) fn set_phase(&self, phase: RunPhase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Advances to [`RunPhase::Measure`].
    pub(super) fn measure_from(&self, now: Instant) {
        self.began_at.store(now.0, Ordering::Relaxed);
        self.set_phase(RunPhase::Measure);
    }

    /// Returns the time when [`RunPhase::Measure`] began.
    #[must_use]
    pub(super) fn began_at(&self) -> Instant {
        Instant(self.began_at.load(Ordering::Relaxed))
    }

    /// True if every load is ready.
    #[must_use]
    pub(super) fn all_prepared(&self) -> bool {
        self.loads.iter().flatten().all(|load| load.prepared.load(Ordering::Relaxed))
    }

    /// Returns the time when the last lane had sent all of the main load (engine clock), if all lanes have: streams
    /// last as long.
    #[must_use]
    pub(super) fn finished_at(&self) -> Option<u64> {
        let at = self.loads[0].iter().map(|load| load.finished_at.load(Ordering::Relaxed));
        at.map(|at| (at > 0).then_some(at)).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// Sums up each load.
    #[must_use]
    pub(super) fn progress(&self) -> Vec<LoadProgress> {
        let add = |mut sum: LoadProgress, load: &LaneProgress| {
            sum.requests += load.requests.load(Ordering::Relaxed);
            sum.latency_ns += load.latency_ns.load(Ordering::Relaxed);
            sum.errors += load.errors.load(Ordering::Relaxed);
            sum.counts.add(&load.tally);
            sum
        };
        self.loads.iter().map(|load| load.iter().fold(LoadProgress::default(), add)).collect()
    }

    /// Returns the errors of all loads.
    #[must_use]
    pub(super) fn errors(&self) -> u64 {
        let errors = |load: &LaneProgress| load.errors.load(Ordering::Relaxed);
        self.loads.iter().flatten().map(errors).sum()
    }
}
