//! Loop devices over files of a mount: kernel block devices for namespaces.
//!
//! Everything here does I/O to the mount, so none of it may run on a reactor.

use super::sys::{self, LOOP_CONFIG_BYTES};
use crate::holders::System;
use crate::writeback::write_back_all;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

const CONTROL: &str = "/dev/loop-control";
/// Attempts to get a free loop device: another process may take it first.
const TRIES: u32 = 100;

/// Longest time without progress while a device is written back.
const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for users of a device whose mount is gone to notice.
const USERS_PATIENCE: Duration = Duration::from_secs(1);
const USERS_PAUSE: Duration = Duration::from_millis(20);

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Offsets of the members of `struct loop_config`.
const FD_OFFSET: usize = 0;
const BLOCK_SIZE_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 60;
const NAME_OFFSET: usize = 64;
/// Bytes of the name, without the NUL.
const NAME_BYTES_MAX: usize = 63;

/// A loop device that this process has made. Dropping it detaches it.
#[derive(Debug)]
pub(super) struct FuseLoopDevice {
    path: PathBuf,
    device: File,
}

impl FuseLoopDevice {
    /// Makes a loop device over `file` with logical blocks of `block_bytes`.
    pub(super) fn new(file: &Path, block_bytes: u32, read_only: bool) -> io::Result<Self> {
        let backing = OpenOptions::new().read(true).write(!read_only).open(file)?;
        let control = OpenOptions::new().read(true).write(true).open(CONTROL);
        let control = control.map_err(|e| sys::driver_is_missing(CONTROL, "loop", e))?;
        let config = config(&backing, file, block_bytes, read_only);
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", sys::loop_get_free(&control)?));
            let device = OpenOptions::new().read(true).write(!read_only).open(&path)?;
            match sys::loop_configure(&device, &config) {
                Ok(()) => return Ok(FuseLoopDevice { path, device }),
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::ResourceBusy, "no free loop device"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes back the kernel's cache of the device and of file systems on it. True if all was written.
    pub(super) fn write_back(&self) -> bool {
        let written = write_back_all(&self.path, WRITE_BACK_PATIENCE);
        if let Err(error) = &written {
            warn!("{}: what was not written back is lost: {error}", self.path.display());
        }
        written.is_ok()
    }
}

/// Returns the users of the loop device `path` as text for people.
pub(super) fn users(path: &Path) -> Vec<String> {
    System::new().users(path)
}

/// True if the loop device `path` still has a file, which it keeps while it is open.
pub(super) fn has_file(path: &Path) -> bool {
    backing_file(path).is_some()
}

/// True if the loop device `path`, whose mount is gone, stays in use after a short wait for its users to leave.
pub(super) fn outlives_its_mount(path: &Path) -> bool {
    let last = Instant::now() + USERS_PATIENCE;
    while backing_file(path).is_some_and(|file| is_of_no_mount(&file)) {
        if Instant::now() >= last {
            return true;
        }
        std::thread::sleep(USERS_PAUSE);
    }
    false
}

/// True if `file` belongs to a mount that is gone: such paths begin at the mount's root, where no such file exists.
fn is_of_no_mount(file: &Path) -> bool {
    let is_ours = file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nvme0n"));
    is_ours && file.parent() == Some(Path::new("/")) && !file.exists()
}

/// Makes the loop device `device` take over the size of `file`.
pub(super) fn resize(device: &Path, file: &Path) -> io::Result<()> {
    std::fs::metadata(file)?; // older kernels do not query the size
    sys::loop_set_capacity(&File::open(device)?)
}

impl Drop for FuseLoopDevice {
    fn drop(&mut self) {
        if let Err(error) = sys::loop_clear(&self.device) {
            debug!("{}: {error}", self.path.display());
        }
    }
}

/// Detaches the loop device `path` if its file is in a mount for which `is_ours` holds. Returns `false` if there is no
/// such device, or if it belongs to another program.
pub(super) fn remove_leftover(path: &Path, is_ours: impl Fn(&Path) -> bool) -> io::Result<bool> {
    let Some(file) = backing_file(path) else { return Ok(false) };
    if !file.parent().is_some_and(is_ours) {
        return Ok(false);
    }
    sys::loop_clear(&File::open(path)?).map(|()| true)
}

/// Detaches the loop devices over files of the mount at `folder`, whose process is gone.
pub(super) fn remove_all_over(folder: &Path) {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for path in entries.map(|entry| Path::new("/dev").join(entry.file_name())) {
        if let Err(error) = remove_leftover(&path, |parent| parent == folder) {
            debug!("{}: {error}", path.display());
        }
    }
}

/// Returns the file of the loop device `path`.
fn backing_file(path: &Path) -> Option<PathBuf> {
    let file = Path::new("/sys/block").join(path.file_name()?).join("loop/backing_file");
    let file = std::fs::read_to_string(file).ok()?;
    Some(PathBuf::from(file.trim_end_matches('\n').trim_end_matches(" (deleted)")))
}

fn config(
    backing: &File,
    file: &Path,
    block_bytes: u32,
    read_only: bool,
) -> [u8; LOOP_CONFIG_BYTES] {
    let flags = LO_FLAGS_DIRECT_IO | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let mut config = [0; LOOP_CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| config[at..][..bytes.len()].copy_from_slice(bytes);
    put(FD_OFFSET, &backing.as_raw_fd().to_ne_bytes());
    put(BLOCK_SIZE_OFFSET, &block_bytes.to_ne_bytes());
    put(FLAGS_OFFSET, &flags.to_ne_bytes());
    let name = file.as_os_str().as_bytes();
    put(NAME_OFFSET, &name[..name.len().min(NAME_BYTES_MAX)]);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_the_kernels() {
        let file = tempfile::tempfile().unwrap();
        let long = PathBuf::from("/".to_owned() + &"x".repeat(100));
        let config = config(&file, &long, 4096, true);
        assert_eq!(config[0..4], file.as_raw_fd().to_ne_bytes());
        assert_eq!(config[4..8], 4096u32.to_ne_bytes());
        assert_eq!(config[60..64], 17u32.to_ne_bytes());
        assert_eq!((config[64], config[126], config[127]), (b'/', b'x', 0));
    }
}
