//! One connection of a lane: receives into the destination, keeps incomplete input, sends caravans.

use crate::gather::{Gather, SendOutcome};
use crate::metrics::Batching;
use crate::shared_core::SharedCore;
use crate::stream::{ConnectionStream, Incoming};
use crate::tuning::RX_BUFFER_BYTES;
use roadtrain_proto::policy::Batcher;
use roadtrain_system::memory::HugeMemory;
use roadtrain_wire::pdu::HEADER_BYTES_MAX;
use std::io;

/// Receive buffer of a reactor, shared by its lanes: an idle connection holds no memory of its own.
pub struct RxBuffer {
    memory: HugeMemory,
}

impl RxBuffer {
    /// Allocates a buffer of full size.
    #[inline]
    pub fn new() -> io::Result<Self> {
        Ok(RxBuffer { memory: HugeMemory::new(RX_BUFFER_BYTES)? })
    }

    /// Allocates a buffer of `bytes`, for a connection that carries little.
    pub fn small(bytes: usize) -> io::Result<Self> {
        Ok(RxBuffer { memory: HugeMemory::with_small_pages(bytes)? })
    }

    /// Returns the first `length` bytes.
    #[inline]
    pub fn filled(&self, length: usize) -> &[u8] {
        debug_assert!(length <= self.memory.len());
        // SAFETY: within the mapping; only `receive`, with `&mut self`, writes to it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), length) }
    }

    /// Copies bytes kept earlier to the start of the buffer; returns their number.
    #[inline]
    pub fn fill(&mut self, kept: &[u8]) -> usize {
        self.whole()[..kept.len()].copy_from_slice(kept);
        kept.len()
    }

    fn whole(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours alone, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.memory.len()) }
    }
}

/// Bytes of a receive buffer that still have to be handled. As long as they exist, nothing can be received into the
/// buffer: the owner of this value has to handle or keep them.
#[must_use = "the bytes would be lost"]
pub struct RemainingInput<'a> {
    rx: &'a RxBuffer,
    at: usize,
    end: usize,
}

impl<'a> RemainingInput<'a> {
    /// The first `length` bytes of `rx`.
    #[inline]
    pub fn new(rx: &'a RxBuffer, length: usize) -> Self {
        RemainingInput { rx, at: 0, end: length }
    }

    /// Returns the receive from its start on, and the position of the remaining bytes in it.
    #[inline]
    pub fn input(&mut self) -> (&'a [u8], &mut usize) {
        (self.rx.filled(self.end), &mut self.at)
    }
}

/// Result of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing available now.
    Nothing,
    /// The peer closed the connection.
    Closed,
    /// Bytes.
    Bytes {
        /// Bytes received directly into the destination.
        direct: usize,
        /// Bytes at the start of the receive buffer, behind the direct ones; includes those kept from before.
        buffered: usize,
        /// True if more may be available at once.
        more: bool,
    },
}

/// Short receives between two tries of receiving again at once.
const SHORT_RECEIVES_PER_TRY: u32 = 16;

/// Decides whether to receive again at once after a receive that did not fill its buffer. A second receive pays while
/// bytes arrive faster than they are handled; otherwise it is a wasted system call.
#[derive(Debug, Default)]
struct ReceiveAgain {
    pays: bool,
    /// True if the receive before was short: this one shows whether receiving again pays.
    trying: bool,
    short: u32,
}

impl ReceiveAgain {
    /// Records a receive that returned bytes, filling its buffer or not. True if the caller should receive again.
    fn received(&mut self, full: bool) -> bool {
        self.pays |= self.trying;
        self.short = self.short.wrapping_add(1);
        self.trying = !full && (self.pays || self.short.is_multiple_of(SHORT_RECEIVES_PER_TRY));
        full || self.trying
    }

    fn nothing(&mut self) {
        self.pays &= !self.trying;
        self.trying = false;
    }
}

/// Result of a lane's receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceivedData {
    /// True if there is something to handle.
    pub any: bool,
    /// True if more may be available at once.
    pub more: bool,
}

/// Memory range that receives payload directly.
#[derive(Clone, Copy, Debug)]
pub struct PayloadDestination {
    /// First byte.
    pub data: *mut u8,
    /// Length in bytes.
    pub length: usize,
}

/// TCP connection of a lane: bytes received and not used yet, and a caravan blocked by a full socket.
pub struct TcpConnection {
    /// Socket, with TLS or without.
    pub stream: ConnectionStream,
    /// Bytes received and not used yet: an incomplete header.
    kept: Vec<u8>,
    /// Caravan that the full socket has not taken.
    blocked: Option<Box<Gather>>,
    receive_again: ReceiveAgain,
    shared_core: SharedCore,
    /// System calls and bytes of the connection.
    pub stats: Batching,
}

impl TcpConnection {
    /// A connection without received bytes.
    pub fn new(stream: ConnectionStream) -> Self {
        TcpConnection {
            shared_core: SharedCore::of(&stream),
            stream,
            kept: Vec::new(),
            blocked: None,
            receive_again: ReceiveAgain::default(),
            stats: Batching::default(),
        }
    }

