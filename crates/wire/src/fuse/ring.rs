//! Requests over io_uring: what an entry's command says, and the memory that the kernel shares.

use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `cmd_op` of an entry.
pub mod ring_op {
    /// Here is memory: bring a request.
    pub const REGISTER: u32 = 1;
    /// Here is the answer: bring the next request.
    pub const COMMIT_AND_FETCH: u32 = 2;
}

/// The command's own part of an entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RingCommand {
    pub flags: u64,
    /// Which request is answered.
    pub commit_id: u64,
    /// The queue: there is one for each possible CPU.
    pub qid: u16,
    pub padding: [u8; 6],
}

/// How a payload and its answer are told.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RingEntry {
    pub flags: u64,
    /// To be repeated in [`RingCommand::commit_id`].
    pub commit_id: u64,
    /// Octets in the payload's memory: the request's, then the answer's.
    pub payload_size: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// The first of an entry's two pieces of memory; the other is the payload's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingHeader {
    /// The request's header, then the answer's.
    pub in_out: [u8; 128],
    /// The request's first argument.
    pub op_in: [u8; 128],
    /// About the payload.
    pub entry: RingEntry,
}

impl RingHeader {
    /// Where the first argument begins.
    pub const OP_IN_OFFSET: usize = offset_of!(RingHeader, op_in);
    /// Where it is told about the payload.
    pub const ENTRY_OFFSET: usize = offset_of!(RingHeader, entry);
}

const _: () = {
    assert!(size_of::<RingCommand>() == 24 && size_of::<RingEntry>() == 32);
    assert!(size_of::<RingHeader>() == 288);
};
