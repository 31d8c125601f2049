//! A loop device over a file of ours: a kernel block device where there is no other.
//!
//! Everything here does I/O to the mount, so none of it may run on a reactor.

use super::sys::{self, LOOP_CONFIG_BYTES};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tracing::debug;

const CONTROL: &str = "/dev/loop-control";
/// Others may be faster to take a free one.
const TRIES: u32 = 100;

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
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
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
    let Some(name) = path.file_name() else { return Ok(false) };
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    let Ok(backing) = std::fs::read_to_string(backing) else { return Ok(false) };
    let backing = Path::new(backing.trim_end_matches('\n').trim_end_matches(" (deleted)"));
    if !backing.parent().is_some_and(is_ours) {
        return Ok(false);
    }
    sys::loop_clear(&File::open(path)?).map(|()| true)
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
