//! A port over AF_XDP sockets, one for each queue of the interface.
//!
//! Frames are built and received in memory that is shared with the kernel. If the driver works on that memory itself
//! (zero-copy), frames are not copied; otherwise the kernel copies.

mod program;
mod ring;
mod umem;

use super::config::PortConfig;
use super::frame::{FRAME_MAX, FlushResult, FrameShape};
use super::{PortInterface, sys};
use libc::{SOL_SOCKET, SOL_XDP, xdp_desc};
use program::{AttachedProgram, FrameSelection};
use ring::XdpRing;
use roadtrain_proto::seal::{Seal, SealCipher, TAG_BYTES};
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, MacAddress, flags, set_hcrc};
use roadtrain_wire::zerocopy::IntoBytes;
use rustix::net::AddressFamily;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use umem::{Umem, UmemLayout, UmemPiece};

/// Most frames of one flush.
const FRAMES_MAX: usize = 128;
/// Socket option: frames that one system call sends (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// Bytes of memory for frames in each direction: 16 MiB are slower.
const DIRECTION_BYTES: usize = 4 << 20;
const SEND_BUFFER_BYTES: c_int = 8 << 20;
/// Bits of the address; in memory with overlapping chunks, the data's offset is in the higher bits.
const ADDRESS_BITS: u32 = 48;

/// Permission for the kernel to copy frames if the driver does not work on our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyPermission {
    Allowed,
    Refused,
}

/// A queue's socket and its rings.
struct XdpQueue {
    // Unmapped before the memory that the socket uses is freed.
    fill: XdpRing<u64>,
    completion: XdpRing<u64>,
    receive: XdpRing<xdp_desc>,
    send: XdpRing<xdp_desc>,
    socket: OwnedFd,
    umem: Umem,
}

