//! Requests that wait for old writes: those that a lost controller may still execute, and those that change some of the
//! same blocks ([`crate::old_commands`]).
//!
//! A request is held no longer than the controller-loss timeout; then it fails. If it was sent, its blocks stay closed.

use super::{RequestEntry, RequestProperties, RequestTable, UNKNOWN};
use crate::overdue::CommandTimer;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

impl<R: RequestProperties> RequestTable<R> {
    /// Returns the held requests in excess of the slots: they reduce the room for others.
    #[inline]
    pub(super) fn crowd_held(&self) -> u32 {
        self.held.len().saturating_sub(self.slots.len()) as u32
    }

    /// True if an old write may be executed after the request.
    #[cold]
    pub(super) fn is_blocked(&self, request: &R) -> bool {
        request.has_effect() && self.guard.blocks(&request.changes())
    }

    /// Holds the request.
    #[cold]
    pub(super) fn hold(&mut self, now: Instant, mut entry: RequestEntry<R>) {
        if self.held.is_empty() {
            self.ended_so_far = self.guard.ended_so_far();
        }
        entry.command_timer = CommandTimer::new(now);
        self.held.push_back(entry);
    }

    /// Returns when the first held request fails or may continue.
    pub(super) fn held_until(&self) -> Option<Instant> {
        let first = self.held.front()?;
        if self.guard.ended_so_far() != self.ended_so_far {
            return Some(Instant::default());
        }
        self.rules.patience().map(|patience| first.command_timer.since() + patience)
    }

    /// Releases held requests that may continue, and fails those that waited too long.
    #[cold]
    pub(super) fn review_held(&mut self, now: Instant) {
        if self.guard.ended_so_far() != self.ended_so_far {
            self.release();
        }
        while self.held_until().is_some_and(|until| until <= now)
            && let Some(entry) = self.held.pop_front()
        {
            let status = if entry.is_unknown() { UNKNOWN } else { Status::HOST_PATH_ERROR };
            self.fail_one(entry, status);
        }
    }

    /// Releases requests after a controller has ended: its commands cannot be executed any more. Requests that may not
    /// be retried fail, see [`RequestTable::next_failed`]; [`RequestTable::resume`] submits the others.
    pub fn release(&mut self) {
        self.ended_so_far = self.guard.ended_so_far();
        for entry in std::mem::take(&mut self.waiting) {
            if let Some(entry) = self.settle(entry) {
                self.waiting.push_back(entry);
            }
        }
        for entry in std::mem::take(&mut self.held) {
            match self.settle(entry) {
                Some(entry) if self.is_blocked(&entry.request) => self.held.push_back(entry),
                Some(entry) => self.waiting.push_back(entry),
                None => {}
            }
        }
        self.sort_waiting();
    }

    /// Clears a request's risk if its controller has ended. `None`: it has failed.
    fn settle(&mut self, mut entry: RequestEntry<R>) -> Option<RequestEntry<R>> {
        if entry.at_risk.is_none_or(|serial| self.guard.may_execute(serial)) {
            return Some(entry);
        }
        if entry.is_unknown() {
            self.fail_one(entry, UNKNOWN);
            return None;
        }
        entry.at_risk = None;
        Some(entry)
    }

    /// Returns the number of waiting requests that a lost controller may still execute.
    #[must_use]
    pub fn at_risk(&self) -> usize {
        let all = self.waiting.iter().chain(&self.held);
        all.filter(|entry| entry.at_risk.is_some()).count()
    }

    /// Returns the number of requests that wait for old writes only.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }
}
