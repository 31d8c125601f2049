//! Has the system write back what it keeps of a block device, before that goes.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// `_IO(0x12, 97)`: writes back the device's pages, and its file system's where it has one.
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// Writes back what the system keeps of block device `path`. Gives up when nothing moves for `patience`: a
/// thread is left behind then, which ends with the device.
///
/// # Errors
/// What did not work; data may be lost.
pub(crate) fn write_back(path: &Path, patience: Duration) -> io::Result<()> {
    let (done, waiting) = channel();
    let device = path.to_owned();
    // Opening it may read it, and so wait, too.
    let body = move || drop(done.send(File::open(device).and_then(|device| flush_open(&device))));
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

fn flush_open(device: &File) -> io::Result<()> {
    // SAFETY: takes no argument; the descriptor is open.
    if unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    device.sync_all()
}

/// How many requests of the device have ended; none where the system counts nothing.
fn ended(device: &Path) -> Vec<u64> {
    let name = device.file_name().map(Path::new).unwrap_or(device);
    let stat = fs::read_to_string(Path::new("/sys/block").join(name).join("stat"));
    ended_of(&stat.unwrap_or_default())
}

/// The same, as `stat` tells it: reads, writes, discards, flushes. Times grow while anything is under way,
/// even if nothing moves.
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
    fn what_is_no_block_device_is_an_error() {
        assert!(write_back(Path::new("/dev/null"), Duration::from_secs(5)).is_err());
    }
}
