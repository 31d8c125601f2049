//! The engine's huge-page memory, touched before anything is measured.

use roadtrain_system::memory::HugeMemory;
use std::{io, ptr};

/// Memory that is wholly populated, on huge pages unless a measurement requests small ones.
pub(crate) struct FloorMemory(HugeMemory);

impl FloorMemory {
    /// Maps and touches `len` bytes.
    pub(crate) fn new(len: usize, huge: bool) -> io::Result<Self> {
        let memory = HugeMemory::new(len)?;
        // SAFETY: the whole memory is this value's, and every byte of it may be written.
        unsafe {
            if !huge {
                libc::madvise(memory.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE);
            }
            ptr::write_bytes(memory.as_ptr(), 0xa5, len);
        }
        Ok(Self(memory))
    }

    /// Address of the byte at `offset`.
    ///
    /// # Panics
    /// When `len` bytes from `offset` do not lie within the memory.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        self.0.range(offset as u64, len).expect("within the memory")
    }
}
