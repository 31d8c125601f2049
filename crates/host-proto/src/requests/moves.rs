//! Moves of requests from one path to another.
//!
//! A lost controller may still execute a command: the target or the network may have it. If the request were retried
//! and completed on another path, its late execution could overwrite newer data. So a request that has an effect stays
//! until the command cannot be executed any more ([`RequestTable::release`]). Its own path reconnects under the same
//! condition. Requests that were never sent move, and so do those that change nothing.

use super::{RequestEntry, RequestProperties, RequestTable, RestingRequest};
use crate::paths::PathMeter;
use roadtrain_proto::time::Instant;

/// Request that moves from one path to another.
#[derive(Debug)]
pub struct MovedRequest<R> {
    entry: RequestEntry<R>,
    /// Earliest retry on its old path.
    until: Option<Instant>,
}

impl<R: RequestProperties> MovedRequest<R> {
    pub(super) fn later(entry: RequestEntry<R>, until: Instant) -> Self {
        MovedRequest { entry, until: Some(until) }
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &R {
        &self.entry.request
    }
}

impl<R: RequestProperties> RequestTable<R> {
    /// Enables measurement, as there are other paths. Requests that the path cannot carry go to
    /// [`RequestTable::take_diverted`].
    pub fn share(&mut self) {
        self.meter = Some(Box::default());
    }

    /// Returns the latency measurement of the path, if there are other paths.
    #[inline]
    #[must_use]
    pub fn meter(&self) -> Option<&PathMeter> {
        self.meter.as_deref()
    }

    /// Takes all requests without a slot that may move, in order.
    pub fn take_free(&mut self) -> Vec<MovedRequest<R>> {
        let (held, free) =
            std::mem::take(&mut self.waiting).into_iter().partition(|e| e.at_risk.is_some());
        self.waiting = held;
        let free: std::collections::VecDeque<RequestEntry<R>> = free;
        let resting = std::mem::take(&mut self.resting).into_iter();
        let resting =
            resting.map(|RestingRequest { until, entry }| MovedRequest::later(entry, until));
        let free = free.into_iter().map(|entry| MovedRequest { entry, until: None });
        free.chain(resting).chain(std::mem::take(&mut self.diverted)).collect()
    }

    /// True if [`RequestTable::take_diverted`] has requests.
    #[inline]
    #[must_use]
    pub fn has_diverted(&self) -> bool {
        !self.diverted.is_empty()
    }

    /// Takes the requests whose status says that this path cannot serve them now.
    pub fn take_diverted(&mut self) -> Vec<MovedRequest<R>> {
        std::mem::take(&mut self.diverted)
    }

    /// Takes a request from another path; it is submitted as soon as there is a slot.
    pub fn adopt(&mut self, moved: MovedRequest<R>) {
        let entry = moved.entry;
        let place =
            |other: &RequestEntry<R>| (other.since, other.number) <= (entry.since, entry.number);
        let at = self.waiting.partition_point(place);
        self.waiting.insert(at, entry);
        if self.failing {
            self.fail_waiting();
        }
    }

    /// Takes a request back, as there is no other path; it is retried at its time.
    pub fn keep(&mut self, moved: MovedRequest<R>) {
        match moved.until {
            Some(until) => self.resting.push(RestingRequest { until, entry: moved.entry }),
            None => self.adopt(moved),
        }
        if self.failing {
            self.fail_waiting();
        }
    }
}
