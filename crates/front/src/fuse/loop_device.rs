//! A loop device over a file of ours: a kernel block device where there is no other.
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
/// Others may be faster to take a free one.
const TRIES: u32 = 100;

/// How long nothing may move while a device is written back.
const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(3);
/// How long users of a device whose mount is gone may take to notice.
const USERS_PATIENCE: Duration = Duration::from_secs(1);
const USERS_PAUSE: Duration = Duration::from_millis(20);

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Where `struct loop_config` has them.
const FD_OFFSET: usize = 0;
const BLOCK_SIZE_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 60;
const NAME_OFFSET: usize = 64;
/// Of the name, without the NUL.
const NAME_BYTES_MAX: usize = 63;

/// A loop device that this process has made. Dropping it ends it.
#[derive(Debug)]
pub(super) struct LoopDevice {
    path: PathBuf,
    device: File,
}

impl LoopDevice {
    /// Makes one over `file`, with logical blocks of `block_bytes`.
    pub(super) fn new(file: &Path, block_bytes: u32, read_only: bool) -> io::Result<Self> {
        let backing = OpenOptions::new().read(true).write(!read_only).open(file)?;
        let control = OpenOptions::new().read(true).write(true).open(CONTROL);
        let control = control.map_err(|e| sys::driver_is_missing(CONTROL, "loop", e))?;
        let config = config(&backing, file, block_bytes, read_only);
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", sys::loop_get_free(&control)?));
            let device = OpenOptions::new().read(true).write(!read_only).open(&path)?;
            match sys::loop_configure(&device, &config) {
                Ok(()) => return Ok(LoopDevice { path, device }),
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::ResourceBusy, "no free loop device"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes back what the kernel keeps of it, of what lies on it, and of file systems there; whether that is all.
    pub(super) fn write_back(&self) -> bool {
        let written = write_back_all(&self.path, WRITE_BACK_PATIENCE);
        if let Err(error) = &written {
            warn!("{}: what was not written back is lost: {error}", self.path.display());
        }
        written.is_ok()
    }
}

/// Who uses the loop device `path`, for people to read.
pub(super) fn users(path: &Path) -> Vec<String> {
    System::new().users(path)
}

/// Whether the loop device `path` has a file, which it keeps as long as somebody uses it.
pub(super) fn has_file(path: &Path) -> bool {
    backing_file(path).is_some()
}

/// Whether somebody uses the loop device `path`, whose mount is gone. Who is about to leave may do so.
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

/// Files of a mount that is gone have their path from its root on, where nothing of that name is.
fn is_of_no_mount(file: &Path) -> bool {
    let is_ours = file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nvme0n"));
    is_ours && file.parent() == Some(Path::new("/")) && !file.exists()
}

/// The file of the loop device `device` has another size.
pub(super) fn resize(device: &Path, file: &Path) -> io::Result<()> {
    std::fs::metadata(file)?; // older kernels do not ask for the size
    sys::loop_set_capacity(&File::open(device)?)
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = sys::loop_clear(&self.device) {
            debug!("{}: {error}", self.path.display());
        }
    }
}

/// Ends the loop device `path` if it is over a file in a mount of ours that `is_ours` knows; `false`: it is
/// not there, or somebody else's.
pub(super) fn remove_leftover(path: &Path, is_ours: impl Fn(&Path) -> bool) -> io::Result<bool> {
    let Some(file) = backing_file(path) else { return Ok(false) };
    if !file.parent().is_some_and(is_ours) {
        return Ok(false);
    }
    sys::loop_clear(&File::open(path)?).map(|()| true)
}

/// The file of the loop device `path`.
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
    let mut put = |at: usize, octets: &[u8]| config[at..][..octets.len()].copy_from_slice(octets);
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
