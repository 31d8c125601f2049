//! One connection of a lane: receives into place, keeps what is cut off, sends caravans.

use crate::gather::{Gather, Sent};
use crate::metrics::Batching;
use crate::shared_core::SharedCore;
use crate::stream::{Incoming, Stream};
use crate::tuning::RX_BUFFER_BYTES;
use roadtrain_proto::policy::Batcher;
use roadtrain_system::memory::HugeMemory;
use roadtrain_wire::pdu::HEADER_BYTES_MAX;
use std::io;

/// The reactor's receive buffer, shared by its lanes: an idle connection holds no memory of its own.
pub struct RxBuffer {
    memory: HugeMemory,
}

impl RxBuffer {
    /// Allocates one.
    #[inline]
    pub fn new() -> io::Result<Self> {
        Ok(RxBuffer { memory: HugeMemory::new(RX_BUFFER_BYTES)? })
    }

    /// Allocates one of so many bytes, for a connection that carries little.
    pub fn small(bytes: usize) -> io::Result<Self> {
        Ok(RxBuffer { memory: HugeMemory::with_small_pages(bytes)? })
    }

    /// The first `length` octets.
    #[inline]
    pub fn filled(&self, length: usize) -> &[u8] {
        debug_assert!(length <= self.memory.len());
        // SAFETY: within the mapping; only `receive`, with `&mut self`, writes to it.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), length) }
    }

    /// Puts octets kept earlier at its start; how many.
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

/// Octets of a receive buffer that are still to be handled. As long as they are, nothing can be received into the
/// buffer: whoever has this has to go on with it.
#[must_use = "the octets would be lost"]
pub struct Rest<'a> {
    rx: &'a RxBuffer,
    at: usize,
    end: usize,
}

impl<'a> Rest<'a> {
    /// The first `length` octets of `rx`.
    #[inline]
    pub fn new(rx: &'a RxBuffer, length: usize) -> Self {
        Rest { rx, at: 0, end: length }
    }

    /// The receive from its beginning on, and where in it what is left begins.
    #[inline]
    pub fn input(&mut self) -> (&'a [u8], &mut usize) {
        (self.rx.filled(self.end), &mut self.at)
    }
}

/// What one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing now.
    Nothing,
    /// The peer closed the connection.
    Closed,
    /// Bytes.
    Octets {
        /// Bytes straight into place.
        direct: usize,
        /// Bytes behind them at the start of the receive buffer, with those kept from before.
        buffered: usize,
        /// More may be there to be received at once.
        more: bool,
    },
}

/// Short receives between two tries whether looking again at once has begun to pay.
const LOOKS_BETWEEN_TRIES: u32 = 16;

/// Whether to look again at once after a receive that did not fill its buffer: it pays while octets keep
/// coming faster than they are handled, and else is a system call for nothing.
#[derive(Debug, Default)]
struct ReceiveAgain {
    pays: bool,
    /// The receive before was short: this one tells whether looking again pays.
    trying: bool,
    short: u32,
}

impl ReceiveAgain {
    /// A receive brought octets, filling its buffer or not; whether to look again.
    fn received(&mut self, full: bool) -> bool {
        self.pays |= self.trying;
        self.short = self.short.wrapping_add(1);
        self.trying = !full && (self.pays || self.short.is_multiple_of(LOOKS_BETWEEN_TRIES));
        full || self.trying
    }

    fn nothing(&mut self) {
        self.pays &= !self.trying;
        self.trying = false;
    }
}

/// What a receive of a lane brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// Something to handle.
    pub something: bool,
    /// More may be there at once.
    pub more: bool,
}

/// A memory range that receives payload straight.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its first byte.
    pub data: *mut u8,
    /// Its bytes.
    pub length: usize,
}

/// A TCP connection of a lane: received bytes that are not used yet, and a send that the socket had no room for.
pub struct Connection {
    /// The socket, with TLS or without.
    pub stream: Stream,
    /// Octets received and not used yet: a header cut off.
    kept: Vec<u8>,
    /// A caravan that the socket had no room for.
    blocked: Option<Box<Gather>>,
    receive_again: ReceiveAgain,
    shared_core: SharedCore,
    /// Calls that it took.
    pub stats: Batching,
}

