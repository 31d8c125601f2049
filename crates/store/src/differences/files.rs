//! Differences of two files, by the extents that both share.
//!
//! XFS and btrfs report where a file's bytes lie. Bytes of two files that lie in the same shared extent at the same
//! time are equal. On other file systems, and for extents without an exact location, allocated bytes may differ.

use super::{DifferenceList, DifferencesQuery, DiskDifferences};
use crate::extents::{ExtentContent, LocatedExtent, located_extents};
use rustix::fs::{SeekFrom, fstatfs, seek};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// File systems with exact locations of shared extents: XFS, btrfs.
const EXACT: [u64; 2] = [0x5846_5342, 0x9123_683E];

/// Returns the ranges in which `to` may differ from `from`, each with its size in bytes. All writes to them that had
/// ended before the call are included.
///
/// # Errors
/// The file system fails.
pub fn file_differences(
    (from, from_bytes): (&File, u64),
    (to, to_bytes): (&File, u64),
    query: DifferencesQuery,
) -> io::Result<DiskDifferences> {
    let is_exact =
        is_exact(from)? && is_exact(to)? && from.metadata()?.dev() == to.metadata()?.dev();
    let mut list = DifferenceList::new(query, from_bytes, to_bytes);
    let mut at = query.offset;
    let mut old = FileMap::new(from, at, from_bytes.min(to_bytes), to_bytes);
    let mut new = FileMap::new(to, at, to_bytes, to_bytes);
    while at < to_bytes {
        let (a, b) = (old.segment(at)?, new.segment(at)?);
        let stop = a.end().min(b.end()).min(to_bytes);
        if a.may_differ(&b, is_exact, at)
            && !list.add(at, stop - at, b.content == ExtentContent::Zero)
        {
            break;
        }
        at = stop;
    }
    Ok(list.end())
}

fn is_exact(file: &File) -> io::Result<bool> {
    let kind = fstatfs(file)?.f_type;
    Ok(EXACT.contains(&u64::from(kind as u32)))
}

impl LocatedExtent {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// True if the byte at `at`, which lies in both, may differ.
    fn may_differ(&self, other: &LocatedExtent, is_exact: bool, at: u64) -> bool {
        match (self.content, other.content) {
            (ExtentContent::Zero, ExtentContent::Zero) => false,
            (ExtentContent::Shared(a), ExtentContent::Shared(b)) if is_exact => {
                a.wrapping_add(at - self.offset) != b.wrapping_add(at - other.offset)
            }
            _ => true,
        }
    }
}

/// Extents and holes of a file, read in pieces.
struct FileMap<'a> {
    file: &'a File,
    /// Extents from the present one on.
    extents: VecDeque<LocatedExtent>,
    /// Offset up to which extents are read.
    read_to: u64,
    /// Offset from which on the file counts as zeroes.
    bytes: u64,
    /// End of the whole map.
    end: u64,
    /// False if the file system reports no extents.
    has_extents: bool,
}

impl FileMap<'_> {
    fn new(file: &File, from: u64, bytes: u64, end: u64) -> FileMap<'_> {
        FileMap { file, extents: VecDeque::new(), read_to: from, bytes, end, has_extents: true }
    }

    /// Returns the extent or hole with the byte at `at`, which grows from call to call.
    fn segment(&mut self, at: u64) -> io::Result<LocatedExtent> {
        loop {
            while self.extents.front().is_some_and(|extent| extent.end() <= at) {
                self.extents.pop_front();
            }
            if let Some(&extent) = self.extents.front() {
                return Ok(match extent.offset > at {
                    true => hole(at, extent.offset),
                    false => extent,
                });
            }
            if self.read_to >= self.bytes {
                return Ok(hole(at, self.end.max(at + 1)));
            }
            self.read(at.max(self.read_to))?;
        }
    }

    /// Reads the next extents, from `start` on.
    fn read(&mut self, start: u64) -> io::Result<()> {
        if self.has_extents {
            match located_extents(self.file, start) {
                Ok(found) => {
                    self.read_to =
                        found.last().map_or(self.bytes, LocatedExtent::end).max(start + 1);
                    self.add(found);
                    return Ok(());
                }
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    self.has_extents = false;
                }
                Err(error) => return Err(error),
            }
        }
        let Some(data) = seek_to(self.file, SeekFrom::Data(start))? else {
            self.read_to = self.bytes;
            return Ok(());
        };
        let end = seek_to(self.file, SeekFrom::Hole(data))?.unwrap_or(self.bytes).max(data + 1);
        self.read_to = end;
        self.add(vec![LocatedExtent {
            offset: data,
            bytes: end - data,
            content: ExtentContent::Data,
        }]);
        Ok(())
    }

    /// Adds extents, as far as the file counts.
    fn add(&mut self, found: Vec<LocatedExtent>) {
        let inside = found.into_iter().filter(|extent| extent.offset < self.bytes);
        let bytes = self.bytes;
        self.extents.extend(inside.map(|extent| LocatedExtent {
            bytes: extent.bytes.min(bytes - extent.offset),
            ..extent
        }));
    }
}

