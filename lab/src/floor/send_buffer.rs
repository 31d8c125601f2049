//! Messages on their way out: gathered, at most so many a send, and sent directly.

use super::link::FloorLink;
use std::collections::VecDeque;
use std::io;

/// A message of the floor: a slot of the host and a block of the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloorMessage {
    pub(crate) slot: u32,
    pub(crate) block: u32,
}

impl FloorMessage {
    /// Bytes of a message; the header's other bytes are padding.
    pub(crate) const BYTES: usize = 8;

    #[inline]
    fn emit(self, to: &mut [u8]) {
        to[..4].copy_from_slice(&self.slot.to_le_bytes());
        to[4..8].copy_from_slice(&self.block.to_le_bytes());
    }

    #[inline]
    pub(crate) fn parse(from: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(from[at..at + 4].try_into().expect("four bytes"));
        Self { slot: word(0), block: word(4) }
    }
}

/// A queue of messages, each a header and perhaps data, sent `gather` at a time.
pub(crate) struct SendBuffer {
    header_bytes: usize,
    data_bytes: usize,
    gather: usize,
    queue: VecDeque<(FloorMessage, *const u8)>,
    headers: Vec<u8>,
    iov: Vec<libc::iovec>,
    /// First segment of `iov` not wholly sent.
    next: usize,
    /// Sends that moved bytes.
    pub(crate) sends: u64,
    /// Bytes sent.
    pub(crate) bytes: u64,
}

impl SendBuffer {
    /// Messages of `header_bytes` and `data_bytes` (0: none).
    pub(crate) fn new(header_bytes: usize, data_bytes: usize, gather: usize, depth: usize) -> Self {
        Self {
            header_bytes,
            data_bytes,
            gather,
            queue: VecDeque::with_capacity(depth),
            headers: vec![0; header_bytes * gather],
            iov: Vec::with_capacity(gather * 2),
            next: 0,
            sends: 0,
            bytes: 0,
        }
    }

    /// True once all was sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.iov.len() && self.queue.is_empty()
    }

    /// Appends a message whose data, if it has any, is at `data`.
    ///
    /// # Safety
    /// `data_bytes` at `data` may be read until the message is sent.
    #[inline]
    pub(crate) unsafe fn push(&mut self, message: FloorMessage, data: *const u8) {
        self.queue.push_back((message, data));
    }

    /// Sends until nothing is left or the socket is full.
    pub(crate) fn flush(&mut self, link: &mut FloorLink) -> io::Result<()> {
        loop {
            if self.next == self.iov.len() {
                if self.queue.is_empty() {
                    return Ok(());
                }
                self.load();
            }
            // SAFETY: the segments are this out's headers and data promised readable by `push`.
            match unsafe { link.send_now(&mut self.iov[self.next..]) } {
                Ok(sent) => self.advance(sent),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Gathers the next messages into segments.
    fn load(&mut self) {
        self.iov.clear();
        self.next = 0;
        let count = self.queue.len().min(self.gather);
        for (header, (message, data)) in
            self.headers.chunks_exact_mut(self.header_bytes).zip(self.queue.drain(..count))
        {
            message.emit(header);
            if self.data_bytes > 0 {
                self.iov.push(segment(header.as_ptr(), header.len()));
                self.iov.push(segment(data, self.data_bytes));
            }
        }
        if self.data_bytes == 0 {
            self.iov.push(segment(self.headers.as_ptr(), self.header_bytes * count));
        }
    }

    fn advance(&mut self, mut sent: usize) {
        self.sends += 1;
        self.bytes += sent as u64;
        while self.next < self.iov.len() {
            let head = &mut self.iov[self.next];
            if sent < head.iov_len {
                head.iov_base = head.iov_base.cast::<u8>().wrapping_add(sent).cast();
                head.iov_len -= sent;
                return;
            }
            sent -= head.iov_len;
            self.next += 1;
        }
    }
}

fn segment(at: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len }
}
