//! Files and devices have one writer or several readers, over all processes of this machine that use these locks.
//!
//! | object | lock |
//! |---|---|
//! | a file, by any name | `flock`: exclusive, or shared to read only |
//! | a block device | `O_EXCL`, which excludes mounts and other writers, and also a lock of its node, for readers |
//! | the file of a loop device | like a file, so that it is not written both through the device and by its name. Not
//! that of a partition, which has neighbours |
//!
//! The kernel releases all locks when the process has ended, for any reason, and its last writes have ended, too:
//! opening waits for these. No lock reaches other machines.

use crate::{BlockLocation, OpenError};
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the last writes of a process that has ended.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// Longest wait if no owner is visible: a container does not see the owner of a lock.
const UNSEEN: Duration = Duration::from_secs(1);
/// Longest wait for a live owner, which perhaps only checks whether the lock is free.
const LIVE_OWNER: Duration = Duration::from_millis(50);
/// Interval of attempts meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Opens blocks that may still be locked by a process that has ended, or by one that only checks the lock.
///
/// # Errors
/// Returns the errors of `open`.
pub(super) fn once_released<T>(
    mut open: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let begin = Instant::now();
    loop {
        let limit = match open() {
            Err(OpenError::InUse { by: None, .. }) => UNSEEN,
            Err(OpenError::InUse { has_ended: true, .. }) => LAST_WRITES,
            Err(OpenError::InUse { .. }) => LIVE_OWNER,
            result => return result,
        };
        if begin.elapsed() >= limit {
            return open();
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Locks an open file.
///
/// # Errors
/// Fails if it is in use, or cannot be locked.
pub(super) fn lock_file(path: &Path, file: &File, read_only: bool) -> Result<(), OpenError> {
    match try_lock(file, read_only) {
        Ok(true) => Ok(()),
        Ok(false) => Err(in_use(path, holder(file))),
        Err(error) => Err(OpenError::io(path, "lock", error)),
    }
}

/// Locks an open device. For a loop device, its file stays locked as long as the result lives.
///
/// # Errors
/// Fails if one of them is in use, or cannot be locked.
pub(super) fn lock_device(
    path: &Path,
    device: &File,
    read_only: bool,
) -> Result<Option<File>, OpenError> {
    match try_lock_node(device, read_only) {
        Ok(true) => {}
        Ok(false) => return Err(in_use(path, user(device))),
        Err(error) => return Err(OpenError::io(path, "lock", error)),
    }
    let Some((name, backing)) = backing_file(device) else { return Ok(None) };
    match try_lock(&backing, read_only) {
        Ok(true) => Ok(Some(backing)),
        Ok(false) => {
            let by = holder(&backing).map(|by| LockUser {
                name: format!("through {} {}", name.display(), by.name),
                ..by
            });
            Err(in_use(path, by))
        }
        Err(error) => Err(OpenError::io(&name, "lock", error)),
    }
}

/// Makes the error for a device that is in use without such a lock: by a mount, or by a process that has it open.
pub(super) fn busy(path: &Path) -> OpenError {
    let file = rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    in_use(path, file.ok().and_then(|file| user(&File::from(file))))
}

/// User of a file or device.
struct LockUser {
    /// Name with "by" or "through" before it.
    name: String,
    /// True if the process has ended, or is about to.
    has_ended: bool,
}

fn in_use(path: &Path, user: Option<LockUser>) -> OpenError {
    let has_ended = user.as_ref().is_some_and(|user| user.has_ended);
    OpenError::InUse { path: path.into(), by: user.map(|user| user.name), has_ended }
}

/// Locks a file. Returns `false` if it is locked already.
fn try_lock(file: &File, read_only: bool) -> io::Result<bool> {
    match if read_only { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        // Filesystems without locks offer no protection.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a device's node, by a lock that belongs to the open file. `flock` would make udev ignore the device.
fn try_lock_node(device: &File, read_only: bool) -> io::Result<bool> {
    let kind = if read_only { libc::F_RDLCK } else { libc::F_WRLCK };
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the call only reads `whole`.
    let result = unsafe { libc::fcntl(device.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) };
    if result == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Opens the file of a loop device.
fn backing_file(device: &File) -> Option<(PathBuf, File)> {
    let number = device.metadata().ok()?.rdev();
    let (major, minor) = (libc::major(number), libc::minor(number));
    let name = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let name = fs::read_to_string(name).ok()?;
    let path = PathBuf::from(name.trim_end_matches('\n'));
    let file = File::open(&path).ok()?;
    file.metadata().ok()?.is_file().then_some((path, file))
}

/// Returns the owner of a file's lock, according to the kernel's table of locks.
fn holder(file: &File) -> Option<LockUser> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let place = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    let table = fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&table, &place)?;
    Some(process(pid))
}

/// Parses `N: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END`; waiting locks have `->` behind the number.
fn holder_in(table: &str, place: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_lock = fields.next() == Some("FLOCK");
        let pid = fields.nth(2)?.parse().ok()?;
        (is_lock && fields.next() == Some(place)).then_some(pid)
    })
}

/// Returns another process that has the same file open, if this one may see it.
fn user(file: &File) -> Option<LockUser> {
    let metadata = file.metadata().ok()?;
    if !metadata.file_type().is_block_device() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        (pid != std::process::id()).then_some((pid, path))
    });
    let has_it = |path: &Path| {
        let open = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::metadata(entry.path()).ok())
            .any(|one| is_same_file(&one, &metadata))
    };
    let found = processes.into_iter().find(|(_, path)| has_it(path))?;
    Some(process(found.0))
}

