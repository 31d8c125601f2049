//! What a reactor looks after as time passes.

use super::Reactor;
use crate::reactor::List;
use crate::target::lane::{Lane, LaneError};
use roadtrain_proto::time::Instant;
use std::time::Duration;

/// Longest time between two looks at keep-alive timers.
const KEEP_ALIVE_CHECK: Duration = Duration::from_millis(500);
/// Looks for buffers held too long within the time that they may be held.
const TRANSFER_CHECKS: u32 = 8;
/// Shortest time between two of them.
const TRANSFER_CHECK_MIN: Duration = Duration::from_millis(1);

impl Reactor {
    /// The first of what the reactor has to wake up for by itself.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let keep_alive = self.listens().then(|| self.next_check()).flatten();
        let newcomer = self.newcomers.front().map(|&(deadline, ..)| deadline);
        let transfers = (self.lanes.count(List::Starved) > 0).then_some(self.transfers_at);
        let due = self.shared.tasks.next_due();
        let check = self.frames.check_at();
        let doorbells = self.lanes.earliest(List::Timed, Lane::deadline);
        let others = [keep_alive, newcomer, transfers, due, self.trim_at, check];
        let others = others.into_iter().flatten();
        others.chain(doorbells).min()
    }

    /// When keep-alive timers, and listeners that pause, are to be looked at.
    fn next_check(&self) -> Option<Instant> {
        let deadline = self.shared.control.deadline().map(|d| d.max(self.keep_alive_at));
        if self.listeners.paused.is_empty() { deadline } else { Some(self.keep_alive_at) }
    }

    /// Ends connections that have not connected a queue in time: nobody else would ever end them.
    pub(super) fn check_newcomers(&mut self) {
        while let Some(&(deadline, index, generation)) = self.newcomers.front()
            && deadline <= self.shared.now
        {
            self.newcomers.pop_front();
            if self.lanes.generation(index) == generation
                && self.lanes.get(index).is_some_and(|lane| lane.session.is_newcomer())
            {
                self.use_lane(index, |_, _| -> Result<(), _> {
                    Err(LaneError::Ended("no queue connected in time"))
                });
            }
        }
    }

    /// Looks after keep-alive timers, without asking the control plane every turn.
    pub(super) fn check_keep_alive(&mut self) {
        if self.shared.now >= self.keep_alive_at {
            let (control, now) = (&self.shared.control, self.shared.now);
            if control.deadline().is_some_and(|deadline| deadline <= now) {
                control.expire(now);
            }
            let next = now + KEEP_ALIVE_CHECK;
            self.keep_alive_at = control.deadline().map_or(next, |d| d.min(next));
            for listener in std::mem::take(&mut self.listeners.paused) {
                self.accept(listener);
            }
        }
    }

    /// Gives the memory of buffers back that were not used for long.
    pub(super) fn check_pool(&mut self) {
        if self.shared.pool.was_used() {
            self.trim_at = Some(self.shared.now + self.buffer_idle);
        } else if self.trim_at.is_some_and(|at| at <= self.shared.now) {
            self.trim_at = None;
            self.shared.pool.trim();
        }
    }

    /// While lanes wait for buffers: ends others whose peers keep theirs by doing nothing.
    pub(super) fn check_transfers(&mut self) {
        if self.lanes.count(List::Starved) == 0 || self.shared.now < self.transfers_at {
            return;
        }
        let limit = self.transfer_timeout;
        self.transfers_at = self.shared.now + (limit / TRANSFER_CHECKS).max(TRANSFER_CHECK_MIN);
        for index in self.lanes.indices() {
            if self.lanes.noted(List::Starved).any(|starved| starved != index) {
                self.use_lane(index, |lane, shared| lane.check_transfers(shared.now, limit));
            }
        }
    }
}
