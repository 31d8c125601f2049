//! Files and block devices: safe opening, and the features that they turn out to support.

use super::lock::{self, is_same_file};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::block_access::{self, BlockAccess};
use crate::identity::block_bytes;
use crate::resize::{BlockLocation, remove_if};
use crate::{BlockLimits, LastSync, OpenError, identity, limits};
use roadtrain_system::memory::PAGE_BYTES;
use rustix::fs::{AtFlags, StatxFlags, fstatfs, ioctl_blksszget, statx};

/// A file or block device.
#[derive(Debug)]
pub(crate) struct BlockFile {
    path: PathBuf,
    /// Descriptor through the page cache; used unless direct I/O is.
    file: File,
    /// Descriptor for direct I/O. The data descriptor has the lock, so a write in the kernel keeps it, even if the
    /// process is killed.
    direct: Option<File>,
    /// File of a loop device; only locked.
    #[allow(dead_code, reason = "held for its lock")]
    behind: Option<File>,
    /// True once direct I/O has failed for an aligned request.
    direct_refused: AtomicBool,
    punch_refused: AtomicBool,
    zero_refused: AtomicBool,
    is_block: bool,
    /// Bytes of the blocks that are read and written: logical blocks, or larger ones that the storage requires.
    io_bytes: u32,
    /// True if a process serves the file by FUSE.
    is_fuse: bool,
    read_only: bool,
    /// True if opening wrote the attribute with the block size.
    keeps_block_bytes: bool,
    opening: FileChange,
    /// Declared size in bytes; `None` to query it.
    fixed_bytes: Option<u64>,
    failures: AtomicU64,
}

/// Blocks of disks with 4,096 bytes (4Kn), for which smaller logical blocks are emulated.
const PHYSICAL_BYTES: u32 = 4096;

/// Type of FUSE file systems in statfs(2).
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

fn is_fuse(file: &File) -> bool {
    fstatfs(file).is_ok_and(|answer| answer.f_type as u64 == FUSE_SUPER_MAGIC)
}

/// Change that opening has made to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileChange {
    Found,
    Created,
    Grown { from: u64, to: u64 },
}

/// Modes of fallocate that a filesystem may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocate {
    /// Makes a hole, which reads as zeroes.
    Punch,
    /// Writes zeroes and keeps the space.
    Zero,
}

impl Allocate {
    pub(crate) fn mode(self) -> i32 {
        libc::FALLOC_FL_KEEP_SIZE
            | match self {
                Allocate::Punch => libc::FALLOC_FL_PUNCH_HOLE,
                Allocate::Zero => libc::FALLOC_FL_ZERO_RANGE,
            }
    }
}

impl BlockFile {
    pub(crate) fn open_file(
        access: &BlockAccess,
        path: &Path,
        size: Option<u64>,
        create: bool,
    ) -> Result<BlockFile, OpenError> {
        if let Some(size) = size {
            access.whole_blocks(&path.display().to_string(), size)?;
        }
        check_is_file(path)?;
        let (file, created) = match open(path, access.read_only, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !access.read_only => {
                if size.is_none() {
                    return Err(OpenError::SizeMissing { path: path.into() });
                }
                if !create {
                    return Err(refusal(path, "open", access.read_only, error));
                }
                (create_new(path).map_err(|e| refusal(path, "create", access.read_only, e))?, true)
            }
            Err(error) => return Err(refusal(path, "open", access.read_only, error)),
            Ok(file) => (file, false),
        };
        let opened = BlockFile::with_file(access, path, file, size);
        if !created {
            return opened;
        }
        let kept = opened.and_then(|disk| {
            persist_entry(path, &disk.file)?;
            Ok(BlockFile { opening: FileChange::Created, ..disk })
        });
        kept.inspect_err(|error| undo_creation(path, error))
    }

    /// Finishes opening; the caller removes a new file if this fails.
    fn with_file(
        access: &BlockAccess,
        path: &Path,
        file: File,
        size: Option<u64>,
    ) -> Result<BlockFile, OpenError> {
        block_bytes::check(path, &file, access.lba_bytes)?;
        let planned = size.or_else(|| file.metadata().ok().map(|metadata| metadata.len()));
        let io_bytes = io_bytes_of_file(&file, access.lba_bytes, planned);
        let direct = open_direct(path, &file, io_bytes, access.read_only);
        lock::lock_file(path, direct.as_ref().unwrap_or(&file), access.read_only)?;
        let io_bytes = if direct.is_some() { io_bytes } else { access.lba_bytes };
        let disk = BlockFile::new(path, file, false, access.read_only, io_bytes);
        let disk = BlockFile { direct, ..disk };
        let from = disk.bytes().map_err(|e| OpenError::io(path, "examine", e))?;
        let to = size.map_or(Ok(from), |size| disk.allow(size, access.lba_bytes))?;
        access.whole_blocks(&path.display().to_string(), to)?;
        let keeps_block_bytes =
            !access.read_only && block_bytes::keep(path, &disk.file, access.lba_bytes)?;
        let disk = BlockFile { keeps_block_bytes, ..disk };
        let grown = disk.grow_to(to).inspect_err(|_| disk.undo_opening())?;
        let opening = if grown { FileChange::Grown { from, to } } else { FileChange::Found };
        Ok(BlockFile { opening, ..disk })
    }

