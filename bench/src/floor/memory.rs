//! Memory on huge pages, mapped and touched before anything is measured.

use std::io;
use std::ptr::{self, NonNull};

/// Anonymous memory, populated, on huge pages where the system grants them.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is reached through `&mut self` or raw pointers
// whose users answer for exclusion.
unsafe impl Send for Memory {}

const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Memory {
    /// Maps `len` bytes, rounded up to whole huge pages, aligned to one and zeroed.
    pub(crate) fn new(len: usize, huge: bool) -> io::Result<Self> {
        let len = len.next_multiple_of(HUGE_PAGE_BYTES);
        let mapped = len + HUGE_PAGE_BYTES;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let raw = unsafe { libc::mmap(ptr::null_mut(), mapped, prot, flags, -1, 0) };
        if raw == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let skip = raw.align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip` is less than a huge page, by which the mapping exceeds `len`.
        let base = unsafe { raw.cast::<u8>().add(skip) };
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range lies within the mapping made above, which nothing else uses yet; every
        // byte of it may be written.
        unsafe {
            libc::madvise(base.cast(), len, advice);
            ptr::write_bytes(base, 0xa5, len);
        }
        Ok(Self { base: NonNull::new(base).expect("mmap does not return null"), len })
    }

    /// Address of the byte at `offset`.
    ///
    /// # Panics
    /// When `len` bytes from `offset` do not lie within the memory.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: within the mapping, checked above.
        unsafe { self.base.as_ptr().add(offset) }
    }
}
