//! Queries of block allocation from the front: the control thread of a path queries its target.

use super::{HostReactor, HostReactorReport};
use crate::api::{Allocation, AllocationQuery};
use std::collections::VecDeque;

/// Results that the front has not taken.
#[derive(Default)]
pub(super) struct AllocationResults(VecDeque<(u64, Option<Allocation>)>);

impl AllocationResults {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn answered(&mut self, key: u64, found: Option<Allocation>) {
        self.0.push_back((key, found));
    }

    pub(super) fn next(&mut self) -> Option<(u64, Option<Allocation>)> {
        self.0.pop_front()
    }
}

impl HostReactor {
    /// Queries over a path that reaches the namespace. False if there is no such path now.
    pub(super) fn query_allocation(&mut self, query: AllocationQuery, key: u64) -> bool {
        let path = self.path_to(query.nsid);
        let (Some(path), Some(&lane)) = (path, self.numbers.first()) else { return false };
        self.reports[path].send(HostReactorReport::QueryAllocation { by: (lane, key), query });
        true
    }
}