    pub(crate) fn open_block(access: &BlockAccess, path: &Path) -> Result<BlockFile, OpenError> {
        let metadata =
            std::fs::metadata(path).map_err(|e| refusal(path, "open", access.read_only, e))?;
        if !metadata.file_type().is_block_device() {
            let advice = "use the kind for files";
            return Err(OpenError::WrongType {
                path: path.into(),
                expected: "block device",
                advice,
            });
        }
        // O_EXCL without O_CREAT: the kernel refuses devices that are mounted or claimed.
        let exclusive = if access.read_only { 0 } else { libc::O_EXCL };
        let file = open(path, access.read_only, libc::O_DIRECT | exclusive)
            .map_err(|e| refusal(path, "open", access.read_only, e))?;
        let io_bytes = io_bytes_of_device(path, &file, access.lba_bytes)?;
        let behind = lock::lock_device(path, &file, access.read_only)?;
        let disk = BlockFile::new(path, file, true, access.read_only, io_bytes);
        let disk = BlockFile { behind, ..disk };
        let bytes = disk.bytes().map_err(|e| OpenError::io(path, "read the size of", e))?;
        if bytes < u64::from(access.lba_bytes) {
            return Err(OpenError::Empty { name: path.display().to_string() });
        }
        Ok(disk)
    }

    /// Opens the blocks of another process read-only, without a lock.
    pub(crate) fn observe(access: &BlockAccess, path: &Path) -> Result<BlockFile, OpenError> {
        let is_block = access.is_device;
        let flags = if is_block { libc::O_DIRECT } else { 0 };
        let file = open(path, true, flags).map_err(|e| refusal(path, "open", true, e))?;
        if is_block {
            let io_bytes = io_bytes_of_device(path, &file, access.lba_bytes)?;
            return Ok(BlockFile::new(path, file, true, true, io_bytes));
        }
        block_bytes::check(path, &file, access.lba_bytes)?;
        let bytes = file.metadata().ok().map(|metadata| metadata.len());
        let io_bytes = io_bytes_of_file(&file, access.lba_bytes, bytes);
        let direct = open_direct(path, &file, io_bytes, true);
        let io_bytes = if direct.is_some() { io_bytes } else { access.lba_bytes };
        Ok(BlockFile { direct, ..BlockFile::new(path, file, false, true, io_bytes) })
    }

    /// True if the lock could be taken; it is not kept.
    pub(crate) fn is_free(access: &BlockAccess, path: &Path) -> bool {
        if access.is_device {
            return BlockFile::open_block(access, path).is_ok();
        }
        let file = open(path, access.read_only, 0);
        file.is_ok_and(|file| lock::lock_file(path, &file, access.read_only).is_ok())
    }

    pub(crate) fn adopt(file: File, bytes: u64, lba_bytes: u32) -> BlockFile {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let disk = BlockFile::new(&path, file, false, false, lba_bytes);
        BlockFile { fixed_bytes: Some(bytes), ..disk }
    }

    fn new(path: &Path, file: File, is_block: bool, read_only: bool, io_bytes: u32) -> BlockFile {
        BlockFile {
            path: path.into(),
            is_fuse: is_fuse(&file),
            file,
            direct: None,
            behind: None,
            direct_refused: AtomicBool::new(false),
            punch_refused: AtomicBool::new(false),
            zero_refused: AtomicBool::new(false),
            is_block,
            io_bytes,
            read_only,
            keeps_block_bytes: false,
            opening: FileChange::Found,
            fixed_bytes: None,
            failures: AtomicU64::new(0),
        }
    }

    /// Returns true if the kernel may wait for the file's server while it takes a request from the ring. It polls FUSE
    /// files, and a server that hangs would block the whole thread.
    pub(crate) fn may_hold_submission(&self) -> bool {
        self.is_fuse
    }

    /// Returns the bytes of the blocks that are read and written.
    pub(crate) fn io_bytes(&self) -> u32 {
        self.io_bytes
    }

