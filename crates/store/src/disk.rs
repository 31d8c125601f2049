//! Stores in files and on block devices, with I/O over the ring.

mod allocated;
mod boot;
mod file;
mod lock;
mod status;
mod task;
mod uevents;

use crate::allocation_queries::StoreAllocationQueries;
use crate::resize::{BlockLocation, Size};
use crate::spec::StoreSpec;
use crate::{
    BlockLimits, LastSync, OpenError, Resize, SizeWatcher, Store, StoreCompletion, StoreGeometry,
    StoreIo, StoreOperation, StoreToken,
};
#[cfg(test)]
pub(crate) use file::Allocate;
pub(crate) use file::BlockFile;
use roadtrain_system::buffer::Buffer;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
pub(crate) use task::{DiskTask, TaskProgress};

/// A store in a file or on a block device. Its blocks are those of its specification, or larger ones if the device or the
/// file system reads and writes no smaller ones.
#[derive(Debug)]
pub struct DiskStore {
    pub(crate) disk: Arc<BlockFile>,
    size: Size,
    /// Unique identity of the blocks, once it has been determined.
    identity: OnceLock<u128>,
    queries: StoreAllocationQueries,
}

impl DiskStore {
    pub(crate) fn open_file(
        spec: &StoreSpec,
        path: &Path,
        size: Option<u64>,
        create: bool,
    ) -> Result<DiskStore, OpenError> {
        let open = || BlockFile::open_file(&spec.access(), path, size, create);
        DiskStore::with(spec, lock::once_released(open)?)
    }

    pub(crate) fn open_block(spec: &StoreSpec, path: &Path) -> Result<DiskStore, OpenError> {
        DiskStore::with(spec, lock::once_released(|| BlockFile::open_block(&spec.access(), path))?)
    }

    /// Opens the blocks of another process read-only, without its lock.
    pub(crate) fn observe(spec: &StoreSpec, path: &Path) -> Result<DiskStore, OpenError> {
        DiskStore::with(spec, BlockFile::observe(&spec.access(), path)?)
    }

    /// Returns the path at which it was opened.
    pub(crate) fn path(&self) -> &Path {
        self.disk.path()
    }

    /// True if no other process has the blocks, so that they could be opened.
    pub(crate) fn is_free(spec: &StoreSpec, path: &Path) -> bool {
        BlockFile::is_free(&spec.access(), path)
    }

    fn with(spec: &StoreSpec, disk: BlockFile) -> Result<DiskStore, OpenError> {
        let bytes = disk.bytes().map_err(|e| OpenError::io(disk.path(), "read the size of", e))?;
        let size = Size::whole("disk", bytes, disk.io_bytes(), spec.read_only)?;
        Ok(DiskStore::of(disk, size))
    }

    /// Makes a store of an open file with `bytes` bytes: a descriptor that can be read and written at any offset. Other
    /// kinds work as far as the kernel supports them. The file is neither locked nor resized.
    ///
    /// # Errors
    /// Fails if the sizes do not fit.
    pub fn from_file(file: File, bytes: u64, lba_bytes: u32) -> Result<DiskStore, OpenError> {
        let size = Size::new("disk", bytes, lba_bytes, false)?;
        Ok(DiskStore::of(BlockFile::adopt(file, bytes, lba_bytes), size))
    }

    fn of(disk: BlockFile, size: Size) -> DiskStore {
        let (disk, queries) = (Arc::new(disk), StoreAllocationQueries::default());
        DiskStore { disk, size, identity: OnceLock::new(), queries }
    }
}

impl Store for DiskStore {
    fn geometry(&self) -> StoreGeometry {
        let geometry = self.size.geometry();
        StoreGeometry { volatile_cache: !geometry.read_only, ..geometry }
    }

    fn identity(&self) -> Result<u128, OpenError> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let found = self.disk.identity()?;
        Ok(*self.identity.get_or_init(|| found))
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        let geometry = self.geometry();
        match geometry.check(&op, buffer.as_ref()) {
            Ok(()) if let StoreOperation::QueryAllocation { range } = op => {
                let disk = self.disk.clone();
                self.queries.begin((range, geometry.lba_shift), buffer, token, io, move |found| {
                    allocated::find(disk.file(), found);
                    Ok(())
                });
            }
            Ok(()) => io.run(DiskTask::new(self.disk.clone(), op, buffer), token),
            Err(status) => io.complete(StoreCompletion::new(token, Err(status), buffer)),
        }
    }

    fn limits(&self) -> BlockLimits {
        self.disk.limits(self.geometry().lba_shift)
    }

    fn reports_allocation(&self) -> bool {
        true
    }

    fn stays_on_thread(&self) -> bool {
        true
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn write_verifier(&self) -> Option<u64> {
        boot::verifier()
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn last_sync(&self) -> Option<LastSync> {
        Some(self.disk.last_sync())
    }

    fn location(&self) -> Option<BlockLocation> {
        self.disk.place()
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        let geometry = self.geometry();
        let to = match bytes {
            Some(bytes) => self.disk.allow(bytes, geometry.lba_bytes())?,
            // If the size cannot be read, it stays the same.
            None => self.disk.bytes().unwrap_or(geometry.bytes()),
        };
        Ok(Resize::to(geometry.bytes(), to))
    }

    /// Watches the kernel's events of a block device; the size of a file is checked at a reload.
    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        if let Some(BlockLocation::Block(number)) = self.location() {
            uevents::watch(number, watcher);
        }
    }

    fn stage(&self, resize: &mut Resize) -> Result<(), OpenError> {
        if resize.to > resize.from {
            resize.grown = self.disk.grow_to(resize.to)?;
        }
        Ok(())
    }

    fn unstage(&self, resize: &Resize) {
        if resize.grown {
            self.disk.cut_back(resize.from, resize.to);
        }
    }

    fn switch(&self, resize: &Resize) {
        self.size.switch(resize);
    }

    fn undo_opening(&self) {
        self.disk.undo_opening();
    }
}
