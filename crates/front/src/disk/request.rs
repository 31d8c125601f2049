//! What a front asks for.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskOp {
    Read,
    Write,
    /// Put everything acknowledged on stable storage; has no range.
    Flush,
    /// Tell that the octets are not needed. A hint: blocks that are not wholly covered stay.
    Discard,
    /// Set the octets to zero.
    WriteZeroes {
        /// The blocks may be deallocated.
        deallocate: bool,
    },
}

impl DiskOp {
    /// Whether it moves octets between the front and the disk.
    pub(crate) fn has_data(self) -> bool {
        matches!(self, DiskOp::Read | DiskOp::Write)
    }

    /// Whether it changes the disk.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, DiskOp::Read | DiskOp::Flush)
    }
}

/// A front's request for any range of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskRequest {
    pub(crate) op: DiskOp,
    /// First octet.
    pub(crate) offset: u64,
    /// Number of octets; a longer range must be cut.
    pub(crate) length: u32,
    /// Answered when on stable storage (Write and WriteZeroes).
    pub(crate) fua: bool,
}
