//! Size and kind of a store's blocks.

use crate::{ByteRange, StoreOperation};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;

/// A namespace's block properties for hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreGeometry {
    /// Block size as a power of two: 9 or 12.
    pub lba_shift: u8,
    /// Capacity in blocks.
    pub blocks: u64,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if a power failure may lose writes that were not flushed.
    pub volatile_cache: bool,
}

impl StoreGeometry {
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

    /// True if the range lies inside the capacity.
    #[must_use]
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes())
    }

    /// Checks that a store of this geometry can carry out `op`.
    ///
    /// # Errors
    /// Returns the status for the host.
    pub fn check(&self, op: &StoreOperation, buffer: Option<&Buffer>) -> Result<(), Status> {
        if op.changes() && self.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        let ByteRange { offset, len } = match *op {
            StoreOperation::Read { offset }
            | StoreOperation::Write { offset, .. }
            | StoreOperation::Compare { offset } => {
                ByteRange { offset, len: buffer.ok_or(Status::INTERNAL_ERROR)?.len() as u64 }
            }
            StoreOperation::WriteZeroes { range, .. }
            | StoreOperation::ReadInPlace { range }
            | StoreOperation::Discard { range }
            | StoreOperation::QueryAllocation { range } => range,
            StoreOperation::Flush => return Ok(()),
            // A store that executes these checks them itself.
            StoreOperation::CompareAndWrite { .. } | StoreOperation::WriteUncorrectable { .. } => {
                return Err(Status::INVALID_OPCODE.dnr());
            }
        };
        if self.holds(offset, len) { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE.dnr()) }
    }
}
