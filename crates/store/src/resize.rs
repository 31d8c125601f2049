//! What becomes of an open store when its target gets another configuration: it is looked at first, which changes
//! nothing; then what can fail is done, so that it can be undone; then it has the new size.

use crate::{Geometry, OpenError, StoreKind, StoreSpec, spec};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where blocks are, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device: its number.
    Block(u64),
}

impl Place {
    /// Where `spec` leads by now; `None` for what is in memory, and where there is nothing.
    #[must_use]
    pub fn of(spec: &StoreSpec) -> Option<Place> {
        match &spec.kind {
            StoreKind::File { path, .. } | StoreKind::Block { path } => {
                Place::from(&std::fs::metadata(path).ok()?)
            }
            _ => None,
        }
    }

    pub(crate) fn from(metadata: &std::fs::Metadata) -> Option<Place> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        match metadata.file_type() {
            kind if kind.is_file() => Some(Place::File(metadata.dev(), metadata.ino())),
            kind if kind.is_block_device() => Some(Place::Block(metadata.rdev())),
            _ => None,
        }
    }
}

/// Called, on any thread, when others may have given a store another size. It does not wait.
pub type SizeWatcher = dyn Fn() + Send + Sync;

/// A change of a store's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Bytes that it has.
    pub from: u64,
    /// Bytes that it is to have.
    pub to: u64,
    /// Room for it was made outside of this process.
    pub grown: bool,
}

impl Resize {
    /// From some bytes to others, nothing done yet.
    #[must_use]
    pub fn to(from: u64, to: u64) -> Resize {
        Resize { from, to, grown: false }
    }

    /// What a store of `geometry` will be.
    #[must_use]
    pub fn planned(&self, geometry: Geometry) -> Geometry {
        Geometry { blocks: self.to >> geometry.lba_shift, ..geometry }
    }
}

/// A store's capacity, read by everybody and changed by a resize.
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
        let lba_shift = spec::lba_shift(lba_bytes)?;
        spec::whole_blocks(name, bytes, lba_bytes)?;
        Ok(Size { name, bytes: Arc::new(AtomicU64::new(bytes)), lba_shift, read_only })
    }

    /// The same, of whole blocks of `bytes` only.
    pub(crate) fn whole(
        name: &'static str,
        bytes: u64,
        lba_bytes: u32,
        read_only: bool,
    ) -> Result<Size, OpenError> {
        Size::new(name, bytes / u64::from(lba_bytes) * u64::from(lba_bytes), lba_bytes, read_only)
    }

    /// Of a store without a volatile cache.
    pub(crate) fn geometry(&self) -> Geometry {
        let Size { lba_shift, read_only, .. } = *self;
        let blocks = self.bytes.load(Ordering::Relaxed) >> lba_shift;
        Geometry { lba_shift, blocks, read_only, volatile_cache: false }
    }

    pub(crate) fn shared(&self) -> Arc<AtomicU64> {
        self.bytes.clone()
    }

    /// For a store in memory of `bytes_max`, which has the size that it was given.
    pub(crate) fn plan(&self, bytes: Option<u64>, bytes_max: u64) -> Result<Resize, OpenError> {
        let from = self.bytes.load(Ordering::Relaxed);
        let to = bytes.unwrap_or(from);
        spec::whole_blocks(self.name, to, 1 << self.lba_shift)?;
        if to > bytes_max {
            return Err(OpenError::MemoryGrowth { bytes: to, bytes_max });
        }
        Ok(Resize::to(from, to))
    }

    /// Whole blocks of that are the capacity from now on.
    pub(crate) fn switch(&self, resize: &Resize) {
        self.bytes.store(resize.to >> self.lba_shift << self.lba_shift, Ordering::Relaxed);
    }
}

/// Removes the file at `path`, if it still is the one at `place`.
pub(crate) fn remove_if(path: &Path, place: Option<Place>) -> io::Result<()> {
    let there = std::fs::metadata(path)?;
    if place.is_some() && Place::from(&there) == place {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