impl XdpQueue {
    fn open(
        interface: &PortInterface,
        queue: u32,
        layout: UmemLayout,
        bind_flags: u16,
    ) -> io::Result<XdpQueue> {
        let umem = Umem::new(layout)?;
        let socket = sys::socket(AddressFamily::XDP)?;
        let registration = libc::xdp_umem_reg {
            addr: umem.base().as_ptr() as u64,
            len: layout.registered_bytes() as u64,
            chunk_size: layout.chunk as u32,
            headroom: 0,
            flags: if layout.overlaps() { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG } else { 0 },
            tx_metadata_len: 0,
        };
        sys::set_option(&socket, SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
        let receive = layout.chunks.next_power_of_two();
        let send = (layout.slots * layout.pieces()).next_power_of_two();
        for (option, entries) in [
            (libc::XDP_UMEM_FILL_RING, receive),
            (libc::XDP_UMEM_COMPLETION_RING, send),
            (libc::XDP_RX_RING, receive),
            (libc::XDP_TX_RING, send),
        ] {
            sys::set_option(&socket, SOL_XDP, option, &(entries as c_int))?;
        }
        let _ = sys::set_option(&socket, SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES);
        // Without the option the kernel sends 32 at a time.
        let _ = sys::set_option(&socket, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &(FRAMES_MAX as c_int));
        let at: libc::xdp_mmap_offsets = sys::get_option(&socket, SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let map = |offsets, entries, page| XdpRing::map(&socket, offsets, entries, page);
        let mut fill = map(at.fr, receive, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        for chunk in 0..layout.chunks {
            fill.write(layout.chunk_at(chunk));
        }
        fill.publish();
        let completion = map(at.cr, send, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let map = |offsets, entries, page| XdpRing::map(&socket, offsets, entries, page as u64);
        let receive = map(at.rx, receive, libc::XDP_PGOFF_RX_RING)?;
        let send = map(at.tx, send, libc::XDP_PGOFF_TX_RING)?;
        sys::bind(&socket, &address(interface, queue, bind_flags))?;
        Ok(XdpQueue { fill, completion, receive, send, socket, umem })
    }

    /// Returns the data's offset in the memory, and the chunk that contains it.
    #[inline]
    fn place(&self, address: u64) -> (usize, u64) {
        if self.umem.layout.overlaps() {
            let chunk = address & ((1 << ADDRESS_BITS) - 1);
            ((chunk + (address >> ADDRESS_BITS)) as usize, chunk)
        } else {
            (address as usize, address & !(self.umem.layout.chunk as u64 - 1))
        }
    }

    /// Passes the oldest frame to `show` (empty if it is too large), then gives its memory back. True if there was one.
    #[inline]
    fn take(
        &mut self,
        pieces: &mut Vec<UmemPiece>,
        join_buffer: &mut JoinBuffer,
        show: impl FnOnce(&[u8]),
    ) -> bool {
        let waiting = self.receive.waiting();
        pieces.clear();
        loop {
            if pieces.len() == waiting {
                return false; // no frame, or not all of it yet
            }
            let piece = self.receive.peek(pieces.len());
            pieces.push((self.place(piece.addr).0, piece.len as usize));
            if piece.options & libc::XDP_PKT_CONTD == 0 {
                break;
            }
        }
        let bytes: usize = pieces.iter().map(|piece| piece.1).sum();
        // SAFETY: the kernel has filled these chunks, and gets them back below.
        match unsafe { self.umem.joined(pieces) } {
            _ if bytes > self.umem.layout.frame => show(&[]),
            Some(bytes) => show(bytes),
            None => {
                // SAFETY: as above.
                unsafe { self.umem.join(pieces, &mut join_buffer.bytes) };
                join_buffer.used += 1;
                show(&join_buffer.bytes);
            }
        }
        // In order of reception, so that consecutive chunks stay consecutive.
        for ahead in 0..pieces.len() {
            let chunk = self.place(self.receive.peek(ahead).addr).1;
            self.fill.write(chunk);
        }
        self.fill.publish();
        self.receive.give_back(pieces.len());
        true
    }

    /// Takes back the frames that the kernel has sent.
    #[inline]
    fn reap(&mut self, outgoing: &mut XdpOutgoing) {
        let done = self.completion.waiting();
        for ahead in 0..done {
            outgoing.sent_piece(self.completion.peek(ahead) as usize / self.umem.layout.slot);
        }
        self.completion.give_back(done);
    }

    /// Passes frames to the kernel.
    fn send(&mut self, frames: &[BuiltFrame], left: &mut [u8]) {
        let layout = self.umem.layout;
        for frame in frames {
            let start = frame.slot * layout.slot;
            let pieces = frame.bytes.div_ceil(layout.chunk);
            left[frame.slot] = pieces as u8;
            for piece in 0..pieces {
                let at = piece * layout.chunk;
                let more = piece + 1 < pieces;
                self.send.write(xdp_desc {
                    addr: (start + at) as u64,
                    len: (frame.bytes - at).min(layout.chunk) as u32,
                    options: if more { libc::XDP_PKT_CONTD } else { 0 },
                });
            }
        }
        self.send.publish();
    }

    /// Makes the kernel send its frames; returns the number of system calls. Frames that it cannot send now stay with
    /// it.
    fn kick(&mut self) -> io::Result<usize> {
        let mut calls = 0;
        let mut before = self.send.unread();
        while before > 0 && self.send.needs_wakeup() {
            calls += 1;
            let error = sys::wake_send(&self.socket).err().and_then(|error| error.raw_os_error());
            let now = self.send.unread();
            match error {
                Some(libc::EINTR) => {}
                // It sends a limited number of frames at a time, then returns.
                None | Some(libc::EAGAIN) if now < before => {}
                None | Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOMEM) => break,
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => break,
                Some(error) => return Err(io::Error::from_raw_os_error(error)),
            }
            before = now;
        }
        Ok(calls)
    }
}

fn address(interface: &PortInterface, queue: u32, flags: u16) -> libc::sockaddr_xdp {
    libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface.index as u32,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    }
}

/// A frame in its slot.
#[derive(Clone, Copy, Debug)]
struct BuiltFrame {
    slot: usize,
    bytes: usize,
}

/// State of frames to be sent.
struct XdpOutgoing {
    free: Vec<usize>,
    /// Pieces of each slot that the kernel still has.
    left: Vec<u8>,
    built: Vec<BuiltFrame>,
    refused: usize,
    /// The frame that is being built: its slot (`None` if it will be dropped), its bytes.
    slot: Option<usize>,
    bytes: usize,
}

impl XdpOutgoing {
    fn sent_piece(&mut self, slot: usize) {
        let Some(left) = self.left.get_mut(slot).filter(|left| **left > 0) else { return };
        *left -= 1;
        if *left == 0 {
            self.free.push(slot);
        }
    }
}

/// Buffer in which frames with scattered pieces are joined.
#[derive(Default)]
struct JoinBuffer {
    bytes: Vec<u8>,
    used: u64,
}

pub(super) struct XdpPort {
    // Detached first.
    _attached: AttachedProgram,
    queues: Vec<XdpQueue>,
    /// Ready if one of several queues is.
    all: Option<OwnedFd>,
    shape: FrameShape,
    outgoing: XdpOutgoing,
    /// Buffer of frames that will be dropped, because the kernel has all slots.
    waste: Box<[u8]>,
    pieces: Vec<UmemPiece>,
    join_buffer: JoinBuffer,
    /// Index of the queue that is checked first.
    first: usize,
    zero_copy: bool,
    dropped: u64,
}

impl XdpPort {
    pub(super) fn open(
        interface: &PortInterface,
        socket_number: u16,
        config: &PortConfig,
        shape: FrameShape,
        copies: CopyPermission,
    ) -> io::Result<XdpPort> {
        if config.vlan.is_some() {
            let reason = "AF_XDP does not see every tag: use AF_PACKET, or a VLAN interface";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let (queues, zero_copy) = open_queues(interface, shape.frame_bytes(), config, copies)?;
        let wanted =
            FrameSelection { mac: interface.mac, ethertype: config.ethertype, socket_number };
        let attached = AttachedProgram::new(interface.index, interface.queues, &wanted)?;
        for (number, queue) in queues.iter().enumerate() {
            attached.set_socket(number as u32, &queue.socket)?;
        }
        let all = match queues.len() {
            1 => None,
            _ => Some(sys::any_of(queues.iter().map(|queue| &queue.socket))?),
        };
        let layout = queues[0].umem.layout;
        let outgoing = XdpOutgoing {
            free: (0..layout.slots).rev().collect(),
            left: vec![0; layout.slots],
            built: Vec::with_capacity(FRAMES_MAX),
            refused: 0,
            slot: None,
            bytes: 0,
        };
        let waste = vec![0; layout.slot.max(shape.header_bytes() + FRAME_MAX)].into_boxed_slice();
        let (pieces, join_buffer) =
            (Vec::with_capacity(layout.chunks_of_frame() + 1), JoinBuffer::default());
        let (first, dropped) = (0, 0);
        Ok(XdpPort {
            _attached: attached,
            queues,
            all,
            shape,
            outgoing,
            waste,
            pieces,
            join_buffer,
            first,
            zero_copy,
            dropped,
        })
    }

    /// True if the driver works on our memory.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.all.as_ref().unwrap_or(&self.queues[0].socket).as_fd()
    }

    pub(super) fn ring_frames(&self) -> usize {
        let layout = self.queues[0].umem.layout;
        layout.chunks / layout.chunks_of_frame()
    }

    pub(super) fn dropped(&mut self) -> u64 {
        let of = |queue: &XdpQueue| {
            sys::get_option::<libc::xdp_statistics>(&queue.socket, SOL_XDP, libc::XDP_STATISTICS)
                .map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
        };
        let all = self.queues.iter().map(of).sum();
        all - std::mem::replace(&mut self.dropped, all)
    }

    /// Returns the number of frames that had to be joined.
    pub(super) fn joined(&self) -> u64 {
        self.join_buffer.used
    }

    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.queues.iter().find_map(|queue| sys::take_error(&queue.socket))
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.outgoing.built.len() + self.outgoing.refused < FRAMES_MAX
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.outgoing.built.is_empty() && self.outgoing.refused == 0
    }

    #[inline]
    pub(super) fn begin(&mut self) {
        if self.outgoing.free.is_empty() {
            self.queues[0].reap(&mut self.outgoing);
        }
        self.outgoing.slot = self.outgoing.free.pop();
        self.outgoing.bytes = 0;
        self.bytes(self.shape.header_bytes() + FRAME_HEADER_BYTES);
    }

    #[inline]
    fn frame(&mut self) -> &mut [u8] {
        match self.outgoing.slot {
            Some(slot) => self.queues[0].umem.slot(slot),
            None => &mut self.waste,
        }
    }

    #[inline]
    pub(super) fn bytes(&mut self, length: usize) -> &mut [u8] {
        let at = self.outgoing.bytes;
        self.outgoing.bytes += length;
        if at + length > self.shape.frame_bytes() {
            // Too large since the MTU has become smaller: it will be dropped.
            self.outgoing.free.extend(self.outgoing.slot.take());
        }
        &mut self.frame()[at..at + length]
    }

    /// # Safety
    /// The `length` bytes at `at` are readable.
    #[inline]
    pub(super) unsafe fn payload(&mut self, at: *const u8, length: usize) {
        // SAFETY: the caller's promise.
        let payload = unsafe { std::slice::from_raw_parts(at, length) };
        self.bytes(length).copy_from_slice(payload);
    }

    /// Ends the frame: sets its addresses, BODY, checksums.
    #[inline]
    pub(super) fn end(&mut self, destination: MacAddress, mut header: FrameHeader) {
        let (shape, bytes) = (self.shape, self.outgoing.bytes);
        let head = shape.header_bytes() + FRAME_HEADER_BYTES;
        let Some(slot) = self.outgoing.slot.take() else {
            self.outgoing.refused += 1;
            return;
        };
        let frame = self.queues[0].umem.slot(slot);
        header.body.set((bytes - head) as u16);
        if header.flags.get() & flags::CRC != 0 {
            header.bcrc.set(crc_fast::crc32_iscsi(&frame[head..bytes]));
        }
        set_hcrc(&mut header);
        let behind = shape.write_header(frame, destination);
        frame[behind..head].copy_from_slice(header.as_bytes());
        self.outgoing.built.push(BuiltFrame { slot, bytes });
    }

    /// Ends the frame like `end`, and seals the body in place.
    pub(super) fn end_sealed<C: SealCipher>(
        &mut self,
        destination: MacAddress,
        mut header: FrameHeader,
        seal: &mut Seal<C>,
    ) {
        let (shape, bytes) = (self.shape, self.outgoing.bytes);
        let head = shape.header_bytes() + FRAME_HEADER_BYTES;
        self.bytes(TAG_BYTES); // room for the tag
        let Some(slot) = self.outgoing.slot.take() else {
            self.outgoing.refused += 1;
            return;
        };
        let frame = self.queues[0].umem.slot(slot);
        header.body.set((bytes - head) as u16);
        seal.begin(&mut header);
        seal.update_in_place(&mut frame[head..bytes]);
        let Some(tag) = seal.finish() else {
            self.outgoing.free.push(slot);
            self.outgoing.refused += 1;
            return;
        };
        frame[bytes..bytes + TAG_BYTES].copy_from_slice(&tag);
        let behind = shape.write_header(frame, destination);
        frame[behind..head].copy_from_slice(header.as_bytes());
        self.outgoing.built.push(BuiltFrame { slot, bytes: bytes + TAG_BYTES });
    }

    pub(super) fn flush(&mut self) -> io::Result<FlushResult> {
        let (queue, outgoing) = (&mut self.queues[0], &mut self.outgoing);
        queue.send(&outgoing.built, &mut outgoing.left);
        let mut sent = FlushResult {
            frames: outgoing.built.len(),
            bytes: outgoing.built.iter().map(|frame| frame.bytes).sum(),
            refused: std::mem::take(&mut outgoing.refused),
            calls: 0,
        };
        outgoing.built.clear();
        let outcome = queue.kick();
        queue.reap(outgoing);
        sent.calls = outcome?;
        Ok(sent)
    }

    /// Passes up to `max` frames to `show`; returns their number.
    #[inline]
    pub(super) fn receive(&mut self, max: usize, show: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        for turn in 0..self.queues.len() {
            let number = (self.first + turn) % self.queues.len();
            let queue = &mut self.queues[number];
            let before = taken;
            while taken < max && queue.take(&mut self.pieces, &mut self.join_buffer, &mut *show) {
                taken += 1;
            }
            if taken > before && queue.fill.needs_wakeup() {
                sys::wake_receive(&queue.socket);
            }
        }
        self.first = (self.first + 1) % self.queues.len();
        taken
    }
}

/// Opens all queues of the interface, without copies if its driver supports that. Returns true if it does.
fn open_queues(
    interface: &PortInterface,
    frame: usize,
    config: &PortConfig,
    copies: CopyPermission,
) -> io::Result<(Vec<XdpQueue>, bool)> {
    let open = |zero_copy: bool| -> io::Result<Vec<XdpQueue>> {
        let layout =
            UmemLayout::new(frame, config.receive_bytes.unwrap_or(DIRECTION_BYTES), !zero_copy);
        let how = if zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let many = if layout.chunks_of_frame() > 1 { libc::XDP_USE_SG } else { 0 };
        let flags = libc::XDP_USE_NEED_WAKEUP | how | many;
        (0..interface.queues).map(|queue| XdpQueue::open(interface, queue, layout, flags)).collect()
    };
    match open(true) {
        Ok(queues) => Ok((queues, true)),
        Err(error) if copies == CopyPermission::Refused => Err(error),
        Err(_) => open(false).map(|queues| (queues, false)),
    }
}
