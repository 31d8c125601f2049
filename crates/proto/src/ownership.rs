//! Exclusive ownership of blocks that several targets reach and one of them serves. A third party (a cluster) keeps the
//! record.
//!
//! ```text
//!   owner     --- heartbeat ------->  cluster  <--- check --- standby target
//!   [Owner]   <-- confirmed, or ----                         [Observer]
//!                 refused
//! ```
//!
//! The owner sends heartbeats. If the cluster confirms none for `cut_off_after`, the owner treats itself as cut off. If a
//! standby target sees no new heartbeat for `fence_after`, although it could check all the time, the owner is gone. The
//! standby target may then have the cluster fence the owner. While no target reaches the cluster, the owner stays the
//! same.
//!
//! Each clock is compared only with itself. A running owner stops serving before it is fenced, as long as clocks run
//! alike within the margin between the two times. A frozen owner does not stop: the fence protects the blocks. An owner
//! that was cut off checks that the blocks are still its own before it serves again.

use crate::time::Instant;
use core::time::Duration;

/// Periods and timeouts of ownership.
#[derive(Clone, Copy, Debug)]
pub struct OwnershipTiming {
    /// Period of heartbeats, from start to start.
    pub heartbeat: Duration,
    /// Period of ownership checks.
    pub check: Duration,
    /// Time without a confirmed heartbeat after which the owner stops serving.
    pub cut_off_after: Duration,
    /// Time without a new heartbeat after which the owner is fenced. Longer than `cut_off_after`.
    pub fence_after: Duration,
    /// Time after which an owner without heartbeats and without the blocks open is fenced. Much longer than `fence_after`: a
    /// live client may lose its record of open blocks, and gets it back when it reaches the cluster.
    pub fence_absent_after: Duration,
    /// Gap between two checks from which on the observer cannot conclude that heartbeats were missing.
    pub max_check_gap: Duration,
}

impl Default for OwnershipTiming {
    fn default() -> Self {
        OwnershipTiming {
            heartbeat: Duration::from_secs(1),
            check: Duration::from_millis(500),
            cut_off_after: Duration::from_secs(4),
            fence_after: Duration::from_secs(5),
            fence_absent_after: Duration::from_secs(30),
            max_check_gap: Duration::from_secs(2),
        }
    }
}

/// State of a target's ownership of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipState {
    /// The target serves the blocks.
    Serves,
    /// The target has no path to the blocks, or is too slow: another target may be about to take them.
    CutOff,
    /// Another target has taken the blocks. Permanent.
    Fenced,
}

/// State of the target that owns the blocks.
#[derive(Clone, Debug)]
pub struct BlockOwner {
    timing: OwnershipTiming,
    /// Start of the newest confirmed heartbeat.
    confirmed: Instant,
    /// Time from which the owner serves again after it was cut off. A standby target may have checked before the latest
    /// heartbeat arrived and receive the result only now. A result that takes longer than `max_check_gap` is ignored.
    resumes: Instant,
    /// True while the owner was cut off and has not checked its ownership since then. A confirmed heartbeat does
    /// not prove ownership: the cluster takes one from any target that reaches it, and a fence may have ended.
    is_in_doubt: bool,
    is_fenced: bool,
}

impl BlockOwner {
    /// Owner of blocks that an operation started at `begun` has taken.
    #[must_use]
    pub fn new(timing: OwnershipTiming, begun: Instant) -> BlockOwner {
        BlockOwner {
            timing,
            confirmed: begun,
            resumes: Instant::default(),
            is_in_doubt: false,
            is_fenced: false,
        }
    }

    /// Records that the heartbeat started at `begun` was confirmed at `now`. True if the owner has to check its
    /// ownership ([`BlockOwner::ownership_checked`]) before it serves anything.
    #[must_use]
    pub fn confirmed(&mut self, begun: Instant, now: Instant) -> bool {
        self.is_in_doubt |= now.since(self.confirmed) >= self.timing.cut_off_after;
        self.confirmed = self.confirmed.max(begun);
        self.is_in_doubt
    }

    /// Records the result of a check that started after the newest heartbeat: whether the blocks are still its own.
    pub fn ownership_checked(&mut self, is_ours: bool, now: Instant) {
        if !is_ours {
            self.fenced();
        } else if core::mem::take(&mut self.is_in_doubt) {
            self.resumes = now + self.timing.max_check_gap;
        }
    }

