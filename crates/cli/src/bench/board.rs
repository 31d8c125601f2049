//! What the main thread and the lanes tell each other: one writer for each value, no lock.

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

/// The lanes' progress, written by each once a turn. A cache line pair each.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct LaneBoard {
    /// Requests that succeeded while measuring.
    pub requests: AtomicU64,
    /// Nanoseconds they took together.
    pub latency_ns: AtomicU64,
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
    /// One for each lane.
    pub lanes: Vec<LaneBoard>,
}

/// Sums of all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Requests that succeeded while measuring.
    pub requests: u64,
    /// Nanoseconds they took together.
    pub latency_ns: u64,
    /// Requests that failed, and blocks that were wrong.
    pub errors: u64,
}

impl Board {
    /// For so many lanes, in [`Phase::Prepare`].
    #[must_use]
    pub(super) fn new(lanes: u32) -> Board {
        let lanes = (0..lanes).map(|_| LaneBoard::default()).collect();
        Board {
            phase: AtomicU8::new(Phase::Prepare as u8),
            lost: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            lanes,
        }
    }

    /// The phase.
    #[inline]
    #[must_use]
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Prepare,
            1 => Phase::Ramp,
            2 => Phase::Measure,
            _ => Phase::Stop,
        }
    }

    /// Moves on.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Whether every lane is ready to load.
    #[must_use]
    pub(super) fn all_prepared(&self) -> bool {
        self.lanes.iter().all(|lane| lane.prepared.load(Ordering::Relaxed))
    }

    /// When the last lane had nothing more to load (engine clock), if all have.
    #[must_use]
    pub(super) fn all_finished_at(&self) -> Option<u64> {
        let at = self.lanes.iter().map(|lane| lane.finished_at.load(Ordering::Relaxed));
        at.map(|at| (at > 0).then_some(at)).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// Sums up.
    #[must_use]
    pub(super) fn progress(&self) -> Progress {
        self.lanes.iter().fold(Progress::default(), |sum, lane| Progress {
            requests: sum.requests + lane.requests.load(Ordering::Relaxed),
            latency_ns: sum.latency_ns + lane.latency_ns.load(Ordering::Relaxed),
            errors: sum.errors + lane.errors.load(Ordering::Relaxed),
        })
    }
}
