//! What a backend can be asked to do.

use roadtrain_wire::status::Status;

use super::Backend;
use crate::buffer::{Buffer, Pool};

/// A range of a backend, in bytes; both are multiples of its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

/// What to do. Offsets and lengths are in bytes and multiples of the block size.
#[derive(Debug)]
pub enum IoOp {
    /// Fill `buffer` from `offset`.
    Read {
        /// Where to begin.
        offset: u64,
        /// As long as what to read.
        buffer: Buffer,
    },
    /// Write all of `buffer` to `offset`.
    Write {
        /// Where to begin.
        offset: u64,
        /// What to write.
        buffer: Buffer,
        /// Done when it is on stable storage (Force Unit Access).
        fua: bool,
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
    /// Fail with Compare Failure unless the contents are `expected`.
    Compare {
        /// Where to begin.
        offset: u64,
        /// What should be there.
        expected: Buffer,
        /// Room to read into, at least one block; may be shorter than `expected`. Not needed where
        /// [`Backend::is_immediate`].
        scratch: Option<Buffer>,
    },
}

impl IoOp {
    /// Gives the buffers back to their pool.
    pub fn give_buffers(self, pool: &mut Pool) {
        match self {
            IoOp::Read { buffer, .. } | IoOp::Write { buffer, .. } => pool.give(buffer),
            IoOp::Compare { expected, scratch, .. } => {
                pool.give(expected);
                scratch.into_iter().for_each(|buffer| pool.give(buffer));
            }
            IoOp::Flush | IoOp::Discard { .. } | IoOp::WriteZeroes { .. } => {}
        }
    }

    /// Whether the backend may and can do this at all.
    pub(super) fn check(&self, backend: &Backend) -> Result<(), Status> {
        let writes = !matches!(self, IoOp::Read { .. } | IoOp::Flush | IoOp::Compare { .. });
        if writes && backend.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        match self {
            IoOp::Read { offset, buffer } | IoOp::Write { offset, buffer, .. } => {
                backend.check_range(*offset, buffer.len() as u64)
            }
            IoOp::Compare { offset, expected, scratch } => {
                let has_room = scratch.as_ref().is_some_and(|s| !s.is_empty());
                if !has_room && !backend.is_immediate() {
                    return Err(Status::INTERNAL_ERROR);
                }
                backend.check_range(*offset, expected.len() as u64)
            }
            IoOp::WriteZeroes { range, .. } => backend.check_range(range.offset, range.len),
            IoOp::Discard { ranges } => {
                ranges.iter().try_for_each(|r| backend.check_range(r.offset, r.len))
            }
            IoOp::Flush => Ok(()),
        }
    }

    /// Where it begins, and what people call it.
    pub(super) fn describe(&self) -> (u64, &'static str) {
        match self {
            IoOp::Read { offset, .. } => (*offset, "read"),
            IoOp::Write { offset, .. } => (*offset, "write"),
            IoOp::Flush => (0, "flush"),
            IoOp::Discard { ranges } => (ranges.first().map_or(0, |r| r.offset), "discard"),
            IoOp::WriteZeroes { range, .. } => (range.offset, "write zeroes"),
            IoOp::Compare { offset, .. } => (*offset, "compare"),
        }
    }
}
