//! What a store can be asked to do.

use crate::Geometry;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;

/// A range of a store, in bytes; both are multiples of its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

/// What to do. Offsets and lengths are in bytes and multiples of the block size.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A read whose data its caller takes from the store's own memory when this is answered: see
    /// [`InPlace::is_announced`](crate::InPlace::is_announced).
    ReadInPlace {
        /// What will be read.
        range: ByteRange,
    },
    /// Bring everything that was written to stable storage.
    Flush,
    /// The contents are not needed any more. Advice: where it cannot be followed, it succeeds.
    Discard {
        /// What is not needed.
        ranges: Box<[ByteRange]>,
    },
    /// Read as zeroes from now on.
    WriteZeroes {
        /// What to zero.
        range: ByteRange,
        /// Done when it is on stable storage.
        fua: bool,
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
    /// Whether a store of that geometry may and can do this at all.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn check(&self, geometry: &Geometry, buffer: Option<&Buffer>) -> Result<(), Status> {
        let holds = |offset, len| match geometry.holds(offset, len) {
            true => Ok(()),
            false => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        };
        if self.changes() && geometry.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        match self {
            Op::Read { offset } | Op::Write { offset, .. } | Op::Compare { offset } => {
                let buffer = buffer.ok_or(Status::INTERNAL_ERROR)?;
                holds(*offset, buffer.len() as u64)
            }
            Op::WriteZeroes { range, .. } | Op::ReadInPlace { range } => {
                holds(range.offset, range.len)
            }
            Op::Discard { ranges } => ranges.iter().try_for_each(|r| holds(r.offset, r.len)),
            Op::Flush => Ok(()),
        }
    }

    /// Whether it changes contents.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::WriteZeroes { .. } | Op::Discard { .. })
    }

    /// Where it begins, and what people call it.
    pub(crate) fn describe(&self) -> (u64, &'static str) {
        match self {
            Op::Read { offset } => (*offset, "read"),
            Op::ReadInPlace { range } => (range.offset, "read"),
            Op::Write { offset, .. } => (*offset, "write"),
            Op::Flush => (0, "flush"),
            Op::Discard { ranges } => (ranges.first().map_or(0, |r| r.offset), "discard"),
            Op::WriteZeroes { range, .. } => (range.offset, "write zeroes"),
            Op::Compare { offset } => (*offset, "compare"),
        }
    }
}