    /// Records that the cluster refuses this target's commands.
    pub fn fenced(&mut self) {
        self.is_fenced = true;
    }

    /// State of the ownership at `now`.
    #[must_use]
    pub fn state(&self, now: Instant) -> OwnershipState {
        let is_confirmed = now.since(self.confirmed) < self.timing.cut_off_after;
        match is_confirmed && !self.is_in_doubt && now >= self.resumes {
            _ if self.is_fenced => OwnershipState::Fenced,
            true => OwnershipState::Serves,
            false => OwnershipState::CutOff,
        }
    }
}

/// Result of an ownership check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedOwner {
    /// No target has the blocks.
    NoOwner,
    /// The newest heartbeat of the owner; numbers of different owners differ.
    Heartbeat(u64),
    /// An owner without heartbeats that has the blocks open: it has just started, or is not a target.
    OpenWithoutHeartbeat,
    /// An owner without heartbeats that does not have the blocks open either; numbers of different owners differ.
    Absent(u64),
}

/// Decision after a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceVerdict {
    /// Another target owns the blocks.
    Wait,
    /// The blocks can be taken.
    Free,
    /// The owner is gone, and has to be fenced before the blocks can be taken.
    Fence,
}

/// State of a standby target.
#[derive(Clone, Debug)]
pub struct OwnershipObserver {
    timing: OwnershipTiming,
    /// The result that suggests a dead owner, and since when checks have shown nothing else.
    silence: Option<(ObservedOwner, Instant)>,
    /// Time of the last check's result.
    answered: Instant,
}

impl OwnershipObserver {
    /// An observer without any check.
    #[must_use]
    pub fn new(timing: OwnershipTiming) -> OwnershipObserver {
        OwnershipObserver { timing, silence: None, answered: Instant::default() }
    }

    /// Records that a check started at `begun` returned `seen` at `answered`.
    pub fn check_completed(
        &mut self,
        begun: Instant,
        answered: Instant,
        seen: ObservedOwner,
    ) -> FenceVerdict {
        let was_blind = answered.since(self.answered) > self.timing.max_check_gap;
        self.answered = answered;
        let patience = match seen {
            ObservedOwner::Heartbeat(_) => self.timing.fence_after,
            ObservedOwner::Absent(_) => self.timing.fence_absent_after,
            ObservedOwner::NoOwner | ObservedOwner::OpenWithoutHeartbeat => {
                self.silence = None;
                return if seen == ObservedOwner::NoOwner {
                    FenceVerdict::Free
                } else {
                    FenceVerdict::Wait
                };
            }
        };
        match self.silence {
            Some((known, since)) if known == seen && !was_blind => {
                match begun.since(since) >= patience {
                    true => FenceVerdict::Fence,
                    false => FenceVerdict::Wait,
                }
            }
            _ => {
                self.silence = Some((seen, answered));
                FenceVerdict::Wait
            }
        }
    }
}

/// Owner of blocks as checks show it, and whether an operator has ordered to seize them. The order is bound to the
/// owner that was seen last: the next owner may be this very target.
#[derive(Clone, Debug)]
pub struct BlockClaim<T> {
    owner: Option<T>,
    wanted: Option<T>,
}

impl<T: Clone + PartialEq> BlockClaim<T> {
    /// A claim on blocks of `owner`, or of no target.
    #[must_use]
    pub fn new(owner: Option<T>) -> Self {
        BlockClaim { owner, wanted: None }
    }

    /// True if the last check found no owner.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.owner.is_none()
    }

    /// Orders to seize the blocks from their owner.
    pub fn seize(&mut self) {
        self.wanted.clone_from(&self.owner);
    }

    /// Records the owner that a check has found. True if the blocks are to be seized from it.
    pub fn owner_checked(&mut self, owner: Option<&T>) -> bool {
        self.owner = owner.cloned();
        self.wanted.take_if(|wanted| Some(&*wanted) != owner);
        self.wanted.is_some()
    }

    /// Records that the owner is fenced: the blocks can be taken.
    pub fn fenced(&mut self) {
        (self.owner, self.wanted) = (None, None);
    }
}
