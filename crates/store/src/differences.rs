//! Differences between two states of a disk: ranges that a backup of the newer one needs.

mod files;

pub use files::file_differences;

/// Part of a list of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferencesQuery {
    /// Offset of the first byte in question.
    pub offset: u64,
    /// Most ranges of the reply.
    pub ranges_max: usize,
}

/// A range whose bytes may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferentRange {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True if the newer state reads as zeroes there.
    pub is_zero: bool,
}

/// Differences of two states. What is in no range is equal in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskDifferences {
    /// Size of the older state in bytes. What lies beyond counts as zeroes.
    pub from_bytes: u64,
    /// Size of the newer state in bytes; no range lies beyond.
    pub to_bytes: u64,
    /// Disjoint ranges in their order.
    pub ranges: Vec<DifferentRange>,
    /// Offset from which the next query continues; `None` at the end.
    pub next_offset: Option<u64>,
}

/// Differences that are being gathered, in order of their offsets.
#[derive(Debug)]
pub(crate) struct DifferenceList {
    ranges_max: usize,
    found: DiskDifferences,
}

impl DifferenceList {
    pub(crate) fn new(query: DifferencesQuery, from_bytes: u64, to_bytes: u64) -> DifferenceList {
        let found = DiskDifferences { from_bytes, to_bytes, ..DiskDifferences::default() };
        DifferenceList { ranges_max: query.ranges_max.max(1), found }
    }

    /// Adds a range. False if the list is full: it continues with that range.
    pub(crate) fn add(&mut self, offset: u64, bytes: u64, is_zero: bool) -> bool {
        if bytes == 0 {
            return true;
        }
        let is_full = self.found.ranges.len() == self.ranges_max;
        match self.found.ranges.last_mut() {
            Some(last) if last.is_zero == is_zero && last.offset + last.bytes == offset => {
                last.bytes += bytes;
            }
            _ if is_full => {
                self.found.next_offset = Some(offset);
                return false;
            }
            _ => self.found.ranges.push(DifferentRange { offset, bytes, is_zero }),
        }
        true
    }

    pub(crate) fn end(self) -> DiskDifferences {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_says_where_it_continues() {
        let query = DifferencesQuery { offset: 0, ranges_max: 2 };
        let mut list = DifferenceList::new(query, 100, 200);
        assert!(list.add(0, 10, false) && list.add(10, 5, false), "neighbours are one range");
        assert!(list.add(15, 5, true) && list.add(20, 0, false));
        assert!(list.add(20, 4, true), "a full list still takes a neighbour");
        assert!(!list.add(30, 5, true));
        let ranges = vec![
            DifferentRange { offset: 0, bytes: 15, is_zero: false },
            DifferentRange { offset: 15, bytes: 9, is_zero: true },
        ];
        let expected =
            DiskDifferences { from_bytes: 100, to_bytes: 200, ranges, next_offset: Some(30) };
        assert_eq!(list.end(), expected);
    }
}
