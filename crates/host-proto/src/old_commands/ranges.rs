//! Sets of blocks, by namespace.

use std::collections::BTreeMap;

/// Maximum number of ranges of a namespace; with more, all of its blocks count.
pub const RANGES_MAX: usize = 4096;

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    pub nsid: u32,
    /// First logical block.
    pub first: u64,
    /// Number of logical blocks; [`BlockRange::ALL`]: up to the end.
    pub count: u64,
}

impl BlockRange {
    /// Count of an unbounded range.
    pub const ALL: u64 = u64::MAX;

    /// Returns the range of all blocks of a namespace.
    #[must_use]
    pub fn all(nsid: u32) -> Self {
        BlockRange { nsid, first: 0, count: BlockRange::ALL }
    }

    /// Returns the block after the last one.
    fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }
}

/// Set of blocks.
#[derive(Debug, Default)]
pub(super) struct BlockRangeSet {
    /// End of each disjoint range by its first block, by NSID.
    by_nsid: BTreeMap<u32, BTreeMap<u64, u64>>,
}

impl BlockRangeSet {
    pub(super) fn is_empty(&self) -> bool {
        self.by_nsid.is_empty()
    }

    /// Adds a range, and merges it with those that it touches.
    pub(super) fn add(&mut self, range: BlockRange) {
        let (mut first, mut end) = (range.first, range.end());
        if first >= end {
            return;
        }
        let ranges = self.by_nsid.entry(range.nsid).or_default();
        while let Some((&at, &until)) = ranges.range(..=end).next_back()
            && until >= first
        {
            ranges.remove(&at);
            (first, end) = (first.min(at), end.max(until));
        }
        ranges.insert(first, end);
        if ranges.len() > RANGES_MAX {
            *ranges = BTreeMap::from([(0, u64::MAX)]);
        }
    }

    pub(super) fn overlap(&self, range: &BlockRange) -> bool {
        let Some(ranges) = self.by_nsid.get(&range.nsid) else { return false };
        let before_end = ranges.range(..range.end()).next_back();
        range.count > 0 && before_end.is_some_and(|(_, &until)| until > range.first)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = BlockRange> {
        self.by_nsid.iter().flat_map(|(&nsid, ranges)| {
            ranges.iter().map(move |(&first, &end)| {
                let count = if end == u64::MAX { BlockRange::ALL } else { end - first };
                BlockRange { nsid, first, count }
            })
        })
    }
}
