//! Why a store cannot be opened or resized, with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Extended attribute with the block size of a file; its value is the number of bytes, in decimal digits.
pub(crate) const BLOCK_BYTES_ATTRIBUTE: &str = "user.roadtrain.block-bytes";

/// Why a store could not be opened or resized, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not a block size that NVMe hosts can use.
    #[error("a block size of {lba_bytes} bytes is not supported: use 512 or 4096")]
    LbaSize {
        /// As asked for.
        lba_bytes: u32,
    },
    /// Neither a file nor what is needed to make one.
    #[error("{}: no such file: give a size to have it created", path.display())]
    SizeMissing {
        /// The file.
        path: PathBuf,
    },
    /// The file is not there and was not to be created.
    #[error("{}: no such {what}", path.display())]
    NotFound {
        /// As given.
        path: PathBuf,
        /// What was looked for.
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
        /// Its size.
        bytes: u64,
        /// Block size.
        lba_bytes: u32,
    },
    /// More blocks than a namespace can have.
    #[error(
        "{name}: {bytes} bytes are more than a namespace can have with blocks of {lba_bytes}: {bytes_max} at most"
    )]
    TooLarge {
        /// Path or kind.
        name: String,
        /// Its size.
        bytes: u64,
        /// Largest size.
        bytes_max: u64,
        /// Block size.
        lba_bytes: u32,
    },
    /// Exporting the size asked for would hide or cut off data.
    #[error("{}: holds {bytes} bytes, more than the {asked} asked for: leave the size out to \
        export all of it, or shrink it yourself (truncate -s {asked})", path.display())]
    WouldCut {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The size asked for.
        asked: u64,
    },
    /// A read-only export cannot be grown.
    #[error("{}: holds {bytes} bytes, fewer than the {asked} asked for, and a read-only export \
        cannot be grown: leave the size out", path.display())]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The size asked for.
        asked: u64,
    },
    /// A block device is as large as it is.
    #[error("{}: a block device cannot be resized from here", path.display())]
    FixedSize {
        /// Its node.
        path: PathBuf,
    },
    /// No addresses were kept free for that much.
    #[error("memory can grow to {bytes_max} bytes here, not to {bytes}: restart with the new size")]
    MemoryGrowth {
        /// The size asked for.
        bytes: u64,
        /// The largest possible one.
        bytes_max: u64,
    },
    /// The system refuses access.
    #[error("{}: permission denied: run as a user who may {}", path.display(),
        if *read_only { "read it" } else { "read and write it, or export it read-only" })]
    Permission {
        /// As given.
        path: PathBuf,
        /// Whether reading would have been enough.
        read_only: bool,
    },
    /// The system lets no file be made there.
    #[error("{}: permission denied: this user may make no file in that directory", path.display())]
    Uncreatable {
        /// As given.
        path: PathBuf,
    },
    /// Two writers would destroy the data.
    #[error("{}: already in use {}: stop that first, or export it read-only in both",
        path.display(), by.as_deref().unwrap_or("(mounted, or exported by this or another target)"))]
    InUse {
        /// As given.
        path: PathBuf,
        /// By whom, as far as that is seen, with "by" or "through" before it.
        by: Option<String>,
        /// That process has ended, but what it has written last may still be under way.
        has_ended: bool,
    },
    /// Not what its kind says.
    #[error("{}: is not a {expected}: {advice}", path.display())]
    WrongType {
        /// As given.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
        /// What to write instead.
        advice: &'static str,
    },
    /// The device cannot write single blocks of that size.
    #[error("{}: has logical blocks of {logical_bytes} bytes, larger than {lba_bytes}: \
        use a block size of {logical_bytes}", path.display())]
    LogicalBlock {
        /// Its node.
        path: PathBuf,
        /// The device's.
        logical_bytes: u32,
        /// As asked for.
        lba_bytes: u32,
    },
    /// The file's content is laid out in blocks of another size.
    #[error("{}: was served with blocks of {kept} bytes, which its partitions and file systems count in, and is now to \
        have {lba_bytes}: write lba={kept}, or remove the attribute if its content may be lost (setfattr -x {} {})",
        path.display(), BLOCK_BYTES_ATTRIBUTE, path.display())]
    OtherBlockBytes {
        /// The file.
        path: PathBuf,
        /// Bytes of a block as it was served before.
        kept: u32,
        /// Bytes of a block as given now.
        lba_bytes: u32,
    },
    /// This target serves the same blocks already, with what cannot be changed while they are served.
    #[error("{}: this target serves it with {known}, and is now to serve it with {wanted}: remove the namespace first, \
        then add it again", path.display())]
    ServedOtherwise {
        /// As given.
        path: PathBuf,
        /// Block size and access that are in force.
        known: String,
        /// The same as given now.
        wanted: String,
    },
    /// An image of a Ceph cluster that cannot be had.
    #[error("rbd:{image}: {problem}")]
    Rbd {
        /// As Ceph's programs write it.
        image: String,
        /// With what to do about it.
        problem: String,
    },
    /// Another client has the image.
    #[error(
        "rbd:{image}: {owner} has its exclusive lock: stop that first, or wait 30 s if it has just died"
    )]
    Taken {
        /// As Ceph's programs write it.
        image: String,
        /// As the cluster names it.
        owner: String,
    },
    /// Whoever has the blocks could go on writing them.
    #[error("nobody can keep the process that has the blocks from writing them: end it")]
    Unfenceable,
    /// Its size is not for us to change.
    #[error("it has {bytes} bytes and cannot be resized")]
    Unresizable {
        /// The size that it has.
        bytes: u64,
    },
    /// The system has no room for it.
    #[error("cannot map {size} bytes of memory: {source}: choose a smaller size")]
    Memory {
        /// Bytes.
        size: u64,
        /// As reported.
        source: io::Error,
    },
    /// Anything else.
    #[error("{}: cannot {action} it: {source}", path.display())]
    Io {
        /// As given.
        path: PathBuf,
        /// What failed.
        action: &'static str,
        /// As reported.
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
