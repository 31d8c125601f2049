//! Frames waiting to be sent by a packet socket: their own bytes, and payload that is not copied.
//!
//! One `sendmmsg` sends all; the kernel's copy into its own buffers is the only one.

use crate::port::frame::{FRAME_MAX, FlushResult, FrameShape};
use crc_fast::{CrcAlgorithm, Digest};
use roadtrain_proto::seal::{Seal, SealCipher, TAG_BYTES};
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, MacAddress, flags, set_hcrc};
use roadtrain_wire::zerocopy::IntoBytes;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::slice;

/// Most frames of one send.
const FRAMES_MAX: usize = 128;
/// Most pieces of one frame: a head and a payload for each of 64 records, and some to spare.
const FRAME_PIECES_MAX: usize = 132;
/// Most pieces of one send.
const PIECES_MAX: usize = 2048;
/// Most own bytes of one send.
const BYTES: usize = 128 << 10;
/// Most bytes of sealed bodies of one send: they are still cached when the kernel copies them.
const SEALED_BYTES: usize = 256 << 10;

/// Part of a frame.
#[derive(Clone, Copy)]
enum FramePiece {
    /// Bytes in `own`, from this offset on.
    Own { at: usize, length: usize },
    /// Payload in the caller's memory.
    Payload { at: *const u8, length: usize },
    /// A sealed body in `sealed`, from this offset on.
    Sealed { at: usize, length: usize },
}

