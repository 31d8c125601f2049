//! Headers and arguments of requests and answers.

use super::Opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// In front of every request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InHeader {
    /// Octets of the whole request.
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    /// The file or directory.
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    /// Length of extensions in units of 8 octets.
    pub total_extlen: u16,
    pub padding: u16,
}

impl InHeader {
    /// What it asks for.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }
}

/// In front of every answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OutHeader {
    /// Octets of the whole answer.
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

/// Answer to Lookup.
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
    /// The rest in nanoseconds.
    pub entry_valid_nsec: u32,
    /// The rest in nanoseconds.
    pub attr_valid_nsec: u32,
    pub attr: Attr,
}

/// Answer to Getattr and Setattr.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AttrOut {
    /// Seconds for which the attributes may be cached.
    pub attr_valid: u64,
    /// The rest in nanoseconds.
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: Attr,
}

/// Setattr.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "as in struct stat")]
pub struct SetattrIn {
    /// Which of the rest count: [`setattr_valid`](super::setattr_valid).
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

/// Answer to Open and Opendir.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenOut {
    /// The server's mark of the opened file.
    pub fh: u64,
    /// [`open_flag`](super::open_flag)s.
    pub open_flags: u32,
    pub padding: u32,
}

/// Read and Readdir.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReadIn {
    /// The server's mark of the opened file.
    pub fh: u64,
    /// First octet; in a directory, where the last answer ended.
    pub offset: u64,
    /// Most octets of the answer.
    pub size: u32,
    pub read_flags: u32,
    /// Of locks, which there are not.
    pub lock_owner: u64,
    /// `O_*` of the opened file.
    pub flags: u32,
    pub padding: u32,
}

/// Write; its payload follows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteIn {
    /// The server's mark of the opened file.
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub write_flags: u32,
    /// Of locks, which there are not.
    pub lock_owner: u64,
    /// `O_*` of the opened file.
    pub flags: u32,
    pub padding: u32,
}

/// Answer to Write.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteOut {
    /// Octets written.
    pub size: u32,
    pub padding: u32,
}

/// Fallocate.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FallocateIn {
    /// The server's mark of the opened file.
    pub fh: u64,
    pub offset: u64,
    /// Octets of the range.
    pub length: u64,
    /// [`fallocate_mode`](super::fallocate_mode).
    pub mode: u32,
    pub padding: u32,
}

/// Lseek.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LseekIn {
    /// The server's mark of the opened file.
    pub fh: u64,
    /// From where.
    pub offset: u64,
    /// [`seek`](super::seek).
    pub whence: u32,
    pub padding: u32,
}

/// Answer to Lseek.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LseekOut {
    /// Where it is.
    pub offset: u64,
}

/// Answer to Statfs.
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

/// A directory's entry; its name follows, and zeroes up to a multiple of 8 octets.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dirent {
    pub ino: u64,
    /// Where to read on after it.
    pub off: u64,
    /// Octets of the name.
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
