//! Size and kind of a store's blocks.

use crate::{ByteRange, Op};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;

/// What a host has to know about a namespace's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size as a power of two: 9 or 12.
    pub lba_shift: u8,
    /// Capacity.
    pub blocks: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Writes may be lost with the power until flushed.
    pub volatile_cache: bool,
}

impl Geometry {
    /// Block size in bytes.
    #[must_use]
    pub fn lba_bytes(&self) -> u32 {
        1 << self.lba_shift
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks << self.lba_shift
    }

    /// Whether the range lies inside the capacity.
    #[must_use]
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes())
    }

    /// Whether a store of that geometry may and can do `op` at all.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn check(&self, op: &Op, buffer: Option<&Buffer>) -> Result<(), Status> {
        if op.changes() && self.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        let ByteRange { offset, len } = match *op {
            Op::Read { offset } | Op::Write { offset, .. } | Op::Compare { offset } => {
                ByteRange { offset, len: buffer.ok_or(Status::INTERNAL_ERROR)?.len() as u64 }
            }
            Op::WriteZeroes { range, .. }
            | Op::ReadInPlace { range }
            | Op::Discard { range }
            | Op::LookUp { range } => range,
            Op::Flush => return Ok(()),
        };
        if self.holds(offset, len) { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE.dnr()) }
    }
}
