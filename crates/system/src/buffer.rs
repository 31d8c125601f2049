//! Page-aligned buffers for the kernel, and their pools.
//!
//! A [`Buffer`] is a pointer with a length: moving one moves 32 bytes. It keeps its memory alive, so dropping it
//! anywhere, at any time, is sound. Giving it back to its [`BufferPool`] makes it cheap: no reference count changes between
//! `take` and `give`.

use roadtrain_proto::cut::Shorten;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::memory::{HugeMemory, PAGE_BYTES};

mod pool;

pub use pool::{BufferPool, PoolUsage};

/// Owned, page-aligned bytes.
///
/// New memory is zeroed, but a buffer from a pool still holds what its last user wrote.
pub struct Buffer {
    start: NonNull<u8>,
    /// Owner of the bytes; `None`: this buffer's own allocation.
    memory: Option<Arc<HugeMemory>>,
    len: u32,
    capacity: u32,
    /// Index of the pool's chunk that it was carved from; only its pool uses it.
    chunk: u32,
}

// SAFETY: a buffer is the only owner of its bytes, wherever it is moved.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer can only be read.
unsafe impl Sync for Buffer {}

/// Value of `chunk`: not carved by any pool.
const NO_CHUNK: u32 = u32::MAX;
/// Value of `chunk`: lent, so others write the same bytes.
const LENT: u32 = u32::MAX - 2;
/// Value of `chunk`: memory of another owner, which is not freed.
const FOREIGN: u32 = u32::MAX - 3;
/// Value of `chunk`: from a pool's reserve.
const RESERVED: u32 = u32::MAX - 1;

impl Buffer {
    /// A zeroed buffer of its own, outside any pool and any budget.
    ///
    /// # Panics
    /// `len` exceeds `u32::MAX`, far above any transfer size.
    #[must_use]
    #[inline]
    pub fn alloc(len: usize) -> Buffer {
        let len = u32::try_from(len).expect("a buffer holds less than 4 GiB");
        let layout = own_layout(len);
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(raw) else { handle_alloc_error(layout) };
        Buffer { start, memory: None, len, capacity: len, chunk: NO_CHUNK }
    }

    /// Takes over `capacity` bytes of `memory` at `offset`.
    ///
    /// # Safety
    /// Nothing else may use these bytes while the buffer exists.
    unsafe fn carve(
        memory: &Arc<HugeMemory>,
        offset: usize,
        capacity: usize,
        chunk: u32,
    ) -> Buffer {
        let start = memory.range(offset as u64, capacity).expect("carved inside the memory");
        let capacity = u32::try_from(capacity).expect("carved less than 4 GiB");
        // SAFETY: a pointer into a mapping is not null.
        let start = unsafe { NonNull::new_unchecked(start) };
        Buffer { start, memory: Some(Arc::clone(memory)), len: capacity, capacity, chunk }
    }

    /// Lends `len` bytes of `memory` from `offset` on, the start of a page; `None` where they are out of range.
    ///
    /// # Safety
    /// While the buffer exists, others may use these bytes by raw pointers only and on this thread, or through the
    /// kernel.
    #[must_use]
    pub unsafe fn lend(memory: &Arc<HugeMemory>, offset: u64, len: usize) -> Option<Buffer> {
        memory.range(offset, len)?;
        if !offset.is_multiple_of(PAGE_BYTES as u64) || u32::try_from(len).is_err() {
            return None;
        }
        // SAFETY: by this function's contract.
        Some(unsafe { Buffer::carve(memory, offset as usize, len, LENT) })
    }

    /// A buffer on memory of another owner, aligned as it is, which is not freed with the buffer.
    ///
    /// # Safety
    /// The bytes are initialised and valid, and nothing else uses them, while the buffer exists.
    #[must_use]
    pub unsafe fn foreign(start: NonNull<u8>, len: u32) -> Buffer {
        Buffer { start, memory: None, len, capacity: len, chunk: FOREIGN }
    }

    /// True if others may write its bytes, on this thread: see [`lend`](Self::lend).
    #[must_use]
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.chunk == LENT
    }

    /// Bytes in use.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if no byte is in use.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maximum length for [`set_len`](Self::set_len).
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sets the number of bytes in use; the bytes keep their values.
    ///
    /// # Panics
    /// `len` exceeds the capacity.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a buffer of {}", self.capacity);
        self.len = len as u32;
    }

    /// Returns the first byte, page-aligned.
    #[must_use]
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns the first byte, page-aligned.
    #[must_use]
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.memory.is_none() && self.chunk != FOREIGN {
            // SAFETY: allocated in `alloc` with this layout.
            unsafe { dealloc(self.start.as_ptr(), own_layout(self.capacity)) };
        }
    }
}

impl Shorten for Buffer {
    #[inline]
    fn shorten(&mut self, bytes: usize) {
        self.set_len(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` <= `capacity` initialised bytes, ours while we exist.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and we are borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes at {:p})", self.len, self.capacity, self.start)
    }
}

#[inline]
fn own_layout(len: u32) -> Layout {
    Layout::from_size_align((len as usize).max(1), PAGE_BYTES).expect("below 4 GiB")
}

/// Buffers of equal size, carved from one [`HugeMemory`], for load generators.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<HugeMemory>,
    stride_bytes: usize,
    buffer_len: usize,
    carved: usize,
    count: usize,
}

impl Arena {
    /// An arena for `count` buffers of `buffer_len` bytes, each starting on a page.
    pub fn new(count: usize, buffer_len: usize) -> io::Result<Arena> {
        let stride_bytes = buffer_len.max(1).next_multiple_of(PAGE_BYTES);
        let total = stride_bytes
            .checked_mul(count)
            .filter(|_| u32::try_from(stride_bytes).is_ok())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let memory = Arc::new(HugeMemory::new(total)?);
        Ok(Arena { memory, stride_bytes, buffer_len, carved: 0, count })
    }
}

impl Iterator for Arena {
    type Item = Buffer;

    /// Returns the next buffer, each once. They keep the memory alive after the arena is gone.
    fn next(&mut self) -> Option<Buffer> {
        if self.carved == self.count {
            return None;
        }
        let offset = self.carved * self.stride_bytes;
        self.carved += 1;
        // SAFETY: `carved` only grows, so no two buffers overlap.
        let mut buffer =
            unsafe { Buffer::carve(&self.memory, offset, self.stride_bytes, NO_CHUNK) };
        buffer.set_len(self.buffer_len);
        Some(buffer)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count - self.carved;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Arena {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_buffers_are_aligned_and_zeroed() {
        for len in [0, 1, 512, 4096, 1 << 20] {
            let mut buffer = Buffer::alloc(len);
            assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
            assert_eq!(&buffer[..], vec![0; len]);
            buffer.fill(7);
            assert_eq!(buffer.len(), len);
        }
    }

    #[test]
    fn moves_are_small() {
        assert!(size_of::<Option<Buffer>>() <= 32);
    }

    #[test]
    #[should_panic(expected = "8193 bytes in a buffer of 8192")]
    fn len_stays_within_capacity() {
        Buffer::alloc(8192).set_len(8193);
    }

    #[test]
    fn arena_buffers_are_apart_and_outlive_it() {
        let mut arena = Arena::new(3, 5000).unwrap();
        assert_eq!(arena.len(), 3);
        let mut buffers: Vec<Buffer> = arena.by_ref().collect();
        drop(arena);
        for (i, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&b| b == i as u8 + 1));
        }
    }
}
