//! A set of bytes of a store, as a list of ranges.

use roadtrain_proto::op::ByteRange;

/// Ranges of a store that Write Uncorrectable may leave marked, at most: hosts must not make the target hold any
/// number.
pub const MARKS_MAX: usize = 1024;
/// Ranges of a store that writes may leave marked, at most. A write into the middle of a range splits it, and must not
/// fail because Write Uncorrectable has used up its limit.
pub const SPLIT_MAX: usize = 2 * MARKS_MAX;

/// Start and end of a range.
type ByteExtent = (u64, u64);

/// Sorted ranges without a common byte. Adjacent ranges are merged.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ByteExtents(Vec<ByteExtent>);

impl ByteExtents {
    /// Returns the number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// True if there are no ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> {
        self.0.iter().map(|&(start, end)| ByteRange { offset: start, len: end - start })
    }

    /// True if the set contains a byte of the range.
    #[must_use]
    pub fn touch(&self, range: &ByteRange) -> bool {
        let (start, end) = ends(range);
        let first = self.0.partition_point(|one| one.1 <= start);
        start < end && self.0.get(first).is_some_and(|one| one.0 < end)
    }

    /// Adds all bytes of the range.
    pub fn insert(&mut self, range: &ByteRange) {
        let (mut start, mut end) = ends(range);
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|one| one.1 < start);
        let last = self.0.partition_point(|one| one.0 <= end);
        if let (Some(one), true) = (self.0.get(first), first < last) {
            start = start.min(one.0);
            end = end.max(self.0[last - 1].1);
        }
        self.0.splice(first..last, [(start, end)]);
    }

    /// Removes all bytes of the range.
    pub fn remove(&mut self, range: &ByteRange) {
        let (start, end) = ends(range);
        let first = self.0.partition_point(|one| one.1 <= start);
        let last = self.0.partition_point(|one| one.0 < end);
        if start >= end || first >= last {
            return;
        }
        let before = (self.0[first].0, start);
        let behind = (end, self.0[last - 1].1);
        let left = [before, behind].into_iter().filter(|one| one.0 < one.1);
        self.0.splice(first..last, left);
    }

    /// Merges all ranges into one, from the first byte to the last.
    pub(super) fn join(&mut self) {
        if let (Some(&(start, _)), Some(&(_, end))) = (self.0.first(), self.0.last()) {
            self.0 = vec![(start, end)];
        }
    }
}

fn ends(range: &ByteRange) -> ByteExtent {
    (range.offset, range.offset.saturating_add(range.len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 96;

    fn range() -> impl Strategy<Value = ByteRange> {
        (0..BYTES as u64, 0..24u64).prop_map(|(offset, len)| {
            let len = len.min(BYTES as u64 - offset);
            ByteRange { offset, len }
        })
    }

    proptest! {
        #[test]
        fn extents_are_what_a_bitmap_says(steps in prop::collection::vec((any::<bool>(), range()), 1..60)) {
            let (mut extents, mut bitmap) = (ByteExtents::default(), [false; BYTES]);
            for (adds, range) in steps {
                let bytes = range.offset as usize..(range.offset + range.len) as usize;
                prop_assert_eq!(extents.touch(&range), bitmap[bytes.clone()].contains(&true));
                match adds {
                    true => extents.insert(&range),
                    false => extents.remove(&range),
                }
                bitmap[bytes].fill(adds);
                let has = |at: usize| extents.iter().any(|one| {
                    (one.offset..one.offset + one.len).contains(&(at as u64))
                });
                let is_it = (0..BYTES).all(|at| has(at) == bitmap[at]);
                prop_assert!(is_it, "{extents:?} and {bitmap:?}");
                let runs = bitmap.chunk_by(|one, other| one == other).filter(|run| run[0]).count();
                prop_assert_eq!(extents.count(), runs);
            }
        }
    }

    #[test]
    fn the_end_of_all_bytes_is_no_special_place() {
        let last = ByteRange { offset: u64::MAX - 1, len: 5 };
        let mut extents = ByteExtents::default();
        extents.insert(&last);
        assert!(extents.touch(&last) && extents.count() == 1);
        extents.remove(&ByteRange { offset: 0, len: u64::MAX });
        assert!(extents.is_empty());
    }
}
