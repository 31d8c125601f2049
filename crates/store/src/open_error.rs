//! Errors of opening or resizing a store, with advice.

use std::io;
use std::path::{Path, PathBuf};

/// Extended attribute with the block size of a file; its value is the number of bytes, in decimal digits.
pub(crate) const BLOCK_BYTES_ATTRIBUTE: &str = "user.roadtrain.block-bytes";

/// Cause of a failure to open or resize a store, with advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Block size that NVMe hosts cannot use.
    #[error("a block size of {lba_bytes} bytes is not supported: use 512 or 4096")]
    LbaSize {
        /// Block size in bytes, as requested.
        lba_bytes: u32,
    },
    /// Neither a file nor a size to create one.
    #[error("{}: no such file: give a size to have it created", path.display())]
    SizeMissing {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file does not exist and was not to be created.
    #[error("{}: no such {what}", path.display())]
    NotFound {
        /// Path as given.
        path: PathBuf,
        /// Kind of the missing object.
        what: &'static str,
    },
    /// No blocks at all.
    #[error("{name}: has a size of zero: give it at least one block")]
    Empty {
        /// Path or kind.
        name: String,
    },
    /// A block would be cut in two.
    #[error("{name}: {bytes} bytes are not a whole number of {lba_bytes}-byte blocks: {}",
        alignment_advice(*bytes, *lba_bytes))]
    NotAligned {
        /// Path or kind.
        name: String,
        /// Size in bytes.
        bytes: u64,
        /// Block size in bytes.
        lba_bytes: u32,
    },
    /// More blocks than a namespace can have.
    #[error(
        "{name}: {bytes} bytes are more than a namespace can have with blocks of {lba_bytes}: {bytes_max} at most"
    )]
    TooLarge {
        /// Path or kind.
        name: String,
        /// Size in bytes.
        bytes: u64,
        /// Largest size in bytes.
        bytes_max: u64,
        /// Block size in bytes.
        lba_bytes: u32,
    },
    /// The requested size would hide or cut off data.
    #[error("{}: holds {bytes} bytes, more than the {requested} requested: leave the size out to \
        export all of it, or shrink it yourself (truncate -s {requested})", path.display())]
    WouldCut {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        bytes: u64,
        /// Requested size in bytes.
        requested: u64,
    },
    /// A read-only export cannot be grown.
    #[error("{}: holds {bytes} bytes, fewer than the {requested} requested, and a read-only export \
        cannot be grown: leave the size out", path.display())]
    TooSmall {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        bytes: u64,
        /// Requested size in bytes.
        requested: u64,
    },
    /// The size of a block device is fixed.
    #[error("{}: a block device cannot be resized from here", path.display())]
    FixedSize {
        /// Path of its node.
        path: PathBuf,
    },
    /// No address space was reserved for that size.
    #[error("memory can grow to {bytes_max} bytes here, not to {bytes}: restart with the new size")]
    MemoryGrowth {
        /// Requested size in bytes.
        bytes: u64,
        /// Largest possible size in bytes.
        bytes_max: u64,
    },
    /// The system refuses access.
    #[error("{}: permission denied: run as a user who may {}", path.display(),
        if *read_only { "read it" } else { "read and write it, or export it read-only" })]
    Permission {
        /// Path as given.
        path: PathBuf,
        /// True if read access would have been enough.
        read_only: bool,
    },
    /// The system does not allow a new file in that directory.
    #[error("{}: permission denied: this user may make no file in that directory", path.display())]
    Uncreatable {
        /// Path as given.
        path: PathBuf,
    },
    /// Two writers would destroy the data.
    #[error("{}: already in use {}: stop that first, or export it read-only in both",
        path.display(), by.as_deref().unwrap_or("(mounted, or exported by this or another target)"))]
    InUse {
        /// Path as given.
        path: PathBuf,
        /// User, if visible, with "by" or "through" before the name.
        by: Option<String>,
        /// True if that process has ended, but its last writes may still be in flight.
        has_ended: bool,
    },
    /// The object is not of the expected type.
    #[error("{}: is not a {expected}: {advice}", path.display())]
    WrongType {
        /// Path as given.
        path: PathBuf,
        /// Expected type.
        expected: &'static str,
        /// Advice: what to write instead.
        advice: &'static str,
    },
    /// The device cannot write single blocks of that size, which are emulated only on blocks of 4,096 bytes.
    #[error("{}: has logical blocks of {logical_bytes} bytes, and only devices with blocks of up to 4096 bytes can be \
        served: use a file on it", path.display())]
    LogicalBlock {
        /// Path of its node.
        path: PathBuf,
        /// Logical block size of the device in bytes.
        logical_bytes: u32,
    },
    /// The file's content is laid out in blocks of another size.
    #[error("{}: was served with blocks of {kept} bytes, which its partitions and file systems count in, and is now to \
        have {lba_bytes}: write lba={kept}, or remove the attribute if its content may be lost (setfattr -x {} {})",
        path.display(), BLOCK_BYTES_ATTRIBUTE, path.display())]
    OtherBlockBytes {
        /// Path of the file.
        path: PathBuf,
        /// Bytes of a block as it was served before.
        kept: u32,
        /// Bytes of a block as given now.
        lba_bytes: u32,
    },
    /// This target serves the same blocks already, with properties that cannot be changed while they are served.
    #[error("{}: this target serves it with {known}, and is now to serve it with {wanted}: remove the namespace first, \
        then add it again", path.display())]
    ServedOtherwise {
        /// Path as given.
        path: PathBuf,
        /// Block size and access in use.
        known: String,
        /// Block size and access as given now.
        wanted: String,
    },
    /// An image of a Ceph cluster that is not available.
    #[error("rbd:{image}: {problem}")]
    Rbd {
        /// Name as Ceph's programs write it.
        image: String,
        /// Problem, with advice.
        problem: String,
    },
    /// Blocks over the network that are not available.
    #[error("{blocks}: {problem}")]
    Remote {
        /// Kind and location.
        blocks: String,
        /// Problem, with advice.
        problem: String,
    },
    /// Another client has the image.
    #[error(
        "rbd:{image}: {owner} has its exclusive lock: stop that first, or wait 30 s if it has just died"
    )]
    Taken {
        /// Name as Ceph's programs write it.
        image: String,
        /// Address as the cluster names it.
        owner: String,
    },
    /// The owner of the blocks could continue writing them.
    #[error("the process that has the blocks cannot be fenced: end it")]
    Unfenceable,
    /// The size cannot be changed by this target.
    #[error("it has {bytes} bytes and cannot be resized")]
    Unresizable {
        /// Current size in bytes.
        bytes: u64,
    },
    /// The system has no memory left for it.
    #[error("cannot map {size} bytes of memory: {source}: choose a smaller size")]
    Memory {
        /// Size in bytes.
        size: u64,
        /// Error as reported.
        source: io::Error,
    },
    /// Any other error.
    #[error("{}: cannot {action} it: {source}", path.display())]
    Io {
        /// Path as given.
        path: PathBuf,
        /// Failed action.
        action: &'static str,
        /// Error as reported.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { path: path.into(), action, source }
    }
}

fn alignment_advice(bytes: u64, lba_bytes: u32) -> String {
    let below = bytes - bytes % u64::from(lba_bytes);
    let above = below.saturating_add(u64::from(lba_bytes));
    let smaller_blocks =
        if lba_bytes > 512 && bytes.is_multiple_of(512) { ", or a block size of 512" } else { "" };
    if below == 0 {
        return format!("use {above}{smaller_blocks}");
    }
    format!("use {below} or {above}{smaller_blocks}")
}
