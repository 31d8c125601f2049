//! State shared by the main thread and the lanes: one writer for each value, no lock.

use super::tally::{Counts, Tally};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Phase of all lanes; only ever advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
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
pub(super) struct LoadBoard {
    /// Requests that succeeded while measuring.
    pub requests: AtomicU64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: AtomicU64,
    /// Their latencies, if [`Board::watched`].
    pub tally: Tally,
    /// Requests that failed, and blocks that were wrong.
    pub errors: AtomicU64,
    /// True when the load is ready to start.
    pub prepared: AtomicBool,
    /// Time when the lane had sent all of its load (engine clock; 0: not yet).
    pub finished_at: AtomicU64,
}

/// State shared by the main thread and the lanes.
pub(super) struct Board {
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
    pub loads: Vec<Vec<LoadBoard>>,
}

/// Sums of all lanes of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Requests that succeeded while measuring.
    pub requests: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_ns: u64,
    /// Their latencies.
    pub counts: Counts,
    /// Requests that failed, and blocks that were wrong.
    pub errors: u64,
}

impl Board {
    /// Creates the state for the given lane count of each load, the main one first; in [`Phase::Prepare`].
    #[must_use]
    pub(super) fn new(lanes: impl Iterator<Item = u32>) -> Board {
        let load = |lanes| (0..lanes).map(|_| LoadBoard::default()).collect();
        Board {
            phase: AtomicU8::new(Phase::Prepare as u8),
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
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Prepare,
            1 => Phase::Ramp,
            2 => Phase::Measure,
            _ => Phase::Stop,
        }
    }

    /// Advances to `phase`.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Advances to [`Phase::Measure`].
    pub(super) fn measure_from(&self, now: Instant) {
        self.began_at.store(now.0, Ordering::Relaxed);
        self.set_phase(Phase::Measure);
    }

    /// Returns the time when [`Phase::Measure`] began.
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
    pub(super) fn progress(&self) -> Vec<Progress> {
        let add = |mut sum: Progress, load: &LoadBoard| {
            sum.requests += load.requests.load(Ordering::Relaxed);
            sum.latency_ns += load.latency_ns.load(Ordering::Relaxed);
            sum.errors += load.errors.load(Ordering::Relaxed);
            sum.counts.add(&load.tally);
            sum
        };
        self.loads.iter().map(|load| load.iter().fold(Progress::default(), add)).collect()
    }

    /// Returns the errors of all loads.
    #[must_use]
    pub(super) fn errors(&self) -> u64 {
        let errors = |load: &LoadBoard| load.errors.load(Ordering::Relaxed);
        self.loads.iter().flatten().map(errors).sum()
    }
}
