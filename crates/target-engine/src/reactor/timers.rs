//! Timers of a reactor.

use super::lanes::TargetLanes;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::LaneList;
use std::time::Duration;

/// Longest interval between two checks of keep-alive timers: half of their granularity.
const KEEP_ALIVE_CHECK: Duration = Duration::from_millis(50);
/// Shortest interval between two attempts of paused listeners.
const ACCEPT_CHECK: Duration = Duration::from_millis(500);

pub(super) struct Timers {
    keep_alive_at: Instant,
    accepts_at: Instant,
    pub(super) buffer_idle: Duration,
    /// Time at which the memory of the pool is returned, unless the pool is used before.
    trim_at: Option<Instant>,
}

impl Timers {
    pub(super) fn new(buffer_idle: Duration) -> Self {
        let [keep_alive_at, accepts_at] = [Instant::default(); 2];
        Timers { keep_alive_at, accepts_at, buffer_idle, trim_at: None }
    }

    /// Returns the earliest deadline that concerns all lanes.
    pub(super) fn deadline(&self, lanes: &TargetLanes) -> Option<Instant> {
        let rules = lanes.rules.deadline(lanes.table.count(LaneList::WaitingForBuffers) > 0);
        let due = lanes.shared.tasks.next_due();
        [rules, due, self.trim_at].into_iter().flatten().min()
    }

    /// Returns the time of the next check of keep-alive timers and paused listeners.
    pub(super) fn keep_alive_at(&self, lanes: &TargetLanes, pauses: bool) -> Option<Instant> {
        let deadline = lanes.shared.control.deadline().map(|d| d.max(self.keep_alive_at));
        let accepts = pauses.then(|| self.accepts_at.max(self.keep_alive_at));
        deadline.into_iter().chain(accepts).min()
    }

    /// Checks keep-alive timers; the control plane not in every turn. Returns true if paused listeners may retry.
    pub(super) fn check_keep_alive(&mut self, lanes: &TargetLanes) -> bool {
        let (control, now) = (&lanes.shared.control, lanes.shared.now);
        if now < self.keep_alive_at {
            return false;
        }
        if control.deadline().is_some_and(|deadline| deadline <= now) {
            control.expire(now);
        }
        let next = now + KEEP_ALIVE_CHECK;
        self.keep_alive_at = control.deadline().map_or(next, |d| d.min(next));
        let accepts = self.accepts_at <= now;
        if accepts {
            self.accepts_at = now + ACCEPT_CHECK;
        }
        accepts
    }

    /// Returns the memory of idle buffers to the system.
    pub(super) fn check_pool(&mut self, lanes: &mut TargetLanes) {
        let (pool, now) = (&mut lanes.shared.pool, lanes.shared.now);
        if pool.was_used() {
            self.trim_at = Some(now + self.buffer_idle);
        } else if self.trim_at.is_some_and(|at| at <= now) {
            self.trim_at = None;
            pool.trim();
        }
    }
}
