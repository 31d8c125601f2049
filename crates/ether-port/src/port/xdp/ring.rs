//! The rings that an AF_XDP socket shares with the kernel: one side writes entries, the other reads them.

use crate::port::sys::Mapping;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// One ring, seen from our side of it.
pub(super) struct XdpRing<T> {
    memory: Mapping,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// Our index, not yet published to the kernel.
    index: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> XdpRing<T> {
    /// Maps the ring at `page` of the socket, of `entries` (a power of two).
    pub(super) fn map(
        fd: &OwnedFd,
        offsets: libc::xdp_ring_offset,
        entries: usize,
        page: u64,
    ) -> io::Result<XdpRing<T>> {
        debug_assert!(entries.is_power_of_two());
        let length = offsets.desc as usize + entries * mem::size_of::<T>();
        let memory = Mapping::of(fd, length, page as i64)?;
        let words = [offsets.producer, offsets.consumer, offsets.flags];
        if words.iter().any(|&at| at % 4 != 0 || at as usize + 4 > length) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(XdpRing {
            memory,
            offsets,
            mask: entries as u32 - 1,
            index: 0,
            entry: std::marker::PhantomData,
        })
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: one of the ring's words, aligned and within the mapping (see `map`), which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.memory.base().add(at as usize).as_ptr().cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = (index & self.mask) as usize * mem::size_of::<T>();
        // SAFETY: the mask keeps it within the mapping.
        unsafe { self.memory.base().add(self.offsets.desc as usize + at).as_ptr().cast() }
    }

    /// True if the kernel sleeps and needs a wake-up for new entries.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the number of written entries that the kernel has not read yet.
    #[inline]
    pub(super) fn unread(&self) -> usize {
        self.index.wrapping_sub(self.word(self.offsets.consumer).load(Ordering::Acquire)) as usize
    }

    /// Writes an entry, for which there is room; the kernel sees it after [`publish`](Self::publish).
    #[inline]
    pub(super) fn write(&mut self, entry: T) {
        // SAFETY: the kernel does not read unpublished entries, and there is room.
        unsafe { self.entry(self.index).write(entry) };
        self.index = self.index.wrapping_add(1);
    }

    /// Publishes the written entries to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.word(self.offsets.producer).store(self.index, Ordering::Release);
    }

    /// Returns the number of entries waiting to be read.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.word(self.offsets.producer).load(Ordering::Acquire).wrapping_sub(self.index) as usize
    }

    /// Returns the waiting entry `ahead` of the oldest.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> T {
        // SAFETY: the kernel has written it (`waiting` counts it) and leaves it alone until it is given back.
        unsafe { self.entry(self.index.wrapping_add(ahead as u32)).read() }
    }

    /// Gives the oldest `count` entries back.
    #[inline]
    pub(super) fn give_back(&mut self, count: usize) {
        self.index = self.index.wrapping_add(count as u32);
        self.word(self.offsets.consumer).store(self.index, Ordering::Release);
    }
}