    /// Returns the path at which it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current size.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        if let Some(bytes) = self.fixed_bytes {
            return Ok(bytes);
        }
        if self.is_block {
            // The file position is not used otherwise: all I/O has an explicit offset.
            (&self.file).seek(SeekFrom::End(0))
        } else {
            Ok(self.file.metadata()?.len())
        }
    }

    /// Checks that it can have the size `bytes`: a file only grows, so no data is cut off.
    pub(crate) fn allow(&self, bytes: u64, lba_bytes: u32) -> Result<u64, OpenError> {
        let path = || self.path.clone();
        block_access::whole_blocks(&self.path.display().to_string(), bytes, lba_bytes)?;
        let now = self.bytes().map_err(|e| OpenError::io(&self.path, "read the size of", e))?;
        match bytes {
            _ if now == bytes => Ok(bytes),
            _ if self.is_block || self.fixed_bytes.is_some() => {
                Err(OpenError::FixedSize { path: path() })
            }
            _ if now > bytes => {
                Err(OpenError::WouldCut { path: path(), bytes: now, requested: bytes })
            }
            _ if self.read_only => {
                Err(OpenError::TooSmall { path: path(), bytes: now, requested: bytes })
            }
            _ => Ok(bytes),
        }
    }

    /// Grows a file to an allowed size. True if it was shorter.
    pub(crate) fn grow_to(&self, bytes: u64) -> Result<bool, OpenError> {
        let now = self.bytes().map_err(|e| OpenError::io(&self.path, "read the size of", e))?;
        if self.is_block || now >= bytes {
            return Ok(false);
        }
        self.file.set_len(bytes).map_err(|e| OpenError::io(&self.path, "grow", e))?;
        Ok(true)
    }

    /// Undoes a growth that no host has seen.
    pub(crate) fn cut_back(&self, from: u64, to: u64) {
        let cut = || match self.bytes()? {
            bytes if bytes == to => self.file.set_len(from),
            _ => Ok(()), // another process has changed the size since
        };
        if let Err(error) = cut() {
            tracing::warn!(path = %self.path.display(), "cannot cut it to {from} bytes again: {error}");
        }
    }

    /// Undoes the changes of an opening that is not used.
    pub(crate) fn undo_opening(&self) {
        if self.keeps_block_bytes {
            block_bytes::forget(&self.path, &self.file);
        }
        match self.opening {
            FileChange::Found => {}
            FileChange::Grown { from, to } => self.cut_back(from, to),
            FileChange::Created => {
                if let Err(error) = remove_if(&self.path, self.place()) {
                    tracing::warn!(path = %self.path.display(), "cannot remove it again: {error}");
                }
            }
        }
    }

    /// Returns the location of the blocks, independent of the path.
    pub(crate) fn place(&self) -> Option<BlockLocation> {
        BlockLocation::from(&self.file.metadata().ok()?)
    }

    /// Returns the unique identity of its blocks.
    pub(crate) fn identity(&self) -> Result<u128, OpenError> {
        if self.is_block {
            let found = identity::of_block(&self.path, &self.file);
            return found.map_err(|e| OpenError::io(&self.path, "identify", e));
        }
        identity::of_file(&self.path, &self.file, self.read_only)
    }

    /// Returns its I/O limits: those of the kernel for a device's queue, the defaults for a file.
    pub(crate) fn limits(&self, lba_shift: u8) -> BlockLimits {
        let Some(BlockLocation::Block(number)) = self.place() else {
            return BlockLimits::default();
        };
        limits::of_device(number, lba_shift)
    }

    /// Returns the descriptor for data; `cached` requests the one that takes any alignment.
    pub(crate) fn data_fd(&self, cached: bool) -> RawFd {
        match &self.direct {
            Some(direct) if !cached && !self.direct_refused.load(Ordering::Relaxed) => {
                direct.as_raw_fd()
            }
            _ => self.file.as_raw_fd(),
        }
    }

    /// Returns the file of the page cache descriptor.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the descriptor for everything else; always the same, since each reports write-back errors once.
    pub(crate) fn control_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Writes everything to stable storage. Blocks the thread.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Returns a flush to run after it is closed. It holds no lock and no claim, so it does not prevent another open.
    pub(crate) fn last_sync(&self) -> LastSync {
        let file = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        Box::new(|| file.and_then(|file| file.sync_data()))
    }

    /// True if a descriptor for direct I/O exists.
    pub(crate) fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Switches to the page cache for all later I/O.
    pub(crate) fn refuse_direct(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn can(&self, how: Allocate) -> bool {
        !self.refused(how).load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self, how: Allocate) {
        self.refused(how).store(true, Ordering::Relaxed);
    }

    fn refused(&self, how: Allocate) -> &AtomicBool {
        match how {
            Allocate::Punch => &self.punch_refused,
            Allocate::Zero => &self.zero_refused,
        }
    }

    /// Logs a failed operation; at growing intervals, since a broken disk fails often.
    pub(crate) fn report(&self, operation: &str, offset: u64, error: &io::Error) {
        let count = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let path = self.path.display();
            tracing::warn!(%path, operation, offset, %error, count, "store operation failed");
        }
    }
}

