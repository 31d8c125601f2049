//! Names of stores: kind, place, size and block size.

use crate::OpenError;
#[cfg(feature = "rbd")]
use crate::RbdImage;
use roadtrain_proto::block_limits::BLOCKS_MAX;
use std::path::PathBuf;
use std::time::Duration;

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
