//! Writes back the system's cache of a block device, before the device goes.

#![allow(unsafe_code, reason = "a system call")]

use crate::holders::System;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// `_IO(0x12, 97)`: writes back the device's pages, and those of its file system if it has one.
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// Writes back the device like [`write_back`], after all its holders: dm, md, partitions. The topmost holder is first,
/// as its writes go to those below.
///
/// # Errors
/// Returns the failed steps with their devices; data may be lost.
pub(crate) fn write_back_all(path: &Path, patience: Duration) -> Result<(), String> {
    let system = System::new();
    let above = system.above(path);
    let describe = |shown: String, error: io::Error| format!("{shown}: {error}");
    let mut failures = Vec::new();
    for holder in above.iter().rev() {
        match write_back(&holder.path(), system.mounts_of(holder), patience) {
            // The devices below it do not progress either.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(describe(holder.shown(), error));
            }
            Err(error) => failures.push(describe(holder.shown(), error)),
            Ok(()) => {}
        }
    }
    if let Err(error) = write_back(path, Vec::new(), patience) {
        failures.push(describe(path.display().to_string(), error));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// Writes back the system's cache of block device `path`, and the file systems at `mounts`. Abandons it if nothing
/// progresses for `patience`: then a thread stays behind, which ends with the device.
///
/// # Errors
/// Returns the error; data may be lost.
fn write_back(path: &Path, mounts: Vec<PathBuf>, patience: Duration) -> io::Result<()> {
    let (done, waiting) = channel();
    let device = path.to_owned();
    // Opening the device may read it, and so block, too.
    let body = move || drop(done.send(flush(&device, &mounts)));
    thread::Builder::new().name("roadtrain-flush".into()).spawn(body)?;
    let mut before = ended(path);
    loop {
        match waiting.recv_timeout(patience) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(RecvTimeoutError::Timeout) => {
                let after = ended(path);
                if after == before {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                before = after;
            }
        }
    }
}

/// Flushes file systems first: some do not notice that their device is flushed. Without a device file, for example in a
/// container, they are all that can be reached.
fn flush(device: &Path, mounts: &[PathBuf]) -> io::Result<()> {
    let mut reached = false;
    for mount in mounts.iter().filter_map(|place| File::open(place).ok()) {
        rustix::fs::syncfs(mount)?;
        reached = true;
    }
    match File::open(device) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && reached => Ok(()),
        opened => flush_open(&opened?),
    }
}

fn flush_open(device: &File) -> io::Result<()> {
    // SAFETY: takes no argument; the descriptor is open.
    if unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    device.sync_all()
}

/// Returns the numbers of ended requests of the device; empty if the system does not count them.
fn ended(device: &Path) -> Vec<u64> {
    let name = device.file_name().map(Path::new).unwrap_or(device);
    let stat = fs::read_to_string(Path::new("/sys/class/block").join(name).join("stat"));
    ended_of(&stat.unwrap_or_default())
}

/// Parses the numbers of ended reads, writes, discards and flushes out of `stat`. Times are left out: they grow while a
/// request is in flight, even without progress.
fn ended_of(stat: &str) -> Vec<u64> {
    let numbers: Vec<u64> = stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    [0, 4, 11, 15].iter().filter_map(|&at| numbers.get(at).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_passes_is_no_progress() {
        let stuck = "146 0 8 30408 106 0 9 44740 3 100 75148 5 0 6 7 2 8";
        let later = "146 0 8 30408 106 0 9 44740 3 5100 90148 5 0 6 7 2 8";
        assert_eq!(ended_of(stuck), [146, 106, 5, 2]);
        assert_eq!(ended_of(stuck), ended_of(later));
        let moved = "146 0 8 30408 107 0 9 44740 2 5100 90148 5 0 6 7 2 8";
        assert_ne!(ended_of(stuck), ended_of(moved));
        assert!(ended_of("").is_empty());
    }

    #[test]
    fn a_file_that_is_no_block_device_is_an_error() {
        let none = write_back(Path::new("/dev/null"), Vec::new(), Duration::from_secs(5));
        assert!(none.is_err());
        let all = write_back_all(Path::new("/dev/null"), Duration::from_secs(5)).unwrap_err();
        assert!(all.starts_with("/dev/null: "), "{all}");
    }
}
