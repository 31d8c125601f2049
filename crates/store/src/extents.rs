//! Extents of a file in its file system, with a flag for those shared with other files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
/// Most extents of one call.
const COUNT: usize = 128;

/// Flag of a request: what is not written yet is written first.
const SYNC: u32 = 0x1;

const LAST: u32 = 0x1;
/// The file system does not know the location (yet).
const UNKNOWN: u32 = 0x2;
/// Location unknown or not written, encoded, encrypted, not aligned, within metadata, packed with other files' ends.
const INEXACT: u32 = UNKNOWN | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;
/// Allocated, and reads as zeroes.
const UNWRITTEN: u32 = 0x800;
const SHARED: u32 = 0x2000;

/// Contiguous bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset on the file system's device, in bytes.
    pub physical: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// True if other files share them, so that a write to them takes new space.
    pub shared: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap`.
#[repr(C)]
struct FiemapRequest {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; COUNT],
}

/// Content of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentContent {
    /// Zeroes, allocated or not.
    Zero,
    /// Data somewhere.
    Data,
    /// Data in an extent that other files share, from this offset of the file system's device on.
    Shared(u64),
}

/// Contiguous bytes of a file with their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocatedExtent {
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// Content.
    pub(crate) content: ExtentContent,
}

/// Passes the extents of `file` to `each` in order. Holes have none; allocated but unwritten ranges have.
///
/// # Errors
/// Fails if the file system does not report extents (`EOPNOTSUPP`), or has an error.
pub fn extents(file: &File, mut each: impl FnMut(FileExtent)) -> io::Result<()> {
    let mut start = 0;
    loop {
        let request = query(file, start, 0)?;
        let found = request.found();
        for raw in found {
            let shared = raw.flags & SHARED != 0 && raw.flags & UNKNOWN == 0;
            each(FileExtent { physical: raw.physical, bytes: raw.length, shared });
        }
        match found.last() {
            Some(last) if last.flags & LAST == 0 && last.length > 0 => {
                start = last.logical.saturating_add(last.length);
            }
            _ => return Ok(()),
        }
    }
}

/// Returns the next extents from `start` on, as many as one call reports; none at the end. Completed writes are
/// included.
///
/// # Errors
/// As [`extents`].
pub(crate) fn located_extents(file: &File, start: u64) -> io::Result<Vec<LocatedExtent>> {
    let request = query(file, start, SYNC)?;
    let located = |raw: &RawExtent| LocatedExtent {
        offset: raw.logical,
        bytes: raw.length,
        content: match raw.flags {
            flags if flags & UNWRITTEN != 0 && flags & INEXACT == 0 => ExtentContent::Zero,
            flags if flags & SHARED != 0 && flags & INEXACT == 0 => {
                ExtentContent::Shared(raw.physical)
            }
            _ => ExtentContent::Data,
        },
    };
    Ok(request.found().iter().map(located).collect())
}

impl FiemapRequest {
    fn found(&self) -> &[RawExtent] {
        self.extents.get(..self.mapped as usize).unwrap_or(&self.extents)
    }
}

fn query(file: &File, start: u64, flags: u32) -> io::Result<Box<FiemapRequest>> {
    let mut request = Box::new(FiemapRequest {
        start,
        length: u64::MAX - start,
        flags,
        mapped: 0,
        count: COUNT as u32,
        reserved: 0,
        extents: [RawExtent::default(); COUNT],
    });
    // SAFETY: the descriptor is open; the kernel writes the header and at most `count` extents, for which there is
    // room.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *request) };
    match result {
        0 => Ok(request),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_have_no_extents_and_many_extents_come_in_their_order() {
        let file = tempfile::tempfile().unwrap();
        let block = [7; 4096];
        let count = COUNT as u64 + 10;
        for at in 0..count {
            file.write_all_at(&block, at << 20).unwrap();
        }
        file.sync_all().unwrap();
        let (mut bytes, mut number) = (0, 0);
        match extents(&file, |extent| (bytes, number) = (bytes + extent.bytes, number + 1)) {
            Ok(()) => assert_eq!((bytes, number), (count * 4096, count)),
            Err(error) => crate::skipped::skipped(format!("no extents here: {error}")),
        }
    }
}
