//! Requests over io_uring: the command of an entry, and the memory shared with the kernel.

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `cmd_op` of an entry.
pub mod ring_op {
    /// Registers memory, and fetches a request.
    pub const REGISTER: u32 = 1;
    /// Returns a reply, and fetches the next request.
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// Contents of an entry's command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FuseRingCommand {
    pub flags: u64,
    /// Request of the reply.
    pub commit_id: u64,
    /// Queue: there is one for each possible CPU.
    pub qid: u16,
    pub padding: [u8; 6],
}

/// Description of the payload of a request or a reply.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RingEntry {
    pub flags: u64,
    /// Value for [`FuseRingCommand::commit_id`] of the reply.
    pub commit_id: u64,
    /// Bytes in the payload's memory: the request's, then the reply's.
    pub payload_size: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// First of an entry's two memory areas; the other one is the payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingHeader {
    /// Header of the request, then of the reply.
    pub in_out: [u8; 128],
    /// First argument of the request.
    pub op_in: [u8; 128],
    /// Description of the payload.
    pub entry: RingEntry,
}

impl RingHeader {
    /// Offset of the first argument.
    pub const OP_IN_OFFSET: usize = offset_of!(RingHeader, op_in);
    /// Offset of the payload's description.
    pub const ENTRY_OFFSET: usize = offset_of!(RingHeader, entry);
}

const _: () = {
    assert!(size_of::<FuseRingCommand>() == 24 && size_of::<RingEntry>() == 32);
    assert!(size_of::<RingHeader>() == 288);
};
