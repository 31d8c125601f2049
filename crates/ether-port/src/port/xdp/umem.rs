//! The memory of an AF_XDP socket's frames.
//!
//! | bytes | purpose |
//! |---|---|
//! | `send` | frames to send |
//! | `receive` | chunks that the kernel fills |
//! | `mirror` | the first bytes of `receive` a second time |
//!
//! The kernel limits a chunk to a page and reserves headroom before its data, so that a frame of 9000 bytes has three.
//! Chunks that overlap by just that headroom, given to the kernel in order, make a ring with contiguous data areas. So
//! a frame is one piece all the same; the mirror makes this true also at the end of the ring.

use crate::port::sys::Mapping;
use std::io;
use std::ptr::NonNull;
use std::slice;

pub(super) const PAGE_BYTES: usize = 4096;
/// Bytes that the kernel reserves before a chunk's data.
const HEADROOM_BYTES: usize = 256;
/// This many strides are whole pages for any chunk size: 256 times 16 is a page.
const CHUNKS_STEP: usize = 16;
/// Limits of the frames to be sent, and of the received frames of the largest size.
const SLOTS_MIN: usize = 256;
const SLOTS_MAX: usize = 512;
const FRAMES_MIN: usize = 64;
const FRAMES_MAX: usize = 4096;

/// Division of a UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UmemLayout {
    /// Bytes of a chunk, including the headroom before its data.
    pub(super) chunk: usize,
    /// Bytes from chunk to chunk.
    pub(super) stride: usize,
    /// Number of chunks for reception.
    pub(super) chunks: usize,
    /// Most bytes of a frame to be sent, a multiple of pages.
    pub(super) slot: usize,
    /// Number of frames to be sent.
    pub(super) slots: usize,
    /// Most bytes of a received frame.
    pub(super) frame: usize,
}

impl UmemLayout {
    /// Makes a layout for frames of up to `frame` bytes, with about `bytes` bytes for each direction. Chunks overlap if
    /// the kernel copies; an interface that writes to them itself needs them apart.
    pub(super) fn new(frame: usize, bytes: usize, overlap: bool) -> UmemLayout {
        let small = frame + HEADROOM_BYTES <= PAGE_BYTES / 2;
        let chunk = if small { PAGE_BYTES / 2 } else { PAGE_BYTES };
        let stride = if overlap { chunk - HEADROOM_BYTES } else { chunk };
        let slot = frame.next_multiple_of(PAGE_BYTES);
        let slots = (bytes / slot).clamp(SLOTS_MIN, SLOTS_MAX);
        let mut layout = UmemLayout { chunk, stride, chunks: 0, slot, slots, frame };
        let per_frame = layout.chunks_of_frame();
        let chunks = (bytes / stride).clamp(FRAMES_MIN * per_frame, FRAMES_MAX * per_frame);
        layout.chunks = chunks.next_multiple_of(CHUNKS_STEP);
        layout
    }

    /// Returns the number of chunks of the largest received frame.
    pub(super) fn chunks_of_frame(&self) -> usize {
        self.frame.div_ceil(self.chunk - HEADROOM_BYTES)
    }

    pub(super) fn overlaps(&self) -> bool {
        self.stride < self.chunk
    }

    /// Returns the number of pieces of the largest sent frame: the kernel takes no piece that is longer than a chunk.
    pub(super) fn pieces(&self) -> usize {
        self.frame.div_ceil(self.chunk)
    }

    fn send_bytes(&self) -> usize {
        self.slot * self.slots
    }

    fn receive_bytes(&self) -> usize {
        self.stride * self.chunks
    }

    /// Returns the bytes of the mirror: a frame may begin in the last chunk.
    fn mirror_bytes(&self) -> usize {
        (self.chunk + self.frame).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the bytes that are registered with the kernel: the last chunk reaches into the mirror.
    pub(super) fn registered_bytes(&self) -> usize {
        let reach = if self.overlaps() { PAGE_BYTES } else { 0 };
        self.send_bytes() + self.receive_bytes() + reach
    }

    /// Returns the offset of a chunk.
    pub(super) fn chunk_at(&self, chunk: usize) -> u64 {
        (self.send_bytes() + chunk * self.stride) as u64
    }
}

/// Part of a received frame: offset of its first byte, and length.
pub(super) type UmemPiece = (usize, usize);

#[derive(Debug)]
pub(super) struct Umem {
    memory: Mapping,
    pub(super) layout: UmemLayout,
}

impl Umem {
    pub(super) fn new(layout: UmemLayout) -> io::Result<Umem> {
        let length = layout.send_bytes() + layout.receive_bytes();
        let mirrored = layout.send_bytes()..layout.send_bytes() + layout.mirror_bytes();
        Ok(Umem { memory: Mapping::mirrored(length, mirrored)?, layout })
    }

