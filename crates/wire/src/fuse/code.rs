//! Operations and flags.

pub const ROOT_ID: u64 = 1;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u32);

#[allow(missing_docs, reason = "each is explained by its name in linux/fuse.h")]
impl Opcode {
    pub const LOOKUP: Opcode = Opcode(1);
    pub const FORGET: Opcode = Opcode(2);
    pub const GETATTR: Opcode = Opcode(3);
    pub const SETATTR: Opcode = Opcode(4);
    pub const OPEN: Opcode = Opcode(14);
    pub const READ: Opcode = Opcode(15);
    pub const WRITE: Opcode = Opcode(16);
    pub const STATFS: Opcode = Opcode(17);
    pub const RELEASE: Opcode = Opcode(18);
    pub const FSYNC: Opcode = Opcode(20);
    pub const FLUSH: Opcode = Opcode(25);
    pub const INIT: Opcode = Opcode(26);
    pub const OPENDIR: Opcode = Opcode(27);
    pub const READDIR: Opcode = Opcode(28);
    pub const RELEASEDIR: Opcode = Opcode(29);
    pub const FSYNCDIR: Opcode = Opcode(30);
    pub const INTERRUPT: Opcode = Opcode(36);
    pub const DESTROY: Opcode = Opcode(38);
    pub const BATCH_FORGET: Opcode = Opcode(42);
    pub const FALLOCATE: Opcode = Opcode(43);
    pub const LSEEK: Opcode = Opcode(46);

    /// True if the kernel expects no reply.
    #[must_use]
    pub fn has_no_answer(self) -> bool {
        [Opcode::FORGET, Opcode::BATCH_FORGET, Opcode::INTERRUPT].contains(&self)
    }
}

/// Capabilities of both sides; those from bit 32 on travel in `flags2`.
pub mod init_flag {
    /// Several reads of a file at a time.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Asynchronous direct I/O is passed on asynchronously.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Several lookups in a directory at a time.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// After an abort, reading the device returns `ECONNABORTED`.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` is valid.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// `flags2` is valid.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Requests may arrive over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Treatment of an opened file.
pub mod open_flag {
    /// Bypasses the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Closing needs no Flush.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Several direct writes at a time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Attributes that a Setattr sets.
pub mod setattr_valid {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
}

/// `FALLOC_FL_*`.
pub mod fallocate_mode {
    pub const KEEP_SIZE: u32 = 1;
    /// The range reads as zeroes and needs no storage.
    pub const PUNCH_HOLE: u32 = 2;
    /// The range reads as zeroes.
    pub const ZERO_RANGE: u32 = 16;
}

/// `SEEK_*` that reach a file system.
pub mod seek {
    pub const DATA: u32 = 3;
    pub const HOLE: u32 = 4;
}