    /// Returns the bytes available at once, kept ones included, as far as known.
    #[inline]
    pub fn available(&self) -> usize {
        self.kept.len() + self.stream.unread().unwrap_or(0)
    }

    /// Receives once, without waiting. Kept bytes come first, in `place` or else in the buffer.
    ///
    /// # Safety
    /// `place` names writable memory that nothing else writes to meanwhile, for more bytes than are kept.
    pub unsafe fn receive(
        &mut self,
        rx: &mut RxBuffer,
        place: Option<PayloadDestination>,
        limit: usize,
    ) -> io::Result<Received> {
        let (kept_direct, kept) = match place {
            Some(_) => (self.kept.len(), 0),
            None => (0, self.kept.len()),
        };
        debug_assert!(place.is_none_or(|p| p.length > kept_direct), "kept bytes go there first");
        let buffer = rx.whole();
        buffer[..kept].copy_from_slice(&self.kept[..kept]);
        let end = buffer.len().min(kept.max(HEADER_BYTES_MAX) + limit);
        let rest = &mut buffer[kept..end];
        let room = rest.len();
        let direct_max = place.map_or(0, |p| p.length - kept_direct);
        // SAFETY: within the place.
        let direct_base =
            place.map_or(std::ptr::null_mut(), |p| unsafe { p.data.add(kept_direct) }.cast());
        let mut iov = [
            libc::iovec { iov_base: direct_base, iov_len: direct_max },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        let skip = usize::from(place.is_none());
        self.stats.receives += 1;
        // SAFETY: the iovecs name writable memory: `rest`, and `place` by this function's contract.
        let got = match unsafe { self.stream.receive(&mut iov[skip..]) }? {
            Incoming::Bytes(got) => got,
            Incoming::Closed => return Ok(Received::Closed),
            Incoming::Nothing => {
                self.receive_again.nothing();
                return Ok(Received::Nothing);
            }
        };
        if let Some(place) = place {
            // SAFETY: they fit, by this function's contract.
            unsafe { place.data.copy_from_nonoverlapping(self.kept.as_ptr(), kept_direct) };
        }
        let direct = got.min(direct_max);
        let buffered = kept + got - direct;
        self.kept.clear();
        let more = self.receive_again.received(self.stream.is_full(got, room + direct_max));
        Ok(Received::Bytes { direct: kept_direct + direct, buffered, more })
    }

    /// Updates the batcher after a receive that returned bytes, if it has changed whether both ends share a core.
    #[inline]
    pub fn update_shared_core(&mut self, batcher: &mut Batcher) {
        if let Some(shares) = self.shared_core.received(&self.stream) {
            batcher.set_shares_core(shares);
        }
    }

    /// Keeps bytes for the next receive.
    #[inline]
    pub fn keep(&mut self, rest: &[u8]) {
        self.kept.clear();
        self.kept.extend_from_slice(rest);
    }

    /// Keeps bytes that cannot be handled before more have arrived.
    #[inline]
    pub fn keep_remaining(&mut self, mut rest: RemainingInput<'_>) {
        let (input, at) = rest.input();
        self.keep(&input[*at..]);
    }

    /// Takes the kept bytes: a lane that stalled handles them before it receives again.
    #[inline]
    pub fn take_kept(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// True if a caravan waits for capacity in the socket.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Sends a caravan. When the socket is full, the connection keeps it, and `gather` becomes a fresh one.
    pub fn send(&mut self, gather: &mut Box<Gather>) -> io::Result<SendOutcome> {
        debug_assert!(self.blocked.is_none(), "one caravan at a time");
        self.stats.caravans += 1;
        self.stats.caravan_bytes += gather.bytes() as u64;
        let sent = gather.send(&mut self.stream, &mut self.stats.sends);
        match sent {
            Ok(SendOutcome::Blocked) => self.blocked = Some(std::mem::take(gather)),
            // Also after an error: the gather is the reactor's, and another lane uses it next.
            Ok(SendOutcome::All) | Err(_) => gather.clear(),
        }
        sent
    }

    /// Resumes the blocked caravan.
    pub fn resume(&mut self) -> io::Result<SendOutcome> {
        let Some(gather) = &mut self.blocked else { return Ok(SendOutcome::All) };
        let sent = gather.send(&mut self.stream, &mut self.stats.sends)?;
        if sent == SendOutcome::All {
            self.blocked = None;
        }
        Ok(sent)
    }

    /// Closes the connection; bytes already sent still reach the peer.
    #[inline]
    pub fn close(&mut self) {
        self.blocked = None;
        self.stream.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiving_again_stops_when_it_returns_nothing() {
        let mut again = ReceiveAgain::default();
        let tries = (0..160).filter(|_| {
            let goes_on = again.received(false);
            if goes_on {
                again.nothing();
            }
            goes_on
        });
        assert_eq!(tries.count(), 10, "one in sixteen tries whether it has begun to pay");
    }

    #[test]
    fn receiving_again_continues_while_it_returns_bytes() {
        let mut again = ReceiveAgain::default();
        while !again.received(false) {}
        assert!((0..100).all(|_| again.received(false)));
        again.nothing();
        assert!(!again.received(false));
        assert!(again.received(true), "a full buffer says that there is more");
    }
}