fn open(path: &Path, read_only: bool, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path)
}

/// Checks the type before opening, since opening a FIFO would block until its other end is opened. A missing file may
/// be created.
fn check_is_file(path: &Path) -> Result<(), OpenError> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let advice = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_block_device() => "use the kind for block devices",
        _ => "choose another path",
    };
    Err(OpenError::WrongType { path: path.into(), expected: "regular file", advice })
}

/// Creates a file that only its owner may access, whatever the umask is: it is a disk, with all its content.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Removes a new file that cannot be used, unless another process has locked it first: then it belongs to that one.
fn undo_creation(path: &Path, error: &OpenError) {
    if !matches!(error, OpenError::InUse { .. }) {
        let _ = std::fs::remove_file(path);
    }
}

/// Makes a new file's directory entry survive a power failure.
fn persist_entry(path: &Path, file: &File) -> Result<(), OpenError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    file.sync_all()
        .and_then(|()| File::open(parent)?.sync_all())
        .map_err(|e| OpenError::io(path, "store", e))
}

/// Returns the bytes of the blocks to read and write a device with: those of `lba_bytes`, or larger logical blocks.
fn io_bytes_of_device(path: &Path, file: &File, lba_bytes: u32) -> Result<u32, OpenError> {
    let logical_bytes =
        ioctl_blksszget(file).map_err(|e| OpenError::io(path, "examine", e.into()))?;
    match logical_bytes {
        _ if logical_bytes <= lba_bytes => Ok(lba_bytes),
        _ if logical_bytes == PHYSICAL_BYTES => Ok(PHYSICAL_BYTES),
        _ => Err(OpenError::LogicalBlock { path: path.into(), logical_bytes }),
    }
}

/// Returns the bytes of the blocks to read and write a file of `bytes` with: larger ones than `lba_bytes` if its file
/// system has direct I/O for those only.
fn io_bytes_of_file(file: &File, lba_bytes: u32, bytes: Option<u64>) -> u32 {
    let is_whole = bytes.is_some_and(|bytes| bytes.is_multiple_of(PHYSICAL_BYTES.into()));
    let is_small = lba_bytes < PHYSICAL_BYTES && !direct_fits(file, lba_bytes);
    let is_emulated = is_small && is_whole && direct_fits(file, PHYSICAL_BYTES);
    if is_emulated { PHYSICAL_BYTES } else { lba_bytes }
}

/// Opens a second descriptor that bypasses the page cache, if filesystem and block size allow it.
fn open_direct(path: &Path, file: &File, io_bytes: u32, read_only: bool) -> Option<File> {
    if !direct_fits(file, io_bytes) {
        return None;
    }
    let direct = open(path, read_only, libc::O_DIRECT).ok()?;
    is_same_file(&file.metadata().ok()?, &direct.metadata().ok()?).then_some(direct)
}

/// True if whole blocks in page-aligned buffers satisfy the filesystem's rules for direct I/O. Kernels that do not
/// report the rules (before 6.1) are tried.
fn direct_fits(file: &File, io_bytes: u32) -> bool {
    let answer = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let alignment = answer.ok().filter(|answer| answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let Some(answer) = alignment else { return true };
    let (memory, offset) = (answer.stx_dio_mem_align, answer.stx_dio_offset_align);
    offset != 0 && offset <= io_bytes && memory as usize <= PAGE_BYTES
}

fn refusal(path: &Path, action: &'static str, read_only: bool, error: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            let what =
                if action == "create" { "directory to create it in" } else { "file or device" };
            OpenError::NotFound { path, what }
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) if action == "create" => {
            OpenError::Uncreatable { path }
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => OpenError::Permission { path, read_only },
        Some(libc::EBUSY | libc::ETXTBSY) => lock::busy(&path),
        _ => OpenError::Io { path, action, source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_whose_lock_was_faster() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let access = BlockAccess { lba_bytes: 4096, read_only: false, is_device: false };
        let new = create_new(&path).unwrap();
        let winner = BlockFile::open_file(&access, &path, Some(4096), true).unwrap();
        let error = BlockFile::with_file(&access, &path, new, Some(4096)).unwrap_err();
        undo_creation(&path, &error);
        assert!(matches!(error, OpenError::InUse { .. }) && path.exists(), "{error}");
        drop(winner);
        undo_creation(&path, &OpenError::Empty { name: "disk".into() });
        assert!(!path.exists());
    }
}