impl FramePiece {
    fn length(&self) -> usize {
        match *self {
            FramePiece::Own { length, .. }
            | FramePiece::Payload { length, .. }
            | FramePiece::Sealed { length, .. } => length,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct PacketFrame {
    /// Indices of its first piece and of its first own byte.
    piece: usize,
    at: usize,
    bytes: usize,
}

/// Frames that were built and wait to be sent.
pub struct OutgoingFrames {
    shape: FrameShape,
    own: Box<[u8]>,
    used: usize,
    /// Sealed bodies; empty until the first one.
    sealed: Box<[u8]>,
    sealed_used: usize,
    pieces: Vec<FramePiece>,
    frames: Vec<PacketFrame>,
    open: PacketFrame,
    iov: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    oversized: usize,
}

// SAFETY: the pointers are to payload that `payload`'s caller keeps valid on any thread, or are made and used within
// one `send`.
unsafe impl Send for OutgoingFrames {}

impl OutgoingFrames {
    pub(in crate::port) fn new(shape: FrameShape) -> OutgoingFrames {
        OutgoingFrames {
            shape,
            own: vec![0; BYTES + shape.header_bytes() + FRAME_MAX].into_boxed_slice(),
            used: 0,
            sealed: Box::default(),
            sealed_used: 0,
            pieces: Vec::with_capacity(PIECES_MAX),
            frames: Vec::with_capacity(FRAMES_MAX),
            open: PacketFrame::default(),
            iov: Vec::with_capacity(PIECES_MAX),
            messages: Vec::with_capacity(FRAMES_MAX),
            oversized: 0,
        }
    }

    /// True if one more frame of any content fits.
    #[inline]
    pub(in crate::port) fn has_room(&self) -> bool {
        self.frames.len() < FRAMES_MAX
            && self.pieces.len() + FRAME_PIECES_MAX <= PIECES_MAX
            && self.used <= BYTES
            && self.sealed_used <= SEALED_BYTES
    }

    /// Starts a frame.
    #[inline]
    pub(in crate::port) fn begin(&mut self) {
        self.open = PacketFrame { piece: self.pieces.len(), at: self.used, bytes: 0 };
        self.bytes(self.shape.header_bytes() + FRAME_HEADER_BYTES);
    }

    /// Appends bytes for the caller to fill: their initial content is undefined.
    #[inline]
    pub(in crate::port) fn bytes(&mut self, length: usize) -> &mut [u8] {
        let at = self.used;
        self.used += length;
        self.open.bytes += length;
        let in_frame = self.pieces.len() > self.open.piece;
        match self.pieces.last_mut() {
            Some(FramePiece::Own { length: before, .. }) if in_frame => *before += length,
            _ => self.pieces.push(FramePiece::Own { at, length }),
        }
        &mut self.own[at..at + length]
    }

    /// Appends payload without copying it.
    ///
    /// # Safety
    /// The `length` bytes at `at` stay readable until the frames are sent.
    #[inline]
    pub(in crate::port) unsafe fn payload(&mut self, at: *const u8, length: usize) {
        self.open.bytes += length;
        self.pieces.push(FramePiece::Payload { at, length });
    }

    /// Ends the frame: sets its addresses, BODY, checksums. A frame that is too large is dropped, and counted: its lane
    /// was made when the interface took larger ones.
    #[inline]
    pub(in crate::port) fn end(&mut self, destination: MacAddress, mut header: FrameHeader) {
        let frame = self.open;
        if frame.bytes > self.shape.frame_bytes() {
            return self.forget(frame);
        }
        let head = self.shape.header_bytes() + FRAME_HEADER_BYTES;
        header.body.set((frame.bytes - head) as u16);
        if header.flags.get() & flags::CRC != 0 {
            header.bcrc.set(self.body_crc(frame, head));
        }
        set_hcrc(&mut header);
        self.put_heads(frame, destination, &header);
    }

    /// Drops a frame that was not ended.
    fn forget(&mut self, frame: PacketFrame) {
        self.pieces.truncate(frame.piece);
        self.used = frame.at;
        self.oversized += 1;
    }

    #[inline]
    fn put_heads(&mut self, frame: PacketFrame, destination: MacAddress, header: &FrameHeader) {
        let own = &mut self.own[frame.at..];
        let behind = self.shape.write_header(own, destination);
        own[behind..behind + FRAME_HEADER_BYTES].copy_from_slice(header.as_bytes());
        self.frames.push(frame);
    }

    /// Ends the frame like `end`, and seals the body: from its pieces into memory of its own, which is the only copy.
    pub(in crate::port) fn end_sealed<C: SealCipher>(
        &mut self,
        destination: MacAddress,
        mut header: FrameHeader,
        seal: &mut Seal<C>,
    ) {
        let frame = self.open;
        if frame.bytes + TAG_BYTES > self.shape.frame_bytes() {
            return self.forget(frame);
        }
        let head = self.shape.header_bytes() + FRAME_HEADER_BYTES;
        let (start, length) = (self.sealed_used, frame.bytes - head + TAG_BYTES);
        header.body.set((frame.bytes - head) as u16);
        seal.begin(&mut header);
        let Some(tag) = self.seal_body(frame, head, seal) else { return self.forget(frame) };
        self.sealed_used = start + length;
        self.sealed[self.sealed_used - TAG_BYTES..self.sealed_used].copy_from_slice(&tag);
        self.pieces.truncate(frame.piece);
        self.used = frame.at + head;
        self.pieces.push(FramePiece::Own { at: frame.at, length: head });
        self.pieces.push(FramePiece::Sealed { at: start, length });
        let frame = PacketFrame { bytes: frame.bytes + TAG_BYTES, ..frame };
        self.put_heads(frame, destination, &header);
    }

    fn seal_body<C: SealCipher>(
        &mut self,
        frame: PacketFrame,
        head: usize,
        seal: &mut Seal<C>,
    ) -> Option<[u8; TAG_BYTES]> {
        if self.sealed.is_empty() {
            self.sealed = vec![0; SEALED_BYTES + FRAME_MAX].into_boxed_slice();
        }
        let mut place = &mut self.sealed[self.sealed_used..];
        let mut skip = head;
        for piece in &self.pieces[frame.piece..] {
            let bytes = match *piece {
                FramePiece::Own { at, length } => &self.own[at + skip..at + length],
                // SAFETY: readable by `payload`'s contract.
                FramePiece::Payload { at, length } => unsafe { slice::from_raw_parts(at, length) },
                FramePiece::Sealed { .. } => return None, // no frame is sealed twice
            };
            let (body, rest) = place.split_at_mut(bytes.len());
            seal.update(bytes, body);
            (place, skip) = (rest, 0);
        }
        seal.finish()
    }

    fn body_crc(&self, frame: PacketFrame, head: usize) -> u32 {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        let mut skip = head;
        for piece in &self.pieces[frame.piece..] {
            match *piece {
                FramePiece::Own { at, length } => digest.update(&self.own[at + skip..at + length]),
                FramePiece::Payload { at, length } => {
                    // SAFETY: readable by `payload`'s contract.
                    digest.update(unsafe { slice::from_raw_parts(at, length) });
                }
                FramePiece::Sealed { .. } => {} // it has a tag
            }
            skip = 0;
        }
        digest.finalize() as u32
    }

    /// True if no frame waits.
    #[inline]
    pub(in crate::port) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.oversized == 0
    }

    /// Sends all waiting frames. Frames that the kernel does not take now are dropped and counted, as the network may
    /// do.
    ///
    /// # Errors
    /// Fails if the socket is not usable any more.
    pub(super) fn send(&mut self, socket: &OwnedFd) -> io::Result<FlushResult> {
        self.describe();
        self.address();
        let mut sent = FlushResult { refused: self.oversized, ..FlushResult::default() };
        let outcome = self.send_messages(socket, &mut sent);
        sent.refused += self.frames.len() - sent.frames;
        self.clear();
        outcome.map(|()| sent)
    }

    /// Passes each frame to `show`, as its own bytes from Ethernet's header on and as all its pieces, and removes it.
    /// Returns the number of frames that were too large. The pieces are readable until `show` returns; payload is
    /// readable until the port's flush returns.
    pub fn take(&mut self, mut show: impl FnMut(&[u8], &[libc::iovec])) -> usize {
        self.describe();
        let ends = self.frames.iter().skip(1).map(|frame| frame.piece).chain([self.pieces.len()]);
        for (frame, end) in self.frames.iter().zip(ends) {
            show(&self.own[frame.at..], &self.iov[frame.piece..end]);
        }
        let oversized = self.oversized;
        self.clear();
        oversized
    }

    fn clear(&mut self) {
        self.iov.clear();
        self.messages.clear();
        self.pieces.clear();
        self.frames.clear();
        (self.used, self.sealed_used, self.oversized) = (0, 0, 0);
    }

    /// Converts pieces to the kernel's iovecs.
    fn describe(&mut self) {
        for piece in &self.pieces {
            let base = match *piece {
                FramePiece::Own { at, .. } => self.own[at..].as_mut_ptr().cast(),
                FramePiece::Payload { at, .. } => at.cast_mut().cast(),
                FramePiece::Sealed { at, .. } => self.sealed[at..].as_mut_ptr().cast(),
            };
            self.iov.push(libc::iovec { iov_base: base, iov_len: piece.length() });
        }
    }

    /// Makes a message of each frame.
    fn address(&mut self) {
        let ends = self.frames.iter().skip(1).map(|frame| frame.piece).chain([self.pieces.len()]);
        for (frame, end) in self.frames.iter().zip(ends) {
            // SAFETY: an all-zero header is valid: no address, no control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = ptr::from_mut(&mut self.iov[frame.piece]);
            message.msg_hdr.msg_iovlen = (end - frame.piece) as _;
            self.messages.push(message);
        }
        debug_assert!(self.iov.len() == self.pieces.len());
    }

    fn send_messages(&mut self, socket: &OwnedFd, sent: &mut FlushResult) -> io::Result<()> {
        let (mut next, mut was_down) = (0, false);
        while next < self.messages.len() {
            let left = &mut self.messages[next..];
            sent.calls += 1;
            // SAFETY: every message names entries of `iov`, each readable: `own`, `sealed`, or payload by `payload`'s
            // contract.
            let taken = unsafe {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                let count = left.len() as libc::c_uint;
                libc::sendmmsg(socket.as_raw_fd(), left.as_mut_ptr(), count, flags as _)
            };
            if taken < 0 {
                match after(&io::Error::last_os_error()) {
                    SendErrorAction::Again => {}
                    // The first error may be the one that the socket kept since the interface was down.
                    SendErrorAction::Down if !was_down => was_down = true,
                    SendErrorAction::Down => return Ok(()),
                    SendErrorAction::Skip => next += 1,
                    SendErrorAction::Stop => return Ok(()),
                    SendErrorAction::Fail(error) => {
                        return Err(io::Error::from_raw_os_error(error));
                    }
                }
                continue;
            }
            let range = next..next + taken as usize;
            sent.frames += range.len();
            sent.bytes += self.frames[range.clone()].iter().map(|f| f.bytes).sum::<usize>();
            next = range.end;
        }
        Ok(())
    }
}

/// Reaction to an error of the first frame.
#[derive(Debug, PartialEq, Eq)]
enum SendErrorAction {
    /// Retries the frame.
    Again,
    /// Skips the frame.
    Skip,
    /// The interface is down: no frame is taken until it is up.
    Down,
    /// Stops: no frame is taken now.
    Stop,
    /// Fails: no frame is ever taken.
    Fail(c_int),
}

fn after(error: &io::Error) -> SendErrorAction {
    match error.raw_os_error().unwrap_or(0) {
        libc::EINTR => SendErrorAction::Again,
        // The interface's queue is full; the MTU has become smaller.
        libc::ENOBUFS | libc::EMSGSIZE => SendErrorAction::Skip,
        libc::ENETDOWN => SendErrorAction::Down,
        // The socket's buffer is full; no memory; the interface is down or gone (it may come back).
        libc::EAGAIN | libc::ENOMEM | libc::ENXIO | libc::ENODEV => SendErrorAction::Stop,
        error => SendErrorAction::Fail(error),
    }
}
