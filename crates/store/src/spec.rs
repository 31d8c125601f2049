//! What to open, and what to tell people when it cannot be opened.

use roadtrain_proto::target::BLOCKS_MAX;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::elsewhere::Elsewhere;
use crate::{DiskStore, MemoryStore, NullStore, SsdStore, Store, identity};
#[cfg(feature = "rbd")]
use crate::{RbdImage, RbdStore};

/// A store to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Where the blocks are kept.
    pub kind: StoreKind,
    /// Block size: 512 or 4096.
    pub lba_bytes: u32,
    /// Refuse writes.
    pub read_only: bool,
}

/// Where blocks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In memory that is gone with the process.
    Memory {
        /// Bytes.
        size: u64,
    },
    /// In memory at the pace of an SSD. For benchmarks.
    Ssd {
        /// Bytes.
        size: u64,
        /// What each command takes.
        service: Duration,
        /// Commands served at once (0 counts as 1); the others wait their turn.
        parallel: u16,
    },
    /// Nowhere: reads are zeroes, writes are dropped. For benchmarks.
    Null {
        /// Bytes.
        size: u64,
    },
    /// In a regular file.
    File {
        /// Where it is.
        path: PathBuf,
        /// Bytes; a smaller file is grown. `None`: as large as it is.
        size: Option<u64>,
        /// Make a sparse file of `size` if there is none.
        create: bool,
    },
    /// In an image of a Ceph cluster.
    #[cfg(feature = "rbd")]
    Rbd(RbdImage),
    /// On a block device.
    Block {
        /// Where its node is.
        path: PathBuf,
    },
}

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
        path.display(), identity::block_bytes::NAME, path.display())]
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

/// Opens what `spec` names; a file may be created or grown for it.
///
/// # Errors
/// It cannot be had. Nothing was created or changed then.
pub fn open(spec: &StoreSpec) -> Result<Arc<dyn Store>, OpenError> {
    lba_shift(spec.lba_bytes)?;
    let memory = |size| MemoryStore::new(size, spec.lba_bytes, spec.read_only);
    Ok(match &spec.kind {
        StoreKind::Memory { size } => Arc::new(memory(*size)?),
        StoreKind::Ssd { size, service, parallel } => {
            spec.whole_blocks("ssd", *size)?;
            Arc::new(SsdStore::new(Arc::new(memory(*size)?), *service, *parallel))
        }
        StoreKind::Null { size } => {
            Arc::new(NullStore::new(*size, spec.lba_bytes, spec.read_only)?)
        }
        StoreKind::File { path, size, create } => {
            Arc::new(DiskStore::open_file(spec, path, *size, *create)?)
        }
        StoreKind::Block { path } => Arc::new(DiskStore::open_block(spec, path)?),
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => Arc::new(RbdStore::open(image, spec.lba_bytes, spec.read_only)?),
    })
}

/// What `spec` names and another process has: all that hosts are told of it, and none of its blocks. Of files,
/// devices and shared images.
///
/// # Errors
/// It is not there, or cannot be looked at.
pub fn look(spec: &StoreSpec) -> Result<Arc<dyn Store>, OpenError> {
    lba_shift(spec.lba_bytes)?;
    let seen: Arc<dyn Store> = match &spec.kind {
        StoreKind::File { path, .. } | StoreKind::Block { path } => {
            Arc::new(DiskStore::look(spec, path)?)
        }
        #[cfg(feature = "rbd")]
        StoreKind::Rbd(image) => Arc::new(RbdStore::look(image, spec.lba_bytes)?),
        _ => open(spec)?,
    };
    Ok(Arc::new(Elsewhere::new(seen, spec.clone())))
}

/// Whether no other process of the machine has what `spec` names. Opens nothing for longer than that.
pub(crate) fn is_free(spec: &StoreSpec) -> bool {
    match &spec.kind {
        StoreKind::File { path, .. } | StoreKind::Block { path } => DiskStore::is_free(spec, path),
        _ => true,
    }
}

impl StoreSpec {
    /// The size that it asks for; `None`: as large as it is.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self.kind {
            StoreKind::Memory { size } | StoreKind::Ssd { size, .. } | StoreKind::Null { size } => {
                Some(size)
            }
            StoreKind::File { size, .. } => size,
            StoreKind::Block { .. } => None,
            #[cfg(feature = "rbd")]
            StoreKind::Rbd(_) => None,
        }
    }

    /// The same of another size.
    ///
    /// # Errors
    /// It is a block device.
    pub fn resized(&self, bytes: u64) -> Result<StoreSpec, OpenError> {
        let mut new = self.clone();
        match &mut new.kind {
            StoreKind::Memory { size } | StoreKind::Ssd { size, .. } | StoreKind::Null { size } => {
                *size = bytes
            }
            StoreKind::File { size, .. } => *size = Some(bytes),
            StoreKind::Block { path } => return Err(OpenError::FixedSize { path: path.clone() }),
            #[cfg(feature = "rbd")]
            StoreKind::Rbd(image) => {
                return Err(OpenError::Rbd {
                    image: image.to_string(),
                    problem: "is not resized from here: use `rbd resize`, the target follows it"
                        .into(),
                });
            }
        }
        Ok(new)
    }

    /// `bytes`, if they are one whole block at least.
    pub(crate) fn whole_blocks(&self, name: &str, bytes: u64) -> Result<u64, OpenError> {
        whole_blocks(name, bytes, self.lba_bytes)
    }
}

/// The block size as a power of two.
pub(crate) fn lba_shift(lba_bytes: u32) -> Result<u8, OpenError> {
    match lba_bytes {
        512 => Ok(9),
        4096 => Ok(12),
        lba_bytes => Err(OpenError::LbaSize { lba_bytes }),
    }
}

pub(crate) fn whole_blocks(name: &str, bytes: u64, lba_bytes: u32) -> Result<u64, OpenError> {
    if bytes == 0 {
        return Err(OpenError::Empty { name: name.into() });
    }
    if !bytes.is_multiple_of(u64::from(lba_bytes)) {
        return Err(OpenError::NotAligned { name: name.into(), bytes, lba_bytes });
    }
    let bytes_max = BLOCKS_MAX.saturating_mul(lba_bytes.into());
    if bytes > bytes_max {
        return Err(OpenError::TooLarge { name: name.into(), bytes, bytes_max, lba_bytes });
    }
    Ok(bytes)
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
