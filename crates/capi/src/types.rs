//! Types of the header that functions take and fill.

use std::os::raw::c_char;

/// Version of this interface; grows with each addition.
pub const ROADTRAIN_API_VERSION: u32 = 1;

/// Reads the data from the namespace.
pub const ROADTRAIN_READ: u32 = 0;
/// Writes the data.
pub const ROADTRAIN_WRITE: u32 = 1;
/// Puts all acknowledged writes on stable storage.
pub const ROADTRAIN_FLUSH: u32 = 2;
/// Marks the blocks as not needed.
pub const ROADTRAIN_DISCARD: u32 = 3;
/// Sets the blocks to zero.
pub const ROADTRAIN_WRITE_ZEROES: u32 = 4;

/// Flag of a request: answered when on stable storage (FUA).
pub const ROADTRAIN_FUA: u32 = 1;
/// Flag of a request: sent at once, without waiting for others.
pub const ROADTRAIN_URGENT: u32 = 2;

/// Flag of a disk: header digests.
pub const ROADTRAIN_HDGST: u32 = 1;
/// Flag of a disk: data digests.
pub const ROADTRAIN_DDGST: u32 = 2;

/// Options of a disk. Zeroes and NULL stand for the defaults, except in required fields.
#[repr(C)]
pub struct roadtrain_options {
    /// sizeof(struct roadtrain_options): the library takes the fields within it.
    pub size: usize,
    /// Required: address of the target, as "192.0.2.7:4420" or "[2001:db8::7]:4420"; several paths separated by commas.
    pub addresses: *const c_char,
    /// Required: the subsystem's NQN.
    pub subsystem_nqn: *const c_char,
    /// NQN of this host; NULL: the one in /etc/nvme/hostnqn, or one made of the machine's id.
    pub host_nqn: *const c_char,
    /// Cores for the library's reactors, as "0,2"; NULL: one reactor, not pinned.
    pub cores: *const c_char,
    /// Namespace; 0: the first.
    pub nsid: u32,
    /// I/O queues, each with a connection; 0: one for each core, or one.
    pub lanes: u32,
    /// Entries of each; 0: 128.
    pub queue_entries: u32,
    /// ROADTRAIN_HDGST, ROADTRAIN_DDGST.
    pub flags: u32,
    /// Keep-alive timeout in ms; 0: 5000.
    pub keep_alive_ms: u32,
    /// Time in ms after which requests fail while the controller is unreachable; 0: 600000; UINT32_MAX: never.
    pub controller_loss_ms: u32,
}

/// Properties of a disk. It may grow: read them again.
#[repr(C)]
pub struct roadtrain_info {
    /// sizeof(struct roadtrain_info), set by the caller.
    pub size: usize,
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Most bytes of one read or write.
    pub transfer_bytes_max: u32,
    /// NSID.
    pub nsid: u32,
    /// 1 if writes are refused.
    pub read_only: u32,
}

/// A request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct roadtrain_request {
    /// ROADTRAIN_READ and so on.
    pub op: u32,
    /// ROADTRAIN_FUA, ROADTRAIN_URGENT.
    pub flags: u32,
    /// Offset of the first byte: a multiple of block_bytes. 0 for a flush.
    pub offset: u64,
    /// Length in bytes: a multiple of block_bytes. 0 for a flush.
    pub length: u64,
    /// Data to write, or buffer for a read: length bytes. NULL for other requests.
    pub data: *mut u8,
    /// Token for the caller's use.
    pub token: u64,
}

/// Completion of a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct roadtrain_completion {
    /// Token of the request.
    pub token: u64,
    /// 0, or a negative number of errno.h.
    pub result: i32,
    /// NVMe status: type in bits 10:8, code in bits 7:0, Do Not Retry in bit 14.
    pub status: u32,
    /// Time from submission to completion, in ns.
    pub latency_ns: u64,
}
