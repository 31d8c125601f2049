//! Files of a store: in a folder, or in memory.

use super::VolumeError;
use super::contents::Contents;
use super::step_hook::{StoreFileStep, StoreStepHook};
use super::uuid::Uuid;
use roadtrain_target_engine::marks_file_of;
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
/// File that reserves space for an index on a full file system: deleting a volume needs space before it frees any.
const INDEX_SPARE: &str = "store.json.spare";
/// Granularity of the reserved space in bytes.
const SPARE_BYTES: u64 = 64 << 10;

const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Files of a store.
pub(crate) struct StoreFiles {
    place: StoreLocation,
    pub(crate) step_hook: Box<dyn StoreStepHook>,
}

enum StoreLocation {
    /// A folder with a file of each volume, and the index.
    Folder {
        path: PathBuf,
        /// Open folder, locked as long as the store is open.
        folder: File,
    },
    /// Files in memory, lost with the process.
    Memory(Mutex<BTreeMap<Uuid, File>>),
}

impl StoreFiles {
    /// Opens and locks the folder at `path`.
    pub(crate) fn folder(
        path: &Path,
        step_hook: Box<dyn StoreStepHook>,
    ) -> Result<StoreFiles, VolumeError> {
        let folder = File::open(path).map_err(|e| VolumeError::io(path, "open", e))?;
        if !folder.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(VolumeError::Invalid(format!("{}: is not a folder", path.display())));
        }
        lock(path, &folder)?;
        Ok(StoreFiles { place: StoreLocation::Folder { path: path.into(), folder }, step_hook })
    }

    pub(crate) fn memory(step_hook: Box<dyn StoreStepHook>) -> StoreFiles {
        StoreFiles { place: StoreLocation::Memory(Mutex::default()), step_hook }
    }

    /// Returns the folder, or "memory" for messages.
    pub(crate) fn path(&self) -> &Path {
        match &self.place {
            StoreLocation::Folder { path, .. } => path,
            StoreLocation::Memory(_) => Path::new("memory"),
        }
    }

    /// Reads the index; `None`: there is none yet.
    pub(crate) fn load(&self) -> io::Result<Option<Vec<u8>>> {
        let StoreLocation::Folder { path, .. } = &self.place else { return Ok(None) };
        match std::fs::read(path.join(INDEX)) {
            Ok(image) => Ok(Some(image)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes `contents` to the index, on stable storage.
    pub(crate) fn save(&self, contents: &Contents) -> io::Result<()> {
        let StoreLocation::Folder { path, folder } = &self.place else { return Ok(()) };
        let new = path.join(INDEX_NEW);
        let image = contents.image();
        let write = || -> io::Result<()> {
            self.step_hook.pass(StoreFileStep::Write)?;
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
        self.step_hook.pass(StoreFileStep::Rename)?;
        std::fs::rename(&new, path.join(INDEX))?;
        self.step_hook.pass(StoreFileStep::SyncFolder)?;
        folder.sync_all()?;
        keep_spare(&spare, image.len() as u64);
        Ok(())
    }

    /// Removes the index, which ends the store.
    pub(crate) fn forget(&self) -> io::Result<()> {
        let StoreLocation::Folder { path, folder } = &self.place else { return Ok(()) };
        self.step_hook.pass(StoreFileStep::Remove)?;
        let _ = std::fs::remove_file(path.join(INDEX_SPARE)); // there may be none
        std::fs::remove_file(path.join(INDEX))?;
        self.step_hook.pass(StoreFileStep::SyncFolder)?;
        folder.sync_all()
    }

    /// Removes files that the index does not name. Returns the number of removed volumes.
    pub(crate) fn sweep(&self, contents: &Contents) -> io::Result<usize> {
        let StoreLocation::Folder { path, .. } = &self.place else { return Ok(0) };
        let mut removed = 0;
        for entry in std::fs::read_dir(path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            // Includes files kept next to a volume, named `UUID.…`.
            let volume = name.split_once('.').map_or(&*name, |(volume, _)| volume);
            let is_orphan = volume.parse().is_ok_and(|uuid| contents.find(uuid).is_none());
            if is_orphan || name == INDEX_NEW {
                self.step_hook.pass(StoreFileStep::Remove)?;
                remove_at_once(&path.join(&*name))?;
                removed += usize::from(is_orphan && volume == name);
            }
        }
        Ok(removed)
    }

    /// Returns the path of a volume's file, for opening it.
    pub(crate) fn file(&self, uuid: Uuid) -> PathBuf {
        match &self.place {
            StoreLocation::Folder { path, .. } => path.join(uuid.to_string()),
            StoreLocation::Memory(files) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                let number = files.get(&uuid).map_or(-1, AsRawFd::as_raw_fd);
                PathBuf::from(format!("/proc/self/fd/{number}"))
            }
        }
    }

    /// Returns the path of a volume's file, if it outlives the process.
    pub(crate) fn lasting_file(&self, uuid: Uuid) -> Option<PathBuf> {
        matches!(self.place, StoreLocation::Folder { .. }).then(|| self.file(uuid))
    }

    /// Returns the path of the file with a volume's unreadable blocks.
    fn marks(&self, uuid: Uuid) -> Option<PathBuf> {
        self.lasting_file(uuid).as_deref().map(marks_file_of)
    }

    /// Copies the marks of unreadable blocks of a volume, if it has some. Runs before the content is copied: a block
    /// written in between would lose its mark and keep the old data.
    pub(crate) fn copy_marks(&self, from: Uuid, to: Uuid) -> io::Result<()> {
        let (Some(from), Some(to)) = (self.marks(from), self.marks(to)) else { return Ok(()) };
        let image = match std::fs::read(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            image => image?,
        };
        self.step_hook.pass(StoreFileStep::Copy)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(to)?;
        file.write_all(&image)?;
        file.sync_all()
    }

    pub(crate) fn create(&self, uuid: Uuid) -> io::Result<File> {
        self.step_hook.pass(StoreFileStep::Create)?;
        match &self.place {
            StoreLocation::Folder { path, .. } => OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path.join(uuid.to_string())),
            StoreLocation::Memory(files) => {
                let file = File::from(memfd_create(uuid.to_string(), MemfdFlags::CLOEXEC)?);
                let kept = file.try_clone()?;
                files.lock().unwrap_or_else(PoisonError::into_inner).insert(uuid, kept);
                Ok(file)
            }
        }
    }

    pub(crate) fn open(&self, uuid: Uuid) -> io::Result<File> {
        match &self.place {
            StoreLocation::Folder { path, .. } => {
                OpenOptions::new().read(true).write(true).open(path.join(uuid.to_string()))
            }
            StoreLocation::Memory(files) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                files.get(&uuid).ok_or(io::ErrorKind::NotFound)?.try_clone()
            }
        }
    }

    pub(crate) fn remove(&self, uuid: Uuid) -> io::Result<()> {
        self.step_hook.pass(StoreFileStep::Remove)?;
        match &self.place {
            StoreLocation::Folder { path, .. } => {
                remove_at_once(&path.join(uuid.to_string()))?;
                match self.marks(uuid).map_or(Ok(()), std::fs::remove_file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            }
            StoreLocation::Memory(files) => {
                files.lock().unwrap_or_else(PoisonError::into_inner).remove(&uuid);
                Ok(())
            }
        }
    }

    /// Sets the size of `file`; new space reads as zeroes and is not allocated.
    pub(crate) fn set_size(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.step_hook.pass(StoreFileStep::Size)?;
        file.set_len(bytes)
    }

    /// Allocates a range of `file`, and extends the file if it is shorter.
    pub(crate) fn allocate(&self, file: &File, from: u64, to: u64) -> io::Result<()> {
        self.step_hook.pass(StoreFileStep::Allocate)?;
        if from < to {
            fallocate(file, FallocateFlags::empty(), from, to - from)?;
        }
        Ok(())
    }

    /// Gives a range of `file` its own extents; `false`: the file system cannot.
    pub(crate) fn unshare(&self, file: &File, from: u64, to: u64) -> io::Result<bool> {
        use rustix::io::Errno;
        self.step_hook.pass(StoreFileStep::Unshare)?;
        match fallocate(file, FallocateFlags::UNSHARE_RANGE, from, to - from) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the data in a range its own extents; holes stay.
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

    /// Shares all extents of `from` with `to`; `false`: the file system cannot.
    pub(crate) fn share(&self, from: &File, to: &File) -> io::Result<bool> {
        use rustix::io::Errno;
        self.step_hook.pass(StoreFileStep::Share)?;
        match ioctl_ficlone(to, from) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::XDEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs a new file and its folder.
    pub(crate) fn sync_new(&self, file: &File) -> io::Result<()> {
        let StoreLocation::Folder { folder, .. } = &self.place else { return Ok(()) };
        self.sync(file)?;
        self.step_hook.pass(StoreFileStep::SyncFolder)?;
        folder.sync_all()
    }

    /// Syncs a file.
    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        if matches!(self.place, StoreLocation::Memory(_)) {
            return Ok(());
        }
        self.step_hook.pass(StoreFileStep::SyncFile)?;
        file.sync_all()
    }

    /// Returns the bytes that a volume's file occupies in the file system; 0 once it is removed.
    pub(crate) fn allocated(&self, uuid: Uuid) -> u64 {
        let metadata = self.lasting_file(uuid).and_then(|file| file.metadata().ok());
        metadata.map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// Returns total and free bytes of the file system; `None` in memory.
    pub(crate) fn space(&self) -> io::Result<Option<(u64, u64)>> {
        let StoreLocation::Folder { folder, .. } = &self.place else { return Ok(None) };
        let answer = fstatvfs(folder.as_fd())?;
        Ok(Some((answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize)))
    }
}

/// Removes a file and frees its space at once. XFS releases the extents of a removed file in the background, but those
/// of a truncated file immediately.
fn remove_at_once(path: &Path) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    if let Ok(file) = OpenOptions::new().write(true).custom_flags(flags).open(path)
        && file.metadata().is_ok_and(|file| file.is_file() && file.nlink() == 1)
    {
        // An error only delays the release of the space.
        let _ = file.set_len(0);
    }
    std::fs::remove_file(path)
}

/// Reserves space for an index twice as large, if there is some.
fn keep_spare(path: &Path, index: u64) {
    let bytes = (2 * index).next_multiple_of(SPARE_BYTES);
    if path.metadata().is_ok_and(|spare| spare.len() >= bytes) {
        return;
    }
    let kept = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let kept = kept.and_then(|spare| Ok(fallocate(spare, FallocateFlags::empty(), 0, bytes)?));
    if let Err(error) = kept {
        debug!("{}: no space is kept for deleting: {error}", path.display());
        let _ = std::fs::remove_file(path); // a partial reserve is useless
    }
}

/// Locks the folder against other targets. Waits for a short-lived holder, such as a forked child that has not executed
/// its program yet.
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
            // No locks on this file system.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => return Ok(()),
            Err(TryLockError::Error(e)) => return Err(VolumeError::io(path, "lock", e)),
        }
    }
}
