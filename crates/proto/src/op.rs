//! Operations of a store.

/// A range of a store, in bytes; both are multiples of its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl ByteRange {
    /// True if the two ranges have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &ByteRange) -> bool {
        let ends_behind = |a: &ByteRange, b: &ByteRange| a.offset.saturating_add(a.len) > b.offset;
        ends_behind(self, other) && ends_behind(other, self) && self.len > 0 && other.len > 0
    }
}

/// An operation. Offsets and lengths are in bytes and multiples of the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    /// Fill the buffer.
    Read {
        /// First byte.
        offset: u64,
    },
    /// Write all of the buffer.
    Write {
        /// First byte.
        offset: u64,
        /// True if the write completes only on stable storage (Force Unit Access).
        fua: bool,
    },
    /// A read whose data the caller takes from the store's own memory when the operation completes.
    ReadInPlace {
        /// Range to read.
        range: ByteRange,
    },
    /// Fill the buffer with the allocation state of the range, as Get LBA Status returns it
    /// ([`LbaStatusList`](roadtrain_wire::lba_status::LbaStatusList)). Only for stores that support it.
    QueryAllocation {
        /// Range to query.
        range: ByteRange,
    },
    /// Bring all written data to stable storage.
    Flush,
    /// Deallocate the range. Advice: a store that cannot follow it reports success.
    Discard {
        /// Range to deallocate.
        range: ByteRange,
    },
    /// Write zeroes.
    WriteZeroes {
        /// Range to zero.
        range: ByteRange,
        /// True if the store should give the space back.
        deallocate: bool,
    },
    /// Fail with Compare Failure unless the contents equal the buffer.
    Compare {
        /// First byte.
        offset: u64,
    },
    /// Compare the contents with the first half of the buffer, and if they match write its second half, atomically.
    /// Only for stores that execute it themselves.
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// True if the write completes only on stable storage (Force Unit Access).
        fua: bool,
    },
    /// Mark the range: it fails to be read until it is written. Only for stores that keep such marks themselves.
    WriteUncorrectable {
        /// Range to mark.
        range: ByteRange,
    },
}

impl StoreOperation {
    /// True if the operation changes contents.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(
            self,
            StoreOperation::Write { .. }
                | StoreOperation::WriteZeroes { .. }
                | StoreOperation::Discard { .. }
                | StoreOperation::CompareAndWrite { .. }
                | StoreOperation::WriteUncorrectable { .. }
        )
    }

    /// Returns the range that the operation changes, if any, when it writes `buffer_bytes` of a buffer.
    #[must_use]
    pub fn changed(&self, buffer_bytes: u64) -> Option<ByteRange> {
        match *self {
            StoreOperation::Write { offset, .. }
            | StoreOperation::CompareAndWrite { offset, .. } => {
                Some(ByteRange { offset, len: buffer_bytes })
            }
            StoreOperation::WriteZeroes { range, .. }
            | StoreOperation::Discard { range }
            | StoreOperation::WriteUncorrectable { range } => Some(range),
            _ => None,
        }
    }
}
