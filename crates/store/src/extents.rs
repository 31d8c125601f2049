//! Extents of a file in its file system, with a flag for those shared with other files.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
/// Most extents of one call.
const COUNT: usize = 128;

const LAST: u32 = 0x1;
/// The file system does not know the location (yet).
const UNKNOWN: u32 = 0x2;
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

/// Passes the extents of `file` to `each` in order. Holes have none; allocated but unwritten ranges have.
///
/// # Errors
/// Fails if the file system does not report extents (`EOPNOTSUPP`), or has an error.
pub fn extents(file: &File, mut each: impl FnMut(FileExtent)) -> io::Result<()> {
    let mut start = 0;
    loop {
        let mut request = FiemapRequest {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            count: COUNT as u32,
            reserved: 0,
            extents: [RawExtent::default(); COUNT],
        };
        // SAFETY: the descriptor is open; the kernel writes the header and at most `count` extents, for which there is
        // room.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let found = request.extents.get(..request.mapped as usize).unwrap_or(&request.extents);
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
