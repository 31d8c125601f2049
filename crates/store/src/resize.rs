//! Change of an open store's size when its target gets another configuration. It is planned first, which changes
//! nothing; then the steps that can fail are done, so that they can be undone; then it has the new size.

use crate::{OpenError, StoreGeometry, block_access};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Location of blocks, independent of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockLocation {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device: its number.
    Block(u64),
    /// Blocks over the network: their identity.
    Remote(u128),
}

impl BlockLocation {
    pub(crate) fn from(metadata: &std::fs::Metadata) -> Option<BlockLocation> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        match metadata.file_type() {
            kind if kind.is_file() => Some(BlockLocation::File(metadata.dev(), metadata.ino())),
            kind if kind.is_block_device() => Some(BlockLocation::Block(metadata.rdev())),
            _ => None,
        }
    }
}

/// Callback, on any thread, for a possible change of a store's size by others. It does not block.
pub type SizeWatcher = dyn Fn() + Send + Sync;

/// A change of a store's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Current size in bytes.
    pub from: u64,
    /// New size in bytes.
    pub to: u64,
    /// True if a file was grown for it.
    pub grown: bool,
}

impl Resize {
    /// Plans a resize from `from` to `to` bytes, with nothing done yet.
    #[must_use]
    pub fn to(from: u64, to: u64) -> Resize {
        Resize { from, to, grown: false }
    }

    /// Returns the geometry that a store of `geometry` will have.
    #[must_use]
    pub fn planned(&self, geometry: StoreGeometry) -> StoreGeometry {
        StoreGeometry { blocks: self.to >> geometry.lba_shift, ..geometry }
    }
}

/// A store's capacity, read by all threads and changed by a resize.
#[derive(Debug)]
pub(crate) struct Size {
    name: &'static str,
    bytes: Arc<AtomicU64>,
    lba_shift: u8,
    read_only: bool,
}

impl Size {
    pub(crate) fn new(
        name: &'static str,
        bytes: u64,
        lba_bytes: u32,
        read_only: bool,
    ) -> Result<Size, OpenError> {
        let lba_shift = block_access::lba_shift(lba_bytes)?;
        block_access::whole_blocks(name, bytes, lba_bytes)?;
        Ok(Size { name, bytes: Arc::new(AtomicU64::new(bytes)), lba_shift, read_only })
    }

    /// Makes a size of the whole blocks in `bytes`.
    pub(crate) fn whole(
        name: &'static str,
        bytes: u64,
        lba_bytes: u32,
        read_only: bool,
    ) -> Result<Size, OpenError> {
        Size::new(name, bytes / u64::from(lba_bytes) * u64::from(lba_bytes), lba_bytes, read_only)
    }

    /// Returns the geometry of a store without a volatile cache.
    pub(crate) fn geometry(&self) -> StoreGeometry {
        let Size { lba_shift, read_only, .. } = *self;
        let blocks = self.bytes.load(Ordering::Relaxed) >> lba_shift;
        StoreGeometry { lba_shift, blocks, read_only, volatile_cache: false }
    }

    pub(crate) fn shared(&self) -> Arc<AtomicU64> {
        self.bytes.clone()
    }

    /// Plans a resize of a store in memory of at most `bytes_max`; without `bytes` the size stays.
    pub(crate) fn plan(&self, bytes: Option<u64>, bytes_max: u64) -> Result<Resize, OpenError> {
        let from = self.bytes.load(Ordering::Relaxed);
        let to = bytes.unwrap_or(from);
        block_access::whole_blocks(self.name, to, 1 << self.lba_shift)?;
        if to > bytes_max {
            return Err(OpenError::MemoryGrowth { bytes: to, bytes_max });
        }
        Ok(Resize::to(from, to))
    }

    /// Sets the capacity to the whole blocks of the new size.
    pub(crate) fn switch(&self, resize: &Resize) {
        self.bytes.store(resize.to >> self.lba_shift << self.lba_shift, Ordering::Relaxed);
    }
}

/// Removes the file at `path`, if it still is the one at `place`.
pub(crate) fn remove_if(path: &Path, place: Option<BlockLocation>) -> io::Result<()> {
    let there = std::fs::metadata(path)?;
    if place.is_some() && BlockLocation::from(&there) == place {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
