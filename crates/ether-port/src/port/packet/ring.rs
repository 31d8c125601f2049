//! The receive ring of a packet socket: memory that the kernel copies frames to and this process reads.
//!
//! TPACKET_V2, one frame a slot. Version 3 packs frames into blocks and delivers a block when it is full or its timer
//! runs out. The timer is 1 ms at least: too late for a round trip of 30 us. A block per frame would be version 2.

use crate::port::sys::{self, Mapping};
use libc::{TP_STATUS_KERNEL, TP_STATUS_USER, TPACKET2_HDRLEN, tpacket_req, tpacket2_hdr};
use roadtrain_system::memory::prefetch;
use std::ffi::c_int;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that the kernel leaves before a frame in addition to the slot's header, including alignment.
const GAP_BYTES: usize = 32;
const LINE_BYTES: usize = 64;
/// Bytes of a block. Blocks are physically contiguous memory: larger ones are hard to get.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of a block for frames of 64 KiB, which would waste a quarter of the usual block.
const LARGE_BLOCK_BYTES: usize = 1 << 20;
const SLOTS_MIN: usize = 64;
const SLOTS_MAX: usize = 4096;
/// Default size: 1 to 16 MiB are as fast; 128 requests with a frame each and their replies must fit.
const RING_BYTES: usize = 4 << 20;
const RING_SLOTS: usize = 256;
/// Cache lines of the next frame to prefetch.
const PREFETCH_LINES: usize = 2;

/// Division of a ring's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingLayout {
    slot: usize,
    slots_per_block: usize,
    block: usize,
    blocks: usize,
}

impl RingLayout {
    /// Makes a layout for frames of up to `frame` bytes, including Ethernet's header, in about `bytes` bytes, or in the
    /// default size.
    fn new(frame: usize, bytes: Option<usize>) -> RingLayout {
        let slot = (TPACKET2_HDRLEN + GAP_BYTES + frame).next_multiple_of(LINE_BYTES);
        let block = if slot > BLOCK_BYTES / 4 { LARGE_BLOCK_BYTES } else { BLOCK_BYTES };
        let slots_per_block = block / slot;
        let bytes = bytes.unwrap_or(RING_BYTES.max(RING_SLOTS * slot));
        let slots = (bytes / slot).clamp(SLOTS_MIN, SLOTS_MAX);
        RingLayout { slot, slots_per_block, block, blocks: slots.div_ceil(slots_per_block) }
    }

    fn slots(&self) -> usize {
        self.blocks * self.slots_per_block
    }

    fn offset(&self, slot: usize) -> usize {
        slot / self.slots_per_block * self.block + slot % self.slots_per_block * self.slot
    }
}

pub(super) struct PacketRing {
    memory: Mapping,
    layout: RingLayout,
    next: usize,
}

impl PacketRing {
    /// Makes the ring of a socket that is not bound yet.
    pub(super) fn new(fd: &OwnedFd, frame: usize, bytes: Option<usize>) -> io::Result<PacketRing> {
        let layout = RingLayout::new(frame, bytes);
        let version: c_int = libc::tpacket_versions::TPACKET_V2 as c_int;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = tpacket_req {
            tp_block_size: layout.block as u32,
            tp_block_nr: layout.blocks as u32,
            tp_frame_size: layout.slot as u32,
            tp_frame_nr: layout.slots() as u32,
        };
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Mapping::of(fd, layout.block * layout.blocks, 0)?;
        Ok(PacketRing { memory, layout, next: 0 })
    }

    /// Returns the number of frames that it holds.
    pub(super) fn slots(&self) -> usize {
        self.layout.slots()
    }

    /// Passes the oldest frame to `show`, from Ethernet's header on, without a tag (empty if it did not fit into its
    /// slot), then gives its slot back. True if there was one.
    #[inline]
    pub(super) fn take(&mut self, show: impl FnOnce(&[u8])) -> bool {
        let offset = self.layout.offset(self.next);
        debug_assert!(offset + self.layout.slot <= self.memory.length());
        // SAFETY: the layout's slots lie within the mapping.
        let slot = unsafe { self.memory.base().add(offset).as_ptr() };
        // SAFETY: a slot begins with its header, aligned to a cache line; the kernel writes the status atomically.
        let status =
            unsafe { AtomicU32::from_ptr(slot.add(offset_of!(tpacket2_hdr, tp_status)).cast()) };
        if status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
            return false;
        }
        self.next = if self.next + 1 == self.slots() { 0 } else { self.next + 1 };
        self.prefetch_next();
        // SAFETY: the slot is ours while the status says so; any bytes are a valid header.
        let header = unsafe { slot.cast::<tpacket2_hdr>().read() };
        let (start, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        if length < header.tp_len as usize || start.saturating_add(length) > self.layout.slot {
            show(&[]);
        } else {
            // SAFETY: within the slot (just checked), which is ours and which the kernel does not write meanwhile.
            show(unsafe { slice::from_raw_parts(slot.add(start), length) });
        }
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        true
    }

    #[inline]
    fn prefetch_next(&self) {
        let offset = self.layout.offset(self.next);
        let slot = self.memory.base().as_ptr().wrapping_add(offset).cast_const();
        prefetch(slot, 1);
        prefetch(slot.wrapping_add(TPACKET2_HDRLEN), PREFETCH_LINES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_a_frame_and_do_not_overlap() {
        for frame in [590, 1514, 9014, 65549] {
            let layout = RingLayout::new(frame, None);
            assert!(layout.slot >= TPACKET2_HDRLEN + GAP_BYTES + frame);
            assert!(layout.slots() >= RING_SLOTS, "{layout:?}");
            assert!(RingLayout::new(frame, Some(0)).slots() >= SLOTS_MIN);
            assert_eq!(layout.block % 4096, 0);
            for slot in 1..layout.slots() {
                assert!(layout.offset(slot) >= layout.offset(slot - 1) + layout.slot);
                assert_eq!(layout.offset(slot) / layout.block, slot / layout.slots_per_block);
            }
            let last = layout.offset(layout.slots() - 1) + layout.slot;
            assert!(last <= layout.block * layout.blocks);
        }
    }
}
