//! A front's requests.

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskOp {
    Read,
    Write,
    /// Puts all acknowledged writes on stable storage; has no range.
    Flush,
    /// Marks the bytes as not needed. A hint: blocks that are not wholly covered stay.
    Discard,
    /// Sets the bytes to zero.
    WriteZeroes {
        /// True if the blocks may be deallocated.
        deallocate: bool,
    },
}

impl DiskOp {
    /// True if the operation moves bytes between the front and the disk.
    pub(crate) fn has_data(self) -> bool {
        matches!(self, DiskOp::Read | DiskOp::Write)
    }

    /// True if the operation changes the disk.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, DiskOp::Read | DiskOp::Flush)
    }
}

/// A front's request for any range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskRequest {
    pub(crate) op: DiskOp,
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Number of bytes; the front cuts a longer range.
    pub(crate) length: u32,
    /// True if it is answered once on stable storage (Write and WriteZeroes).
    pub(crate) fua: bool,
}
