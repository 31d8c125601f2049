//! Requests that leave a path for another one.
//!
//! What was sent over a connection that is lost may still be executed: the target may have it, or the network. If it
//! were tried on another path and answered there, its late execution could destroy what was written since. So a
//! request that has an effect stays until nothing can be executed any more ([`Requests::release`]), or until its own
//! path is connected again, which has the same condition. What was never sent moves, and what changes nothing.

use super::{Addressed, Entry, Requests, Resting};
use crate::paths::Meter;
use roadtrain_proto::time::Instant;

/// A request on its way from one path to another.
#[derive(Debug)]
pub struct Moved<R> {
    entry: Entry<R>,
    /// It is not tried again before then, where it was.
    until: Option<Instant>,
}

impl<R: Addressed> Moved<R> {
    pub(super) fn later(entry: Entry<R>, until: Instant) -> Self {
        Moved { entry, until: Some(until) }
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &R {
        &self.entry.request
    }
}

impl<R: Addressed> Requests<R> {
    /// There are other paths: it is measured how fast this one is, and what the path cannot carry is
    /// [`Requests::take_diverted`].
    pub fn share(&mut self) {
        self.meter = Some(Box::default());
    }

    /// How fast the path is, where there are others.
    #[inline]
    #[must_use]
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_deref()
    }

    /// All requests that have no slot here and may go elsewhere, in their order.
    pub fn take_free(&mut self) -> Vec<Moved<R>> {
        let (held, free) =
            std::mem::take(&mut self.waiting).into_iter().partition(|e| e.at_risk.is_some());
        self.waiting = held;
        let free: std::collections::VecDeque<Entry<R>> = free;
        let resting = std::mem::take(&mut self.resting).into_iter();
        let resting = resting.map(|Resting { until, entry }| Moved::later(entry, until));
        let free = free.into_iter().map(|entry| Moved { entry, until: None });
        free.chain(resting).chain(std::mem::take(&mut self.diverted)).collect()
    }

    /// Whether there is something for [`Requests::take_diverted`].
    #[inline]
    #[must_use]
    pub fn has_diverted(&self) -> bool {
        !self.diverted.is_empty()
    }

    /// Requests that the path's controller has answered by saying that it cannot be reached on this path now.
    pub fn take_diverted(&mut self) -> Vec<Moved<R>> {
        std::mem::take(&mut self.diverted)
    }

    /// A request that another path did not carry: it is tried here as soon as there is a slot.
    pub fn adopt(&mut self, moved: Moved<R>) {
        let entry = moved.entry;
        let place = |other: &Entry<R>| (other.since, other.number) <= (entry.since, entry.number);
        let at = self.waiting.partition_point(place);
        self.waiting.insert(at, entry);
        if self.failing {
            self.fail_waiting();
        }
    }

    /// A request for which there is no other path: it is tried here again, at its time.
    pub fn keep(&mut self, moved: Moved<R>) {
        match moved.until {
            Some(until) => self.resting.push(Resting { until, entry: moved.entry }),
            None => self.adopt(moved),
        }
        if self.failing {
            self.fail_waiting();
        }
    }
}