fn hole(from: u64, to: u64) -> LocatedExtent {
    LocatedExtent { offset: from, bytes: to - from, content: ExtentContent::Zero }
}

/// Returns the next offset of that kind; `None` without one.
fn seek_to(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match seek(file, to) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DifferentRange;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    const BLOCK: u64 = 4096;
    const WHOLE: DifferencesQuery = DifferencesQuery { offset: 0, ranges_max: usize::MAX };

    fn extent(offset: u64, content: ExtentContent) -> LocatedExtent {
        LocatedExtent { offset, bytes: 100, content }
    }

    #[test]
    fn only_the_same_place_of_a_shared_extent_is_equal() {
        use ExtentContent::{Data, Shared, Zero};
        let differ = |a, b, is_exact| extent(0, a).may_differ(&extent(10, b), is_exact, 50);
        assert!(!differ(Zero, Zero, false) && !differ(Zero, Zero, true));
        assert!(!differ(Shared(1000), Shared(1010), true), "the same byte of the device");
        assert!(differ(Shared(1000), Shared(1010), false), "no exact locations");
        assert!(differ(Shared(1000), Shared(1000), true), "another byte of the device");
        for (a, b) in
            [(Data, Data), (Zero, Data), (Data, Zero), (Zero, Shared(0)), (Shared(0), Data)]
        {
            assert!(differ(a, b, true), "{a:?} {b:?}");
        }
    }

    fn file(blocks: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(blocks.len() as u64 * BLOCK).unwrap();
        for (at, &value) in blocks.iter().enumerate().filter(|(_, value)| **value > 0) {
            file.write_all_at(&[value; BLOCK as usize], at as u64 * BLOCK).unwrap();
        }
        file
    }

    fn covers(ranges: &[DifferentRange], offset: u64) -> Option<bool> {
        let found = ranges.iter().find(|r| r.offset <= offset && offset < r.offset + r.bytes);
        found.map(|range| range.is_zero)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whatever the file system reports: no changed block is left out, and what is called zero is zero.
        #[test]
        fn no_difference_is_left_out(
            old in prop::collection::vec(0u8..3, 1..40), new in prop::collection::vec(0u8..3, 1..40),
            ranges_max in 1usize..4,
        ) {
            let (a, b) = (file(&old), file(&new));
            let bytes = |blocks: &[u8]| blocks.len() as u64 * BLOCK;
            let sides = ((&a, bytes(&old)), (&b, bytes(&new)));
            let whole = file_differences(sides.0, sides.1, WHOLE).unwrap();
            prop_assert_eq!((whole.from_bytes, whole.to_bytes), (sides.0.1, sides.1.1));
            prop_assert_eq!(whole.next_offset, None);
            for (at, &value) in new.iter().enumerate() {
                match covers(&whole.ranges, at as u64 * BLOCK) {
                    None => prop_assert_eq!(value, old.get(at).copied().unwrap_or(0), "block {}", at),
                    Some(is_zero) => prop_assert!(!is_zero || value == 0, "block {}", at),
                }
            }
            // In pieces it is the same.
            let (mut parts, mut offset) = (Vec::new(), Some(0));
            while let Some(from) = offset {
                let query = DifferencesQuery { offset: from, ranges_max };
                let part = file_differences(sides.0, sides.1, query).unwrap();
                prop_assert!(part.ranges.len() <= ranges_max);
                prop_assert!(part.next_offset.is_none_or(|next| next > from));
                parts.extend(part.ranges);
                offset = part.next_offset;
            }
            prop_assert_eq!(parts, whole.ranges);
        }
    }

    #[test]
    fn files_of_memory_have_no_extents_and_are_compared_by_their_holes() {
        let memory = || {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            File::from(rustix::fs::memfd_create("test", flags).unwrap())
        };
        let (a, b) = (memory(), memory());
        for file in [&a, &b] {
            file.set_len(16 * BLOCK).unwrap();
            file.write_all_at(&[7; BLOCK as usize], 4 * BLOCK).unwrap();
        }
        b.write_all_at(&[8; BLOCK as usize], 9 * BLOCK).unwrap();
        let found = file_differences((&a, 16 * BLOCK), (&b, 16 * BLOCK), WHOLE).unwrap();
        let range = |block| DifferentRange { offset: block * BLOCK, bytes: BLOCK, is_zero: false };
        assert_eq!(found.ranges, [range(4), range(9)], "what is allocated may differ");
    }
}
