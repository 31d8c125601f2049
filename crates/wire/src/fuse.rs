//! FUSE, the kernel's protocol to a file system in user space (`linux/fuse.h`, version 7): the subset for a directory
//! of files that are disks.
//!
//! The peer is this machine's kernel, so fields have the machine's byte order.

mod code;
mod init;
mod message;
mod ring;

pub use code::{Opcode, ROOT_ID, fallocate_mode, init_flag, open_flag, seek, setattr_valid};
pub use init::{INIT_BYTES_MIN, InitIn, InitOut, MAJOR, MINOR};
pub use message::{
    Attr, AttrOut, Dirent, EntryOut, FallocateIn, InHeader, LseekIn, LseekOut, OpenIn, OpenOut,
    OutHeader, ReadIn, SetattrIn, StatfsOut, WriteIn, WriteOut,
};
pub use ring::{FuseRingCommand, RingEntry, RingHeader, ring_op};

/// Minimum bytes of a reader's buffer, besides the payload of a Write.
pub const READ_BYTES_MIN: usize = 8192;
