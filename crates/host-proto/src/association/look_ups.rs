//! Queries which blocks are allocated. They are answered over the path when nothing else is to be done there, each once:
//! also when the path is lost, or all comes to an end.

use crate::allocation::AllocationQuery;
use std::collections::VecDeque;

/// Whose query it is: a lane's, and the number that it has there.
pub type AskedBy = (usize, u64);

/// Queries that are not answered.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    waiting: VecDeque<(AskedBy, AllocationQuery)>,
    /// The one at the target, and its namespace.
    under_way: Option<(AskedBy, u32)>,
}

impl LookUps {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, by: AskedBy, query: AllocationQuery) {
        self.waiting.push_back((by, query));
    }

    /// Takes the next one that waits.
    pub(super) fn next(&mut self) -> Option<(AskedBy, AllocationQuery)> {
        self.waiting.pop_front()
    }

    /// A query of that namespace is sent.
    pub(super) fn begin(&mut self, by: AskedBy, nsid: u32) {
        self.under_way = Some((by, nsid));
    }

    /// Takes the one at the target, with its namespace.
    pub(super) fn end(&mut self) -> Option<(AskedBy, u32)> {
        self.under_way.take()
    }

    /// Takes all that wait.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = AskedBy> {
        self.waiting.drain(..).map(|(by, _)| by)
    }
}
