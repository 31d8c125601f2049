//! What a store can be asked to do.

/// A range of a store, in bytes; both are multiples of its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

impl ByteRange {
    /// Whether they have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &ByteRange) -> bool {
        let ends_behind = |a: &ByteRange, b: &ByteRange| a.offset.saturating_add(a.len) > b.offset;
        ends_behind(self, other) && ends_behind(other, self) && self.len > 0 && other.len > 0
    }
}

/// What to do. Offsets and lengths are in bytes and multiples of the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer.
    Read {
        /// From here on.
        offset: u64,
    },
    /// Write all of the buffer.
    Write {
        /// Where to begin.
        offset: u64,
        /// Done when it is on stable storage (Force Unit Access).
        fua: bool,
    },
    /// A read whose data its caller takes from the store's own memory when this is answered.
    ReadInPlace {
        /// What will be read.
        range: ByteRange,
    },
    /// Fill the buffer with a list of what is allocated of the range, as Get LBA Status returns it
    /// ([`LbaStatusList`](roadtrain_wire::lba_status::LbaStatusList)). Only stores that can tell are asked.
    LookUp {
        /// What is looked at.
        range: ByteRange,
    },
    /// Bring everything that was written to stable storage.
    Flush,
    /// The contents are not needed any more. Advice: where it cannot be followed, it succeeds.
    Discard {
        /// What is not needed.
        range: ByteRange,
    },
    /// Read as zeroes from now on.
    WriteZeroes {
        /// What to zero.
        range: ByteRange,
        /// Give the space back if possible.
        deallocate: bool,
    },
    /// Fail with Compare Failure unless the contents are those of the buffer.
    Compare {
        /// Where to begin.
        offset: u64,
    },
}

impl Op {
    /// Whether it changes contents.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::WriteZeroes { .. } | Op::Discard { .. })
    }

    /// What it changes, if anything, when it comes with a buffer of `buffer_bytes`.
    #[must_use]
    pub fn changed(&self, buffer_bytes: u64) -> Option<ByteRange> {
        match *self {
            Op::Write { offset, .. } => Some(ByteRange { offset, len: buffer_bytes }),
            Op::WriteZeroes { range, .. } | Op::Discard { range } => Some(range),
            _ => None,
        }
    }
}
