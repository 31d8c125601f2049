//! Queries of block allocation. They run on the path when it has no other work. Each gets one result, also when the
//! path is lost or the association ends.

use crate::allocation::AllocationQuery;
use std::collections::VecDeque;

/// Origin of a query: lane, and the query's number there.
pub type QueryOrigin = (usize, u64);

/// Pending queries.
#[derive(Debug, Default)]
pub(super) struct AllocationQueries {
    waiting: VecDeque<(QueryOrigin, AllocationQuery)>,
    /// Query in flight, and its namespace.
    in_flight: Option<(QueryOrigin, u32)>,
}

impl AllocationQueries {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, by: QueryOrigin, query: AllocationQuery) {
        self.waiting.push_back((by, query));
    }

    /// Takes the next waiting query.
    pub(super) fn next(&mut self) -> Option<(QueryOrigin, AllocationQuery)> {
        self.waiting.pop_front()
    }

    /// Records the query that is sent.
    pub(super) fn begin(&mut self, by: QueryOrigin, nsid: u32) {
        self.in_flight = Some((by, nsid));
    }

    /// Takes the query in flight, with its namespace.
    pub(super) fn end(&mut self) -> Option<(QueryOrigin, u32)> {
        self.in_flight.take()
    }

    /// Takes all waiting queries.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = QueryOrigin> {
        self.waiting.drain(..).map(|(by, _)| by)
    }
}