impl Connection {
    /// Begins with nothing received.
    pub fn new(stream: Stream) -> Self {
        Connection {
            shared_core: SharedCore::of(&stream),
            stream,
            kept: Vec::new(),
            blocked: None,
            receive_again: ReceiveAgain::default(),
            stats: Batching::default(),
        }
    }

    /// Octets that can be had at once, those kept among them, as far as that is known.
    #[inline]
    pub fn available(&self) -> usize {
        self.kept.len() + self.stream.unread().unwrap_or(0)
    }

    /// One receive call, without waiting. Octets that were kept come first, in `place` or else in the buffer.
    ///
    /// # Safety
    /// `place` names writable memory that nothing else writes to meanwhile, for more octets than are kept.
    pub unsafe fn receive(
        &mut self,
        rx: &mut RxBuffer,
        place: Option<Place>,
        limit: usize,
    ) -> io::Result<Received> {
        let (kept_direct, kept) = match place {
            Some(_) => (self.kept.len(), 0),
            None => (0, self.kept.len()),
        };
        debug_assert!(place.is_none_or(|p| p.length > kept_direct), "kept octets go there first");
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
            Incoming::Octets(got) => got,
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
        Ok(Received::Octets { direct: kept_direct + direct, buffered, more })
    }

    /// After a receive that brought something: tells when it has changed whether both ends share a core.
    #[inline]
    pub fn tell_shared_core(&mut self, batcher: &mut Batcher) {
        if let Some(shares) = self.shared_core.received(&self.stream) {
            batcher.set_shares_core(shares);
        }
    }

    /// Keeps octets for the next receive.
    #[inline]
    pub fn keep(&mut self, rest: &[u8]) {
        self.kept.clear();
        self.kept.extend_from_slice(rest);
    }

    /// Keeps what cannot be handled before more has come.
    #[inline]
    pub fn keep_rest(&mut self, mut rest: Rest<'_>) {
        let (input, at) = rest.input();
        self.keep(&input[*at..]);
    }

    /// Takes the octets kept: a lane that stalled goes on with them before it receives again.
    #[inline]
    pub fn take_kept(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// Tells whether a send waits for room.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Sends a caravan; when the socket is full it is kept, and `gather` becomes a fresh one.
    pub fn send(&mut self, gather: &mut Box<Gather>) -> io::Result<Sent> {
        debug_assert!(self.blocked.is_none(), "one caravan at a time");
        self.stats.caravans += 1;
        self.stats.caravan_bytes += gather.bytes() as u64;
        let sent = gather.send(&mut self.stream, &mut self.stats.sends);
        match sent {
            Ok(Sent::Blocked) => self.blocked = Some(std::mem::take(gather)),
            // Also after an error: the gather is the reactor's, and another lane is the next to use it.
            Ok(Sent::All) | Err(_) => gather.clear(),
        }
        sent
    }

    /// Goes on with the caravan that was blocked.
    pub fn resume(&mut self) -> io::Result<Sent> {
        let Some(gather) = &mut self.blocked else { return Ok(Sent::All) };
        let sent = gather.send(&mut self.stream, &mut self.stats.sends)?;
        if sent == Sent::All {
            self.blocked = None;
        }
        Ok(sent)
    }

    /// The connection is over; what was sent still reaches the peer.
    #[inline]
    pub fn hang_up(&mut self) {
        self.blocked = None;
        self.stream.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_again_stops_when_it_brings_nothing() {
        let mut again = ReceiveAgain::default();
        let tries = (0..160).filter(|_| {
            let goes_on = again.received(false);
            if goes_on {
                again.nothing();
            }
            goes_on
        });
        assert_eq!(tries.count(), 10, "one in sixteen tells whether it has begun to pay");
    }

    #[test]
    fn looking_again_goes_on_while_it_brings_something() {
        let mut again = ReceiveAgain::default();
        while !again.received(false) {}
        assert!((0..100).all(|_| again.received(false)));
        again.nothing();
        assert!(!again.received(false));
        assert!(again.received(true), "a full buffer says that there is more");
    }
}
