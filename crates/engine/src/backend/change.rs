//! What becomes of an open backend when its target gets another configuration: it is looked at first, which
//! changes nothing; then what can fail is done, so that it can be undone; then it has the new size.

use super::spec::{self, BackendKind, BackendSpec, OpenError};
use super::{Backend, Store, identity};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Where blocks are, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device: its number.
    Block(u64),
}

impl Place {
    /// Where `spec` leads by now; `None` for what is in memory, and where there is nothing.
    pub(crate) fn of(spec: &BackendSpec) -> Option<Place> {
        match &spec.kind {
            BackendKind::File { path, .. } | BackendKind::Block { path } => {
                Place::from(&std::fs::metadata(path).ok()?)
            }
            _ => None,
        }
    }

    pub(super) fn from(metadata: &std::fs::Metadata) -> Option<Place> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        match metadata.file_type() {
            kind if kind.is_file() => Some(Place::File(metadata.dev(), metadata.ino())),
            kind if kind.is_block_device() => Some(Place::Block(metadata.rdev())),
            _ => None,
        }
    }
}

/// A backend that is to have another size. Dropping it leaves the size that it had.
#[derive(Debug)]
pub(crate) struct Resize {
    from: u64,
    to: u64,
    /// The file has been grown.
    grown: bool,
}

impl Backend {
    /// What tells its blocks from all others, for as long as they are there.
    pub(crate) fn identity(&self) -> Result<u128, OpenError> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let found = match &self.store {
            Store::Memory(_) | Store::Null => identity::of_memory()?,
            Store::Disk(disk) => disk.identity()?,
        };
        Ok(*self.identity.get_or_init(|| found))
    }

    /// Where it was when it was opened.
    pub(crate) fn place(&self) -> Option<Place> {
        match &self.store {
            Store::Disk(disk) => disk.place(),
            _ => None,
        }
    }

    /// What is to be done for the size that `spec` says, or that the file or device has by now. Changes nothing.
    pub(crate) fn plan(&self, spec: &BackendSpec) -> Result<Resize, OpenError> {
        let from = self.geometry().bytes();
        let to = match (spec.bytes(), &self.store) {
            #[cfg(test)]
            _ if matches!(spec.kind, BackendKind::Fifo { .. }) => from,
            (Some(bytes), _) => self.allow(bytes)?,
            // What cannot be looked at keeps the size it had.
            (None, Store::Disk(disk)) => disk.bytes().unwrap_or(from),
            (None, _) => from,
        };
        Ok(Resize { from, to, grown: false })
    }

    /// Whether it can have that size.
    pub(super) fn allow(&self, bytes: u64) -> Result<u64, OpenError> {
        let lba_bytes = 1 << self.lba_shift;
        match &self.store {
            Store::Memory(memory) => {
                spec::whole_blocks("mem", bytes, lba_bytes)?;
                if bytes > memory.len() as u64 {
                    return Err(OpenError::MemoryGrowth { bytes, bytes_max: memory.len() as u64 });
                }
                Ok(bytes)
            }
            Store::Null => spec::whole_blocks("null", bytes, lba_bytes),
            Store::Disk(disk) => disk.allow(bytes, lba_bytes),
        }
    }

    /// The geometry that it will have.
    pub(crate) fn planned(&self, resize: &Resize) -> super::Geometry {
        super::Geometry { blocks: resize.to >> self.lba_shift, ..self.geometry() }
    }

    /// Does what may fail: grows a file, which nobody sees yet.
    pub(crate) fn stage(&self, resize: &mut Resize) -> Result<(), OpenError> {
        match &self.store {
            _ if resize.to <= resize.from => {}
            Store::Disk(disk) => resize.grown = disk.grow_to(resize.to)?,
            Store::Memory(memory) => {
                // What somebody wrote while it was larger before is not to appear. Inside, as was checked.
                let _ = memory.discard(resize.from, (resize.to - resize.from) as usize);
            }
            Store::Null => {}
        }
        Ok(())
    }

    /// Takes back what [`Backend::stage`] did.
    pub(crate) fn unstage(&self, resize: &Resize) {
        if let (Store::Disk(disk), true) = (&self.store, resize.grown) {
            disk.cut_back(resize.from, resize.to);
        }
    }

    /// Gives it the size, at once.
    pub(crate) fn switch(&self, resize: &Resize) {
        self.blocks.store(resize.to >> self.lba_shift, Ordering::Relaxed);
    }

    /// After [`Backend::switch`]: gives back the memory behind a smaller size, which takes its time.
    pub(crate) fn settle(&self, resize: &Resize) {
        if let (Store::Memory(memory), true) = (&self.store, resize.to < resize.from) {
            // Inside: it had that size before.
            let _ = memory.discard(resize.to, (resize.from - resize.to) as usize);
        }
    }

    /// Gives a memory, SSD, null or file backend a new size. Memory grows to four times its first size
    /// at most and loses what lies beyond a smaller one; a file is grown but never cut, and a block
    /// device never changed.
    pub fn resize(&self, bytes: u64) -> Result<super::Geometry, OpenError> {
        let mut resize =
            Resize { from: self.geometry().bytes(), to: self.allow(bytes)?, grown: false };
        self.stage(&mut resize)?;
        self.switch(&resize);
        self.settle(&resize);
        Ok(self.geometry())
    }

    /// Nobody has used it, and nobody will: leaves the file as it was before it was opened.
    pub(crate) fn undo_opening(&self) {
        if let Store::Disk(disk) = &self.store {
            disk.undo_opening();
        }
    }
}

/// Removes the file at `path`, if it still is the one at `place`.
pub(super) fn remove_if(path: &Path, place: Option<Place>) -> io::Result<()> {
    let there = std::fs::metadata(path)?;
    if place.is_some() && Place::from(&there) == place {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
