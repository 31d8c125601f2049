//! Descriptors of the tags' requests, which the driver writes: mapped read-only.

#![allow(unsafe_code, reason = "memory that the driver writes")]

use super::abi::{IoDescriptor, QUEUE_DEPTH_MAX};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// The descriptors of one queue.
pub(crate) struct Descriptors {
    start: NonNull<IoDescriptor>,
    bytes: usize,
    depth: u16,
}

// SAFETY: the mapping belongs to no thread, and is only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// Maps the descriptors of queue `queue` with `depth` tags, of the device open at `device`.
    ///
    /// # Errors
    /// Returns the driver's error, for example if the size is not its own.
    pub(crate) fn map(device: BorrowedFd<'_>, queue: u16, depth: u16) -> io::Result<Self> {
        let bytes = rounded(depth);
        let offset = usize::from(queue) * rounded(QUEUE_DEPTH_MAX);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping of an open descriptor.
        let start = unsafe {
            let offset = offset as libc::off_t;
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, flags, device.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Descriptors { start, bytes, depth })
    }

    /// Returns the request of `tag`. It is valid while the server owns the tag.
    ///
    /// # Panics
    /// Panics if there is no such tag.
    pub(crate) fn get(&self, tag: u16) -> IoDescriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the address is inside the mapping. The driver writes it only before it hands the tag over. If it does
        // otherwise, this reads arbitrary plain integers, which are checked.
        unsafe { self.start.as_ptr().add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map`; no reference into it was ever given out.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Returns the bytes of the descriptors of `depth` tags, in whole pages.
fn rounded(depth: u16) -> usize {
    let bytes = usize::from(depth) * size_of::<IoDescriptor>();
    bytes.next_multiple_of(rustix::param::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn each_queue_has_its_place() {
        let mut file = tempfile::tempfile().unwrap();
        let of_queue = |queue: u64| IoDescriptor { start_sector: queue, ..IoDescriptor::default() };
        let mut bytes = vec![0u8; 2 * rounded(QUEUE_DEPTH_MAX)];
        let at = rounded(QUEUE_DEPTH_MAX) + 2 * size_of::<IoDescriptor>() + 8;
        bytes[at..at + 8].copy_from_slice(&7u64.to_ne_bytes());
        file.write_all(&bytes).unwrap();
        let first = Descriptors::map(file.as_fd(), 0, 128).unwrap();
        let second = Descriptors::map(file.as_fd(), 1, 128).unwrap();
        assert_eq!(first.get(2), of_queue(0));
        assert_eq!(second.get(2), of_queue(7));
        assert_eq!(second.get(127), of_queue(0));
    }

    #[test]
    #[should_panic(expected = "tag 2 of 2")]
    fn tags_beyond_the_queue_have_none() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 4096]).unwrap();
        Descriptors::map(file.as_fd(), 0, 2).unwrap().get(2);
    }
}
