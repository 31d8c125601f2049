//! Queries of block allocation. They run on the path when it has no other work. Each gets one result, also when the
//! path is lost or the association ends.

use crate::allocation::AllocationQuery;
use std::collections::VecDeque;

/// Origin of a query: lane, and the query's number there.
pub type AskedBy = (usize, u64);

/// Pending queries.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    waiting: VecDeque<(AskedBy, AllocationQuery)>,
    /// Query in flight, and its namespace.
    under_way: Option<(AskedBy, u32)>,
}

impl LookUps {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, by: AskedBy, query: AllocationQuery) {
        self.waiting.push_back((by, query));
    }

    /// Takes the next waiting query.
    pub(super) fn next(&mut self) -> Option<(AskedBy, AllocationQuery)> {
        self.waiting.pop_front()
    }

    /// Records the query that is sent.
    pub(super) fn begin(&mut self, by: AskedBy, nsid: u32) {
        self.under_way = Some((by, nsid));
    }

    /// Takes the query in flight, with its namespace.
    pub(super) fn end(&mut self) -> Option<(AskedBy, u32)> {
        self.under_way.take()
    }

    /// Takes all waiting queries.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = AskedBy> {
        self.waiting.drain(..).map(|(by, _)| by)
    }
}