fn process(pid: u32) -> LockUser {
    if pid == std::process::id() {
        return LockUser { name: "by this target itself".into(), has_ended: false };
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    // `PID (NAME) STATE ..`; a name may contain brackets.
    let state = stat.as_deref().and_then(|stat| stat.rsplit_once(") "));
    match state {
        Some((named, state)) if !state.starts_with(['Z', 'X']) => {
            LockUser { name: format!("by process {named})"), has_ended: false }
        }
        _ => {
            let name = format!("by process {pid}, which has ended but for its last writes");
            LockUser { name, has_ended: true }
        }
    }
}

/// True if both are the same regular file, or the same device.
pub(super) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    BlockLocation::from(one).is_some_and(|place| BlockLocation::from(other) == Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_locks_names_the_holder() {
        let table = "1: POSIX  ADVISORY  WRITE 24 fe:00:6258719 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 25 fe:00:6258719 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 26 fe:00:7 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  27 00:1c:7 0 EOF\nodd\n\n";
        assert_eq!(holder_in(table, "fe:00:6258719"), Some(25));
        assert_eq!(holder_in(table, "00:1c:7"), Some(27));
        assert_eq!(holder_in(table, "fe:00:7"), None);
    }

    #[test]
    fn a_holder_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let (one, other) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        lock_file(&path, &one, false).unwrap();
        let text = lock_file(&path, &other, true).unwrap_err().to_string();
        assert!(text.contains("already in use") && text.contains("stop that first"), "{text}");
        // Some file systems have numbers of their own in the table.
        if let Some(by) = holder(&other) {
            assert!(by.name == "by this target itself" && !by.has_ended, "{}", by.name);
        }
    }

    /// Models the kernel while a write of a killed process is in flight.
    #[test]
    fn a_lock_of_a_process_that_has_ended_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let (one, other) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        let flock = std::process::Command::new("flock")
            .args(["--nonblock", "0"])
            .stdin(one.try_clone().unwrap())
            .status();
        assert!(flock.unwrap().success());
        let text = lock_file(&path, &other, true).unwrap_err().to_string();
        if holder(&other).is_some() {
            assert!(text.contains("which has ended but for its last writes"), "{text}");
        }
        let begin = Instant::now();
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(one);
        });
        once_released(|| lock_file(&path, &other, true)).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(200));
        ends.join().unwrap();
    }
}
