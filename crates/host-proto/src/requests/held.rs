//! Requests that wait for old writes: those that were sent to a controller which may still execute them, and those that
//! change some of the same blocks ([`crate::old_commands`]).
//!
//! A request is held for no longer than a lost controller is waited for; then it fails. Its blocks stay closed all the
//! same if it was sent.

use super::{Addressed, Entry, Requests, UNKNOWN};
use crate::overdue::Watch;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

impl<R: Addressed> Requests<R> {
    /// Requests that are held beyond as many as there are slots: those take room from others.
    #[inline]
    pub(super) fn crowd_held(&self) -> u32 {
        self.held.len().saturating_sub(self.slots.len()) as u32
    }

    /// Whether an old write may be executed after the request.
    #[cold]
    pub(super) fn is_blocked(&self, request: &R) -> bool {
        request.has_effect() && self.guard.blocks(&request.changes())
    }

    /// Has the request wait.
    #[cold]
    pub(super) fn hold(&mut self, now: Instant, mut entry: Entry<R>) {
        if self.held.is_empty() {
            self.ended_so_far = self.guard.ended_so_far();
        }
        entry.watch = Watch::new(now);
        self.held.push_back(entry);
    }

    /// When a request that is held fails, or may go on.
    pub(super) fn held_until(&self) -> Option<Instant> {
        let first = self.held.front()?;
        if self.guard.ended_so_far() != self.ended_so_far {
            return Some(Instant::default());
        }
        self.rules.patience().map(|patience| first.watch.since() + patience)
    }

    /// What is held may go on, or has waited for too long.
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

    /// A controller has ended: what was sent to it cannot be executed any more. What may not be tried again fails, see
    /// [`Requests::next_failed`]; [`Requests::resume`] submits the rest.
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

    /// Notes of a request whether it may still be executed because it was sent before. `None`: it has failed.
    fn settle(&mut self, mut entry: Entry<R>) -> Option<Entry<R>> {
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

    /// Requests that wait here because what was sent of them may still be executed.
    #[must_use]
    pub fn at_risk(&self) -> usize {
        let all = self.waiting.iter().chain(&self.held);
        all.filter(|entry| entry.at_risk.is_some()).count()
    }

    /// Requests that old writes are in the way of, though there is a connection.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }
}
