//! What the main thread and the lanes tell each other: one writer for each value, no lock.

use super::tally::{Counts, Tally};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What all lanes are to do; only ever moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Fill the region if need be, then wait.
    Prepare,
    /// Load, without counting.
    Ramp,
    /// Load and count.
    Measure,
    /// End.
    Stop,
}

/// The progress of a load on one lane, written by it once a turn. A cache line pair each.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct LoadBoard {
    /// Requests that succeeded while measuring.
    pub requests: AtomicU64,
    /// Nanoseconds they took together.
    pub latency_ns: AtomicU64,
    /// How long each took, if [`Board::watched`].
    pub tally: Tally,
    /// Requests that failed, and blocks that were wrong.
    pub errors: AtomicU64,
    /// Ready to load.
    pub prepared: AtomicBool,
    /// Has nothing more to load, since (engine clock; 0: not yet).
    pub finished_at: AtomicU64,
}

/// All of it.
pub(super) struct Board {
    phase: AtomicU8,
    /// The controller is lost: requests fail because of the path.
    pub lost: AtomicBool,
    /// End at once, whatever is in flight.
    pub abandoned: AtomicBool,
    /// Somebody looks at the progress while it is made.
    pub watched: AtomicBool,
    /// When measuring began (engine clock).
    began_at: AtomicU64,
    /// The main load's and each stream's: one for each of its lanes.
    pub loads: Vec<Vec<LoadBoard>>,
}

/// Sums of all lanes of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Requests that succeeded while measuring.
    pub requests: u64,
    /// Nanoseconds they took together.
    pub latency_ns: u64,
    /// How long each took.
    pub counts: Counts,
    /// Requests that failed, and blocks that were wrong.
    pub errors: u64,
}

impl Board {
    /// For loads on so many lanes each, the main one first; in [`Phase::Prepare`].
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

    /// The phase.
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

    /// Moves on.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Moves on to [`Phase::Measure`].
    pub(super) fn measure_from(&self, now: Instant) {
        self.began_at.store(now.0, Ordering::Relaxed);
        self.set_phase(Phase::Measure);
    }

    /// When [`Phase::Measure`] began.
    #[must_use]
    pub(super) fn began_at(&self) -> Instant {
        Instant(self.began_at.load(Ordering::Relaxed))
    }

    /// Whether every load is ready.
    #[must_use]
    pub(super) fn all_prepared(&self) -> bool {
        self.loads.iter().flatten().all(|load| load.prepared.load(Ordering::Relaxed))
    }

    /// When the last lane had nothing more of the main load (engine clock), if all are so far: streams
    /// last as long as that.
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

    /// Errors of all loads.
    #[must_use]
    pub(super) fn errors(&self) -> u64 {
        let errors = |load: &LoadBoard| load.errors.load(Ordering::Relaxed);
        self.loads.iter().flatten().map(errors).sum()
    }
}