    /// Returns the address to register with the kernel.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// Returns the memory of a frame to be sent. The kernel must not have the frame.
    #[inline]
    pub(super) fn slot(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < self.layout.slots);
        let at = slot * self.layout.slot;
        // SAFETY: within the mapping; the kernel does not write to it, and `self` is borrowed as long.
        unsafe { slice::from_raw_parts_mut(self.memory.base().add(at).as_ptr(), self.layout.slot) }
    }

    /// Returns a received frame as one slice, if its pieces are contiguous. It may be larger than allowed.
    ///
    /// # Safety
    /// The kernel has filled the pieces' chunks and has not got them back.
    #[inline]
    pub(super) unsafe fn joined(&self, pieces: &[UmemPiece]) -> Option<&[u8]> {
        let &(start, first) = pieces.first()?;
        let mut end = start + first;
        for &(at, length) in &pieces[1..] {
            if at != end && at + self.layout.receive_bytes() != end {
                return None;
            }
            end += length;
        }
        // SAFETY: the caller's promise.
        (end <= self.memory.length()).then(|| unsafe { self.bytes(start, end - start) })
    }

    /// Joins the pieces of a received frame.
    ///
    /// # Safety
    /// As for [`joined`](Self::joined).
    pub(super) unsafe fn join(&self, pieces: &[UmemPiece], place: &mut Vec<u8>) {
        place.clear();
        for &(at, length) in pieces {
            if at.saturating_add(length) <= self.memory.length() {
                // SAFETY: within the mapping; the rest is the caller's promise.
                place.extend_from_slice(unsafe { self.bytes(at, length) });
            }
        }
    }

    /// # Safety
    /// `at` and `length` are within the mapping, and the kernel does not write there.
    unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(self.memory.base().add(at).as_ptr(), length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: [usize; 4] = [590, 1514, 9014, 65549];

    #[test]
    fn chunks_touch_and_come_round() {
        for frame in FRAMES {
            let layout = UmemLayout::new(frame, 4 << 20, true);
            assert!(layout.overlaps());
            assert_eq!(layout.stride + HEADROOM_BYTES, layout.chunk);
            assert_eq!(layout.receive_bytes() % PAGE_BYTES, 0, "the mirror begins at a page");
            let end = layout.chunk_at(layout.chunks - 1) as usize + layout.chunk;
            assert!(end <= layout.registered_bytes());
            assert!(layout.chunks * layout.stride >= 64 * frame);
            assert!(layout.pieces() * layout.chunk >= frame);
        }
    }

    #[test]
    fn chunks_of_an_interface_lie_apart() {
        for frame in FRAMES {
            let layout = UmemLayout::new(frame, 4 << 20, false);
            assert_eq!(layout.stride, layout.chunk);
            assert_eq!(layout.chunk_at(1) as usize % layout.chunk, 0);
            assert_eq!(layout.registered_bytes() % PAGE_BYTES, 0);
        }
    }

    /// Writes bytes at the place of each piece, as the kernel would.
    fn fill(umem: &Umem, pieces: &[UmemPiece]) -> Vec<u8> {
        let mut all = Vec::new();
        for &(at, length) in pieces {
            for n in 0..length {
                let byte = (all.len() % 251) as u8;
                // SAFETY: within the mapping of this test alone.
                unsafe { umem.base().add(at + n).write(byte) };
                all.push(byte);
            }
        }
        all
    }

    #[test]
    fn a_frame_that_wraps_is_one_piece() {
        let umem = Umem::new(UmemLayout::new(9014, 0, true)).unwrap();
        let data = |chunk: usize| umem.layout.chunk_at(chunk) as usize + HEADROOM_BYTES;
        let (stride, last) = (umem.layout.stride, umem.layout.chunks - 1);
        let pieces = [(data(last - 1), stride), (data(last), stride), (data(0), 100)];
        let bytes = fill(&umem, &pieces);
        // SAFETY: the kernel does not use this memory.
        assert_eq!(unsafe { umem.joined(&pieces) }, Some(bytes.as_slice()));
    }

    #[test]
    fn scattered_pieces_are_put_together() {
        let umem = Umem::new(UmemLayout::new(9014, 0, false)).unwrap();
        let pieces = [(40960, 3840), (8192, 3840), (70000, 7)];
        let bytes = fill(&umem, &pieces);
        let mut place = vec![9];
        // SAFETY: the kernel does not use this memory.
        unsafe {
            assert_eq!(umem.joined(&pieces), None);
            umem.join(&pieces, &mut place);
            assert_eq!(place, bytes);
            umem.join(&[(usize::MAX, 2)], &mut place);
        }
        assert!(place.is_empty());
    }
}
