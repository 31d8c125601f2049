//! Where a store's files are: in a folder, or in memory.

use super::VolumeError;
use super::contents::Contents;
use super::gate::{Gate, Step};
use super::uuid::Uuid;
use roadtrain_target_engine::marks_beside;
use rustix::fs::{
    FallocateFlags, MemfdFlags, OFlags, fallocate, fstatvfs, ioctl_ficlone, memfd_create,
};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::debug;

pub(super) const INDEX: &str = "store.json";
const INDEX_NEW: &str = "store.json.new";
/// Space that is given up for an index when the file system is full: deleting a volume needs some before it gives any.
const INDEX_SPARE: &str = "store.json.spare";
/// The spare space is whole pieces of this.
const SPARE_BYTES: u64 = 64 << 10;

const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A store's files.
pub(crate) struct Home {
    place: Place,
    pub(crate) gate: Box<dyn Gate>,
}

enum Place {
    /// A file of each volume, and the index.
    Folder {
        path: PathBuf,
        /// Is locked as long as the store is open.
        folder: File,
    },
    /// Files of memory, which are gone with the process.
    Memory(Mutex<BTreeMap<Uuid, File>>),
}

impl Home {
    /// Opens the folder at `path`, which nobody else has open as a store.
    pub(crate) fn folder(path: &Path, gate: Box<dyn Gate>) -> Result<Home, VolumeError> {
        let folder = File::open(path).map_err(|e| VolumeError::io(path, "open", e))?;
        if !folder.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(VolumeError::Invalid(format!("{}: is not a folder", path.display())));
        }
        lock(path, &folder)?;
        Ok(Home { place: Place::Folder { path: path.into(), folder }, gate })
    }

    pub(crate) fn memory(gate: Box<dyn Gate>) -> Home {
        Home { place: Place::Memory(Mutex::default()), gate }
    }

    /// The folder, or what stands for it in messages.
    pub(crate) fn path(&self) -> &Path {
        match &self.place {
            Place::Folder { path, .. } => path,
            Place::Memory(_) => Path::new("memory"),
        }
    }

    /// The index; `None`: there is none yet.
    pub(crate) fn load(&self) -> io::Result<Option<Vec<u8>>> {
        let Place::Folder { path, .. } = &self.place else { return Ok(None) };
        match std::fs::read(path.join(INDEX)) {
            Ok(image) => Ok(Some(image)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes `contents` the index, on stable storage.
    pub(crate) fn save(&self, contents: &Contents) -> io::Result<()> {
        let Place::Folder { path, folder } = &self.place else { return Ok(()) };
        let new = path.join(INDEX_NEW);
        let image = contents.image();
        let write = || -> io::Result<()> {
            self.gate.pass(Step::Write)?;
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&image)?;
            file.sync_all()
        };
        let spare = path.join(INDEX_SPARE);
        write().or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                std::fs::remove_file(&spare).map_err(|_| error)?;
                write()
            }
            _ => Err(error),
        })?;
        self.gate.pass(Step::Rename)?;
        std::fs::rename(&new, path.join(INDEX))?;
        self.gate.pass(Step::SyncFolder)?;
        folder.sync_all()?;
        keep_spare(&spare, image.len() as u64);
        Ok(())
    }

    /// Removes the index: there is no store any more.
    pub(crate) fn forget(&self) -> io::Result<()> {
        let Place::Folder { path, folder } = &self.place else { return Ok(()) };
        self.gate.pass(Step::Remove)?;
        let _ = std::fs::remove_file(path.join(INDEX_SPARE)); // perhaps there is none
        std::fs::remove_file(path.join(INDEX))?;
        self.gate.pass(Step::SyncFolder)?;
        folder.sync_all()
    }

    /// Removes what no entry of the index names, and says how many files that were.
    pub(crate) fn sweep(&self, contents: &Contents) -> io::Result<usize> {
        let Place::Folder { path, .. } = &self.place else { return Ok(0) };
        let mut removed = 0;
        for entry in std::fs::read_dir(path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            // Of a volume, and what is kept beside it.
            let volume = name.split_once('.').map_or(&*name, |(volume, _)| volume);
            let is_orphan = volume.parse().is_ok_and(|uuid| contents.find(uuid).is_none());
            if is_orphan || name == INDEX_NEW {
                self.gate.pass(Step::Remove)?;
                remove_at_once(&path.join(&*name))?;
                removed += usize::from(is_orphan && volume == name);
            }
        }
        Ok(removed)
    }

    /// A volume's file, by which others open it.
    pub(crate) fn file(&self, uuid: Uuid) -> PathBuf {
        match &self.place {
            Place::Folder { path, .. } => path.join(uuid.to_string()),
            Place::Memory(files) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                let number = files.get(&uuid).map_or(-1, AsRawFd::as_raw_fd);
                PathBuf::from(format!("/proc/self/fd/{number}"))
            }
        }
    }

    /// The same, if it outlives the process.
    pub(crate) fn lasting_file(&self, uuid: Uuid) -> Option<PathBuf> {
        matches!(self.place, Place::Folder { .. }).then(|| self.file(uuid))
    }

    /// Where it is kept which blocks of a volume cannot be read.
    fn marks(&self, uuid: Uuid) -> Option<PathBuf> {
        self.lasting_file(uuid).as_deref().map(marks_beside)
    }

    /// Copies the marks of a volume, if it has some. Not after its content: a block that is written in between would be
    /// taken for good, with what was there before.
    pub(crate) fn copy_marks(&self, from: Uuid, to: Uuid) -> io::Result<()> {
        let (Some(from), Some(to)) = (self.marks(from), self.marks(to)) else { return Ok(()) };
        let image = match std::fs::read(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            image => image?,
        };
        self.gate.pass(Step::Copy)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(to)?;
        file.write_all(&image)?;
        file.sync_all()
    }

    pub(crate) fn create(&self, uuid: Uuid) -> io::Result<File> {
        self.gate.pass(Step::Create)?;
        match &self.place {
            Place::Folder { path, .. } => OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path.join(uuid.to_string())),
            Place::Memory(files) => {
                let file = File::from(memfd_create(uuid.to_string(), MemfdFlags::CLOEXEC)?);
                let kept = file.try_clone()?;
                files.lock().unwrap_or_else(PoisonError::into_inner).insert(uuid, kept);
                Ok(file)
            }
        }
    }

    pub(crate) fn open(&self, uuid: Uuid) -> io::Result<File> {
        match &self.place {
            Place::Folder { path, .. } => {
                OpenOptions::new().read(true).write(true).open(path.join(uuid.to_string()))
            }
            Place::Memory(files) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                files.get(&uuid).ok_or(io::ErrorKind::NotFound)?.try_clone()
            }
        }
    }

    pub(crate) fn remove(&self, uuid: Uuid) -> io::Result<()> {
        self.gate.pass(Step::Remove)?;
        match &self.place {
            Place::Folder { path, .. } => {
                remove_at_once(&path.join(uuid.to_string()))?;
                match self.marks(uuid).map_or(Ok(()), std::fs::remove_file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            }
            Place::Memory(files) => {
                files.lock().unwrap_or_else(PoisonError::into_inner).remove(&uuid);
                Ok(())
            }
        }
    }

    /// Gives `file` a size; what is new reads as zeroes and takes no space.
    pub(crate) fn set_size(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.gate.pass(Step::Size)?;
        file.set_len(bytes)
    }

    /// Gives a range of `file` space, and the file that size if it is shorter.
    pub(crate) fn allocate(&self, file: &File, from: u64, to: u64) -> io::Result<()> {
        self.gate.pass(Step::Allocate)?;
        if from < to {
            fallocate(file, FallocateFlags::empty(), from, to - from)?;
        }
        Ok(())
    }

    /// Gives a range of `file` extents that no other file has; `false`: not with this file system.
    pub(crate) fn unshare(&self, file: &File, from: u64, to: u64) -> io::Result<bool> {
        use rustix::io::Errno;
        self.gate.pass(Step::Unshare)?;
        match fallocate(file, FallocateFlags::UNSHARE_RANGE, from, to - from) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The same of what is no hole in a range; holes stay.
    pub(crate) fn unshare_content(&self, file: &File, from: u64, to: u64) -> io::Result<()> {
        use rustix::fs::{SeekFrom, seek};
        let mut at = from;
        while at < to {
            let Ok(data) = seek(file, SeekFrom::Data(at)) else { return Ok(()) };
            let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(to).min(to);
            if data >= to || !self.unshare(file, data, hole)? {
                return Ok(());
            }
            at = hole;
        }
        Ok(())
    }

    /// Gives `to` all extents of `from`; `false`: not with this file system.
    pub(crate) fn share(&self, from: &File, to: &File) -> io::Result<bool> {
        use rustix::io::Errno;
        self.gate.pass(Step::Share)?;
        match ioctl_ficlone(to, from) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::XDEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings a new file to stable storage.
    pub(crate) fn sync_new(&self, file: &File) -> io::Result<()> {
        let Place::Folder { folder, .. } = &self.place else { return Ok(()) };
        self.sync(file)?;
        self.gate.pass(Step::SyncFolder)?;
        folder.sync_all()
    }

    /// Brings a file to stable storage.
    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        if matches!(self.place, Place::Memory(_)) {
            return Ok(());
        }
        self.gate.pass(Step::SyncFile)?;
        file.sync_all()
    }

    /// Bytes that a volume's file still has in the file system; 0 once it is removed.
    pub(crate) fn allocated(&self, uuid: Uuid) -> u64 {
        let metadata = self.lasting_file(uuid).and_then(|file| file.metadata().ok());
        metadata.map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// What the file system has in octets, all and free; `None`: there is none.
    pub(crate) fn space(&self) -> io::Result<Option<(u64, u64)>> {
        let Place::Folder { folder, .. } = &self.place else { return Ok(None) };
        let answer = fstatvfs(folder.as_fd())?;
        Ok(Some((answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize)))
    }
}

/// Removes a file. Its space is free afterwards: XFS releases the extents of a removed file in the background, but those
/// that a truncated file had at once.
fn remove_at_once(path: &Path) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    if let Ok(file) = OpenOptions::new().write(true).custom_flags(flags).open(path)
        && file.metadata().is_ok_and(|file| file.is_file() && file.nlink() == 1)
    {
        // An error only delays when the space is free.
        let _ = file.set_len(0);
    }
    std::fs::remove_file(path)
}

/// Keeps space for an index twice as large, if there is some.
fn keep_spare(path: &Path, index: u64) {
    let bytes = (2 * index).next_multiple_of(SPARE_BYTES);
    if path.metadata().is_ok_and(|spare| spare.len() >= bytes) {
        return;
    }
    let kept = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let kept = kept.and_then(|spare| Ok(fallocate(spare, FallocateFlags::empty(), 0, bytes)?));
    if let Err(error) = kept {
        debug!("{}: no space is kept for deleting: {error}", path.display());
        let _ = std::fs::remove_file(path); // a part of it helps nobody
    }
}

/// Keeps other targets from the folder. What another process has for a moment, such as a child of this one that has
/// not begun its program yet, is waited for.
fn lock(path: &Path, folder: &File) -> Result<(), VolumeError> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                return Err(VolumeError::Busy(format!(
                    "{path}: another target has that store: stop it first"
                )));
            }
            // Nothing to protect with.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => return Ok(()),
            Err(TryLockError::Error(e)) => return Err(VolumeError::io(path, "lock", e)),
        }
    }
}
