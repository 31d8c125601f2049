//! Headers and arguments of requests and replies.

use super::Opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Header of every request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InHeader {
    /// Bytes of the whole request.
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    /// The file or directory.
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    /// Length of extensions in units of 8 bytes.
    pub total_extlen: u16,
    pub padding: u16,
}

impl InHeader {
    /// Returns the operation.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }
}

/// Header of every reply.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OutHeader {
    /// Bytes of the whole reply.
    pub len: u32,
    /// 0, or a negative errno.
    pub error: i32,
    pub unique: u64,
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "as in struct stat")]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

/// Reply to Lookup.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EntryOut {
    pub nodeid: u64,
    /// Differs for each use of a nodeid.
    pub generation: u64,
    /// Seconds for which the name may be cached.
    pub entry_valid: u64,
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds part of `entry_valid`.
    pub entry_valid_nsec: u32,
    /// Nanoseconds part of `attr_valid`.
    pub attr_valid_nsec: u32,
    pub attr: Attr,
}

/// Reply to Getattr and Setattr.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AttrOut {
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// Nanoseconds part of `attr_valid`.
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: Attr,
}

/// Setattr.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "as in struct stat")]
pub struct SetattrIn {
    /// Bits of the fields to set: [`setattr_valid`](super::setattr_valid).
    pub valid: u32,
    pub padding: u32,
    pub fh: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub unused4: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused5: u32,
}

/// Open and Opendir.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenIn {
    pub flags: u32,
    pub open_flags: u32,
}

/// Reply to Open and Opendir.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenOut {
    /// Handle of the opened file.
    pub fh: u64,
    /// [`open_flag`](super::open_flag)s.
    pub open_flags: u32,
    pub padding: u32,
}

/// Read and Readdir.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReadIn {
    /// Handle of the opened file.
    pub fh: u64,
    /// First byte; in a directory, the end of the last reply.
    pub offset: u64,
    /// Maximum bytes of the reply.
    pub size: u32,
    pub read_flags: u32,
    /// For locks, which are not supported.
    pub lock_owner: u64,
    /// `O_*` of the opened file.
    pub flags: u32,
    pub padding: u32,
}

/// Write; its payload follows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteIn {
    /// Handle of the opened file.
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub write_flags: u32,
    /// For locks, which are not supported.
    pub lock_owner: u64,
    /// `O_*` of the opened file.
    pub flags: u32,
    pub padding: u32,
}

/// Reply to Write.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteOut {
    /// Bytes written.
    pub size: u32,
    pub padding: u32,
}

/// Fallocate.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FallocateIn {
    /// Handle of the opened file.
    pub fh: u64,
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// [`fallocate_mode`](super::fallocate_mode).
    pub mode: u32,
    pub padding: u32,
}

/// Lseek.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LseekIn {
    /// Handle of the opened file.
    pub fh: u64,
    /// Start offset.
    pub offset: u64,
    /// [`seek`](super::seek).
    pub whence: u32,
    pub padding: u32,
}

/// Reply to Lseek.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LseekOut {
    /// Resulting offset.
    pub offset: u64,
}

/// Reply to Statfs.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "as in struct statfs")]
pub struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

/// Entry of a directory; its name follows, and zeroes up to a multiple of 8 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dirent {
    pub ino: u64,
    /// Offset to continue after it.
    pub off: u64,
    /// Bytes of the name.
    pub namelen: u32,
    pub kind: u32,
}

const _: () = {
    assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
    assert!(size_of::<Attr>() == 88 && size_of::<SetattrIn>() == 88);
    assert!(size_of::<EntryOut>() == 128 && size_of::<AttrOut>() == 104);
    assert!(size_of::<OpenIn>() == 8 && size_of::<OpenOut>() == 16);
    assert!(size_of::<ReadIn>() == 40 && size_of::<WriteIn>() == 40);
    assert!(size_of::<WriteOut>() == 8 && size_of::<FallocateIn>() == 32);
    assert!(size_of::<LseekIn>() == 24 && size_of::<LseekOut>() == 8);
    assert!(size_of::<StatfsOut>() == 80 && size_of::<Dirent>() == 24);
};
