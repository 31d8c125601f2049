//! Memory backed with huge pages: copying cold data is most of a target's work, and 2 MiB pages save most of its TLB
//! misses.

pub mod nodes;
mod streaming;

pub use streaming::Streaming;

use rustix::process::{
    DumpableBehavior, Resource, configure_io_flusher_behavior, dumpable_behavior, getrlimit,
    set_dumpable_behavior,
};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;
use std::ptr::{self, NonNull};

/// Length of a cache line on every processor that Roadtrain is measured on.
pub const CACHE_LINE_BYTES: usize = 64;

/// Small page: the alignment of buffers, and the unit in which memory is given back.
pub const PAGE_BYTES: usize = 4096;

/// Huge page: the size and alignment of [`HugeMemory`].
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Anonymous memory, aligned to huge pages, zeroed, populated when first touched. It comes from the NUMA nodes that are
/// set for the thread that makes it.
///
/// It is shared like a disk: its owner hands out raw pointers, never references. Several reactors and the kernel may
/// read and write it at once. Concurrent writes to the same bytes leave either value.
#[derive(Debug)]
pub struct HugeMemory {
    base: NonNull<u8>,
    len: usize,
    mapped_bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and all access is through raw pointers whose users are responsible for it.
unsafe impl Send for HugeMemory {}
// SAFETY: as above; no method hands out a reference to the bytes.
unsafe impl Sync for HugeMemory {}

impl HugeMemory {
    /// Maps `len` bytes (at least one). No physical memory is taken yet.
    pub fn new(len: usize) -> io::Result<Self> {
        let too_big = || io::Error::from_raw_os_error(libc::ENOMEM);
        let mapped_bytes =
            len.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or_else(too_big)?;
        let base = map_aligned(mapped_bytes)?;
        nodes::bind(base.as_ptr(), mapped_bytes);
        // SAFETY: exactly the mapping just made. A kernel without huge pages refuses the advice, which only costs
        // speed.
        unsafe { libc::madvise(base.as_ptr().cast(), mapped_bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { base, len, mapped_bytes })
    }

    /// Maps `len` bytes with small pages, for memory of which little is touched.
    pub fn with_small_pages(len: usize) -> io::Result<Self> {
        let memory = HugeMemory::new(len)?;
        // SAFETY: exactly the mapping just made. A kernel without huge pages refuses the advice, and needs none.
        unsafe {
            libc::madvise(memory.as_ptr().cast(), memory.mapped_bytes, libc::MADV_NOHUGEPAGE)
        };
        Ok(memory)
    }

    /// First byte, aligned to [`HUGE_PAGE_BYTES`].
    #[must_use]
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes from [`as_ptr`](Self::as_ptr) on.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is zero.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of `len` bytes at `offset`, or `None` where they are out of range.
    #[must_use]
    #[inline]
    pub fn range(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: offset + len <= self.len, inside the mapping.
        Some(unsafe { self.base.as_ptr().add(offset) })
    }

    /// Fills the range with zeroes in place. False if it is out of range.
    #[must_use]
    #[inline]
    pub fn zero(&self, offset: u64, len: usize) -> bool {
        let Some(start) = self.range(offset, len) else { return false };
        // SAFETY: `range` checked the bounds.
        unsafe { ptr::write_bytes(start, 0, len) };
        true
    }

    /// Makes the range read as zeroes and gives its whole pages back to the system. False if it is out of range.
    #[must_use]
    pub fn discard(&self, offset: u64, len: usize) -> bool {
        let Some(start) = self.range(offset, len) else { return false };
        let first_page = (start as usize).next_multiple_of(PAGE_BYTES);
        let head = first_page - start as usize;
        if head >= len {
            return self.zero(offset, len);
        }
        let tail = (len - head) % PAGE_BYTES;
        let whole = len - head - tail;
        // SAFETY: head + whole + tail == len, which `range` checked. The dropped pages are whole pages of this private
        // anonymous mapping, which read as zeroes from then on.
        unsafe {
            ptr::write_bytes(start, 0, head);
            ptr::write_bytes(start.add(head + whole), 0, tail);
            let pages = start.add(head);
            if whole > 0 && libc::madvise(pages.cast(), whole, libc::MADV_DONTNEED) != 0 {
                ptr::write_bytes(pages, 0, whole);
            }
        }
        true
    }
}

impl Drop for HugeMemory {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: only this value owns the mapping; the owner of a pointer into it keeps this value alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// Prefetches the first `lines` cache lines at `at`, to be read soon.
///
/// A hint: any address is allowed, also one that is not mapped.
#[inline(always)]
pub fn prefetch(at: *const u8, lines: usize) {
    for line in 0..lines {
        prefetch_line(at.wrapping_add(line * CACHE_LINE_BYTES));
    }
}

#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn prefetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn prefetch_line(_at: *const u8) {}

/// Maps one huge page too much and cuts off both ends, since mmap itself aligns to small pages only.
fn map_aligned(bytes: usize) -> io::Result<NonNull<u8>> {
    let slack_bytes = bytes
        .checked_add(HUGE_PAGE_BYTES)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping where the kernel likes; touches no existing memory.
    let raw = unsafe { libc::mmap(ptr::null_mut(), slack_bytes, protection, flags, -1, 0) };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let head = raw.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `head` < HUGE_PAGE_BYTES, so [head, head + bytes) lies inside the mapping. The unmapped ends are outside
    // of it and were never handed out.
    unsafe {
        let base = raw.cast::<u8>().add(head);
        if head > 0 {
            libc::munmap(raw, head);
        }
        if head < HUGE_PAGE_BYTES {
            libc::munmap(base.add(bytes).cast(), HUGE_PAGE_BYTES - head);
        }
        Ok(NonNull::new_unchecked(base))
    }
}

/// Keeps this process's memory out of core dumps, and from debuggers of its user, from now on: it holds keys.
///
/// # Errors
/// The kernel's.
#[inline]
pub fn keep_secret() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Locks this process's memory from now on, as far as it is used: it is neither swapped nor dropped.
///
/// # Errors
/// The process may not lock any amount (neither CAP_IPC_LOCK nor an unlimited RLIMIT_MEMLOCK); with less, allocations
/// would fail at the limit.
pub fn lock() -> io::Result<()> {
    let may = capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::IPC_LOCK));
    if !may && getrlimit(Resource::Memlock).current.is_some() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: no content of any mapping changes.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the calling thread, and those that it starts later, allocate memory without waiting for dirty blocks. These
/// threads may be the ones that write them.
///
/// # Errors
/// The kernel's: CAP_SYS_RESOURCE is needed.
#[inline]
pub fn never_write_to_allocate() -> io::Result<()> {
    Ok(configure_io_flusher_behavior(true)?)
}

/// True if [`keep_secret`] is in effect.
#[must_use]
#[inline]
pub fn is_kept_secret() -> bool {
    dumpable_behavior().is_ok_and(|now| now == DumpableBehavior::NotDumpable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(memory: &HugeMemory) -> Vec<u8> {
        // SAFETY: the whole memory, which no other thread writes meanwhile.
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.len()) }.to_vec()
    }

