//! System calls without a safe wrapper, and memory aligned for direct I/O.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

/// Memory that begins at a multiple of an alignment.
pub(crate) struct AlignedMemory {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedMemory {
    pub(crate) fn new(length: usize, alignment: usize) -> AlignedMemory {
        let memory = vec![0; length + alignment];
        let start = memory.as_ptr().align_offset(alignment);
        AlignedMemory { memory, start, length }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// A mapped part of a file.
pub(super) struct FileMapping {
    address: *mut libc::c_void,
    mapped: usize,
    /// Offset of the wanted bytes: mappings begin at a page.
    skip: usize,
}

impl FileMapping {
    /// Maps a range, which must not be empty and must lie in the file.
    pub(super) fn new(file: RawFd, range: Range<u64>) -> io::Result<FileMapping> {
        let skip = (range.start % 4096) as usize;
        let mapped = skip + (range.end - range.start) as usize;
        let (prot, start) = (libc::PROT_READ | libc::PROT_WRITE, range.start - skip as u64);
        // SAFETY: a new mapping at an address that the kernel chooses; it overlaps no memory of this process.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                prot,
                libc::MAP_SHARED,
                file,
                start as libc::off_t,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(FileMapping { address, mapped, skip })
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `mapped` bytes and lives as long as self. Other jobs access other bytes only.
        let all = unsafe { std::slice::from_raw_parts_mut(self.address.cast::<u8>(), self.mapped) };
        &mut all[self.skip..]
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping belongs to self and is whole.
        match unsafe { libc::msync(self.address, self.mapped, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to self; no reference into it remains.
        unsafe { libc::munmap(self.address, self.mapped) };
    }
}

pub(super) fn fallocate(file: &File, mode: i32, range: &Range<u64>) -> io::Result<()> {
    let (offset, length) = (range.start as libc::off_t, (range.end - range.start) as libc::off_t);
    // SAFETY: takes numbers only.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes dirty pages and drops the page cache of the file.
pub(super) fn forget(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // SAFETY: takes numbers only.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
