//! Block allocation of a range, in as many queries of the controller as needed.

use roadtrain_host_engine::{Allocation, AllocationQuery, RANGES_MAX};
use roadtrain_store::{ByteRange, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::lba_status::{LbaStatusList, condition};
use std::ops::Range;

/// Maximum queries for an operation; the blocks behind them count as allocated.
const QUERIES_MAX: u32 = 64;

/// Query of the allocation of a range, for an operation of a store.
pub(crate) struct AllocationRun {
    pub(crate) token: StoreToken,
    buffer: Buffer,
    nsid: u32,
    /// First block that is unknown.
    at: u64,
    end: u64,
    allocated: Vec<Range<u64>>,
    queries: u32,
}

impl AllocationRun {
    pub(crate) fn new(
        token: StoreToken,
        buffer: Buffer,
        (nsid, range, lba_shift): (u32, ByteRange, u8),
    ) -> AllocationRun {
        let (at, end) =
            (range.offset >> lba_shift, range.offset.saturating_add(range.len) >> lba_shift);
        AllocationRun { token, buffer, nsid, at, end, allocated: Vec::new(), queries: 0 }
    }

    /// Returns the next query; `None` once everything is known.
    pub(crate) fn query(&mut self) -> Option<AllocationQuery> {
        if self.at >= self.end {
            return None;
        }
        self.queries += 1;
        let (slba, blocks) = (self.at, self.end - self.at);
        Some(AllocationQuery { nsid: self.nsid, slba, blocks, ranges: RANGES_MAX })
    }

    /// Takes the result of a query; `None`: the state is unknown.
    pub(crate) fn add(&mut self, found: Option<Allocation>) {
        let known = found.filter(|found| {
            found.known.start == self.at && found.known.end > self.at && self.queries < QUERIES_MAX
        });
        match known {
            Some(found) => {
                self.at = found.known.end.min(self.end);
                self.allocated.extend(found.allocated);
            }
            None => {
                self.allocated.push(self.at..self.end);
                self.at = self.end;
            }
        }
    }

    /// Returns the buffer with the list.
    pub(crate) fn finish(self) -> (StoreToken, Buffer) {
        let AllocationRun { token, mut buffer, allocated, .. } = self;
        let mut list = LbaStatusList::new(&mut buffer);
        let has_all = allocated.iter().all(|range| list.add(range.start, range.end - range.start));
        list.end(if has_all { condition::COMPLETE } else { condition::NO_ROOM });
        (token, buffer)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which have one")]
mod tests {
    use super::*;
    use roadtrain_wire::lba_status::{list_bytes, parse_list};

    /// Runs an operation on blocks 0 to 100 with these results; returns the ranges and the condition.
    fn run(results: Vec<Option<Allocation>>, descriptors: usize) -> (Vec<(u64, u64)>, u8) {
        let range = ByteRange { offset: 0, len: 100 << 9 };
        let buffer = Buffer::alloc(list_bytes(descriptors));
        let mut run = AllocationRun::new(StoreToken::new(1, 1), buffer, (1, range, 9));
        let mut results = results.into_iter();
        while run.query().is_some() {
            run.add(results.next().expect("no query too many"));
        }
        assert!(results.next().is_none(), "a query too few");
        let (_, buffer) = run.finish();
        let (head, descriptors) = parse_list(&buffer).unwrap();
        let ranges =
            descriptors.iter().map(|d| (d.dslba.get(), u64::from(d.nlb.get()) + 1)).collect();
        (ranges, head.condition)
    }

    #[test]
    fn unknown_blocks_count_as_allocated() {
        let found = |known, allocated: &[Range<u64>]| {
            Some(Allocation { known, allocated: allocated.to_vec() })
        };
        let complete = condition::COMPLETE;
        assert_eq!(run(vec![found(0..100, &[10..20])], 4), (vec![(10, 10)], complete));
        let halves = vec![found(0..50, &[10..20]), found(50..100, &[50..60])];
        assert_eq!(run(halves, 4), (vec![(10, 10), (50, 10)], complete));
        assert_eq!(run(vec![None], 4), (vec![(0, 100)], complete));
        assert_eq!(run(vec![found(0..50, &[]), None], 4), (vec![(50, 50)], complete));
        assert_eq!(run(vec![found(0..0, &[])], 4), (vec![(0, 100)], complete), "no progress");
        let many = vec![found(0..100, &[1..2, 3..4])];
        assert_eq!(run(many, 1), (vec![(1, 1)], condition::NO_ROOM));
    }
}