    #[test]
    fn is_aligned_zeroed_and_of_the_requested_length() {
        let memory = HugeMemory::new(3 * PAGE_BYTES + 1).unwrap();
        assert_eq!(memory.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        assert_eq!(bytes(&memory), vec![0; 3 * PAGE_BYTES + 1]);
    }

    #[test]
    fn refuses_what_cannot_be_mapped() {
        assert!(HugeMemory::new(usize::MAX).is_err());
        assert!(HugeMemory::new(1 << 60).is_err());
    }

    #[test]
    fn range_stays_inside() {
        let memory = HugeMemory::new(PAGE_BYTES).unwrap();
        assert!(memory.range(0, PAGE_BYTES).is_some());
        assert!(memory.range(PAGE_BYTES as u64, 0).is_some());
        assert!(memory.range(1, PAGE_BYTES).is_none());
        assert!(memory.range(u64::MAX, 1).is_none());
        assert!(!memory.discard(PAGE_BYTES as u64, 1));
    }

    #[test]
    fn discard_zeroes_exactly_the_range() {
        let len = 8 * PAGE_BYTES;
        for (start, end) in
            [(0, len), (1, len - 1), (100, 200), (4000, 4200), (PAGE_BYTES, 3 * PAGE_BYTES), (5, 5)]
        {
            let memory = HugeMemory::new(len).unwrap();
            // SAFETY: the whole memory, ours alone.
            unsafe { ptr::write_bytes(memory.as_ptr(), 0xa5, len) };
            assert!(memory.discard(start as u64, end - start));
            let mut expected = vec![0xa5; len];
            expected[start..end].fill(0);
            assert!(bytes(&memory) == expected, "range {start}..{end}");
        }
    }
}
