//! Direct access to stores in memory: data moves straight between a socket and the store.

use crate::zeroes::zeroes;
use roadtrain_system::memory::HugeMemory;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store's own memory, for the thread that requested it. Other threads may read and write the same bytes
/// concurrently, like on any disk.
#[derive(Clone, Debug)]
pub struct InPlace {
    source: InPlaceSource,
    /// The store's capacity in bytes.
    size: Arc<AtomicU64>,
    writable: bool,
    announced: bool,
}

#[derive(Clone, Debug)]
enum InPlaceSource {
    /// First byte and length of the memory, and its owner.
    Memory(NonNull<u8>, usize, #[expect(dead_code, reason = "keeps the bytes")] Arc<HugeMemory>),
    /// Zeroes at every offset.
    Zeroes,
}

impl InPlace {
    /// Gives access to the first `size` bytes of `memory`; `size` may change, but never exceeds the memory.
    #[must_use]
    pub fn new(memory: Arc<HugeMemory>, size: Arc<AtomicU64>, writable: bool) -> InPlace {
        let Some(start) = NonNull::new(memory.as_ptr()) else { unreachable!("it is mapped") };
        let source = InPlaceSource::Memory(start, memory.len(), memory);
        InPlace { source, size, writable, announced: false }
    }

    /// Gives access to a store whose reads are zeroes.
    pub(crate) fn zeroes(size: Arc<AtomicU64>) -> InPlace {
        InPlace { source: InPlaceSource::Zeroes, size, writable: false, announced: false }
    }

    /// Returns the access for a store on top that needs an operation before each read, and writes as operations.
    #[must_use]
    pub fn announced(self) -> InPlace {
        InPlace { writable: false, announced: true, ..self }
    }

    /// True if a read is submitted as [`StoreOperation::ReadInPlace`](crate::StoreOperation::ReadInPlace) before its bytes are used.
    #[inline]
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// Returns the address of the bytes, to send from. Valid as long as the store. `None`: submit a read, which also
    /// reports errors.
    #[inline]
    #[must_use]
    pub fn read_range(&self, offset: u64, len: usize) -> Option<*const u8> {
        if !self.holds(offset, len) {
            return None;
        }
        match &self.source {
            &InPlaceSource::Memory(start, bytes, _) => {
                Some(range(start, bytes, offset, len)?.cast_const())
            }
            InPlaceSource::Zeroes => zeroes(len),
        }
    }

    /// Returns the address of the bytes, to receive into. Valid as long as the store. `None`: submit a write.
    #[inline]
    #[must_use]
    pub fn write_range(&self, offset: u64, len: usize) -> Option<*mut u8> {
        match &self.source {
            &InPlaceSource::Memory(start, bytes, _) if self.writable && self.holds(offset, len) => {
                range(start, bytes, offset, len)
            }
            _ => None,
        }
    }

    #[inline]
    fn holds(&self, offset: u64, len: usize) -> bool {
        let size = self.size.load(Ordering::Relaxed);
        offset.checked_add(len as u64).is_some_and(|end| end <= size)
    }
}

/// Returns the address of `len` bytes at `offset` of the `bytes` bytes from `start`.
#[inline]
fn range(start: NonNull<u8>, bytes: usize, offset: u64, len: usize) -> Option<*mut u8> {
    let offset = usize::try_from(offset).ok()?;
    if offset.checked_add(len)? > bytes {
        return None;
    }
    // SAFETY: offset + len <= bytes, and the bytes are one mapping.
    Some(unsafe { start.as_ptr().add(offset) })
}
