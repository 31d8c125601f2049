//! Messages on their way in: large receives, parsed, the data moved to where it belongs.

use super::args::Knobs;
use super::link::FloorLink;
use super::memory::FloorMemory;
use super::send_buffer::FloorMessage;
use roadtrain_reactor::tuning;
use std::{io, ptr};

/// A message whose data has not all arrived.
struct Partial {
    message: FloorMessage,
    at: *mut u8,
    left: usize,
}

/// A stream of messages, each a header and perhaps data.
pub(crate) struct FloorInbox {
    header_bytes: usize,
    data_bytes: usize,
    no_copy: bool,
    direct_bytes_min: usize,
    behind_bytes: usize,
    prefetch_lines: usize,
    buffer: FloorMemory,
    buffer_bytes: usize,
    start: usize,
    end: usize,
    partial: Option<Partial>,
}

/// Messages ahead whose place is prefetched while one is copied.
const PREFETCH_MESSAGES: usize = 2;

impl FloorInbox {
    /// Messages of `header_bytes` and `data_bytes` (0: none).
    pub(crate) fn new(
        header_bytes: usize,
        data_bytes: usize,
        no_copy: bool,
        knobs: &Knobs,
    ) -> io::Result<Self> {
        Ok(Self {
            header_bytes,
            data_bytes,
            no_copy,
            direct_bytes_min: knobs.rx_direct,
            behind_bytes: knobs.rx_behind.min(knobs.rx_buffer).max(header_bytes),
            prefetch_lines: knobs.prefetch,
            buffer: FloorMemory::new(knobs.rx_buffer, !knobs.small_pages)?,
            buffer_bytes: knobs.rx_buffer,
            start: 0,
            end: 0,
            partial: None,
        })
    }

    /// Receives once; `false` at the end of the stream. Without `wait` it may receive nothing.
    pub(crate) fn receive(&mut self, link: &mut FloorLink, wait: bool) -> io::Result<bool> {
        self.compact();
        let room = self.buffer_bytes - self.end;
        let direct = match &self.partial {
            Some(partial) if partial.left >= self.direct_bytes_min => {
                Some((partial.at, partial.left))
            }
            _ => None,
        };
        let (mut both, mut one);
        let iov: &mut [libc::iovec] = if let Some((at, left)) = direct {
            let behind = room.min(self.behind_bytes);
            both = [segment(at, left), segment(self.buffer.at(self.end, behind), behind)];
            &mut both
        } else {
            one = [segment(self.buffer.at(self.end, room), room)];
            &mut one
        };
        // SAFETY: `at` was promised writable by `drain`'s caller; the rest is our buffer's free part.
        let received = unsafe { if wait { link.receive(iov) } else { link.receive_now(iov) } };
        match received {
            Ok(0) => Ok(false),
            Ok(bytes) => {
                self.account(bytes, direct.is_some());
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn account(&mut self, mut bytes: usize, direct: bool) {
        if let (true, Some(partial)) = (direct, &mut self.partial) {
            let placed = bytes.min(partial.left);
            partial.at = partial.at.wrapping_add(placed);
            partial.left -= placed;
            bytes -= placed;
        }
        self.end += bytes;
    }

    /// Moves the piece of a header that is left to the front.
    fn compact(&mut self) {
        let left = self.end - self.start;
        if self.start > 0 {
            let (from, to) = (self.buffer.at(self.start, left), self.buffer.at(0, left));
            // SAFETY: both ranges lie in the buffer, checked by `at`; they may overlap.
            unsafe { ptr::copy(from, to, left) };
        }
        (self.start, self.end) = (0, left);
    }

    /// Passes on each whole message; `place` returns the destination of a message's data.
    ///
    /// # Safety
    /// `place` returns room for `data_bytes` that nothing else uses until the message is handed over.
    pub(crate) unsafe fn drain(
        &mut self,
        place: impl Fn(FloorMessage) -> *mut u8,
        mut done: impl FnMut(FloorMessage),
    ) {
        loop {
            if let Some(mut partial) = self.partial.take() {
                // SAFETY: the caller's promise.
                unsafe { self.fill(&mut partial) };
                if partial.left > 0 {
                    self.partial = Some(partial);
                    return;
                }
                done(partial.message);
            }
            let Some(message) = self.peek(0) else { return };
            self.start += self.header_bytes;
            if self.data_bytes == 0 {
                done(message);
                continue;
            }
            if let Some(later) = self.peek_later() {
                tuning::prefetch_read(place(later), self.prefetch_lines);
            }
            self.partial = Some(Partial { message, at: place(message), left: self.data_bytes });
        }
    }

    /// The header `offset` bytes ahead, if it has arrived.
    #[inline]
    fn peek(&self, offset: usize) -> Option<FloorMessage> {
        let start = self.start + offset;
        if start + self.header_bytes > self.end {
            return None;
        }
        let at = self.buffer.at(start, FloorMessage::BYTES);
        // SAFETY: within the buffer, checked by `at`; received, hence initialised.
        Some(FloorMessage::parse(unsafe { std::slice::from_raw_parts(at, FloorMessage::BYTES) }))
    }

    fn peek_later(&self) -> Option<FloorMessage> {
        let ahead = (self.header_bytes + self.data_bytes) * PREFETCH_MESSAGES - self.header_bytes;
        self.peek(ahead)
    }

    /// Copies what has arrived of a message's data.
    ///
    /// # Safety
    /// `partial.left` bytes at `partial.at` may be written.
    #[inline]
    unsafe fn fill(&mut self, partial: &mut Partial) {
        let len = partial.left.min(self.end - self.start);
        if !self.no_copy {
            let from = self.buffer.at(self.start, len);
            // SAFETY: `from` is in our buffer, the destination belongs to the caller and does not overlap it.
            unsafe { ptr::copy_nonoverlapping(from, partial.at, len) };
        }
        self.start += len;
        partial.at = partial.at.wrapping_add(len);
        partial.left -= len;
    }
}

fn segment(at: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast(), iov_len: len }
}
