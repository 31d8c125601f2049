//! Specifications of stores: kind, location, size and block size.

#[cfg(feature = "rbd")]
use crate::RbdImage;
use crate::block_access::BlockAccess;
use crate::{BlockLocation, OpenError, RemoteBlocks};
use std::path::PathBuf;
use std::time::Duration;

/// A store to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Kind and location of the storage.
    pub kind: StoreKind,
    /// Block size in bytes: 512 or 4096.
    pub lba_bytes: u32,
    /// True to refuse writes.
    pub read_only: bool,
}

/// Kind of storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Memory that is lost with the process.
    Memory {
        /// Size in bytes.
        size: u64,
    },
    /// Memory with the latency of an SSD. For benchmarks.
    Ssd {
        /// Size in bytes.
        size: u64,
        /// Duration of each command.
        service: Duration,
        /// Commands served at once (0 counts as 1); further ones wait for their turn.
        parallel: u16,
    },
    /// No storage: reads are zeroes, writes are dropped. For benchmarks.
    Null {
        /// Size in bytes.
        size: u64,
    },
    /// A regular file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Size in bytes; a smaller file is grown. `None` for the file's size.
        size: Option<u64>,
        /// True to make a sparse file of `size` if it does not exist.
        create: bool,
    },
    /// An image of a Ceph cluster.
    #[cfg(feature = "rbd")]
    Rbd(RbdImage),
    /// Blocks over the network, whose block size is their own.
    Remote(RemoteBlocks),
    /// A block device.
    Block {
        /// Path of its node.
        path: PathBuf,
    },
}

impl StoreSpec {
    /// Returns the requested size in bytes; `None` for the existing size.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self.kind {
            StoreKind::Memory { size } | StoreKind::Ssd { size, .. } | StoreKind::Null { size } => {
                Some(size)
            }
            StoreKind::File { size, .. } => size,
            StoreKind::Block { .. } | StoreKind::Remote(_) => None,
            #[cfg(feature = "rbd")]
            StoreKind::Rbd(_) => None,
        }
    }

    /// Returns the specification with another size.
    ///
    /// # Errors
    /// Fails for a block device.
    pub fn resized(&self, bytes: u64) -> Result<StoreSpec, OpenError> {
        let mut new = self.clone();
        match &mut new.kind {
            StoreKind::Memory { size } | StoreKind::Ssd { size, .. } | StoreKind::Null { size } => {
                *size = bytes
            }
            StoreKind::File { size, .. } => *size = Some(bytes),
            StoreKind::Block { path } => return Err(OpenError::FixedSize { path: path.clone() }),
            StoreKind::Remote(blocks) => {
                return Err(OpenError::Remote {
                    blocks: blocks.to_string(),
                    problem: "is not resized from here: resize it there, this target follows"
                        .into(),
                });
            }
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

    /// Returns the access to blocks that it requests.
    pub(crate) fn access(&self) -> BlockAccess {
        let is_device = matches!(self.kind, StoreKind::Block { .. });
        let StoreSpec { lba_bytes, read_only, .. } = *self;
        BlockAccess { lba_bytes, read_only, is_device }
    }

    /// Returns the current location of the blocks; `None` for stores in memory or over the network, and if there is no
    /// such file.
    #[must_use]
    pub fn location(&self) -> Option<BlockLocation> {
        match &self.kind {
            StoreKind::File { path, .. } | StoreKind::Block { path } => {
                BlockLocation::from(&std::fs::metadata(path).ok()?)
            }
            _ => None,
        }
    }
}
