//! A caravan as one gather send: header octets and payload where it lies.

use crate::stream::Stream;
use crate::tuning::GATHER_IOV_MAX;
use roadtrain_proto::caravan::Caravan;
use std::io;

/// Header octets a caravan holds: a full set of responses with digests and padding.
const HEADER_BYTES: usize = 64 << 10;
/// Room that one PDU may need: header with digest and padding to 128 octets, and a data digest.
const PDU_HEADER_BYTES: usize = 512;

/// How a send went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything is with the kernel.
    All,
    /// The socket is full: the rest goes when it is writable.
    Blocked,
}

/// Headers and payload ranges of one caravan.
///
/// Reactor-owned and reused: a lane keeps one only while its socket is full.
pub struct Gather {
    headers: Box<[u8]>,
    headers_used: usize,
    iov: Vec<libc::iovec>,
    /// The last entry of `iov` is header octets that the next header may extend.
    open: bool,
    first: usize,
    bytes: usize,
}

impl Default for Gather {
    fn default() -> Self {
        Gather {
            headers: vec![0; HEADER_BYTES].into_boxed_slice(),
            headers_used: 0,
            iov: Vec::with_capacity(GATHER_IOV_MAX),
            open: false,
            first: 0,
            bytes: 0,
        }
    }
}

impl Gather {
    /// Whether one more PDU fits, or the two of a fused pair: data with its digest, header, data, digest.
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.iov.len() + 5 <= GATHER_IOV_MAX
            && self.headers_used + PDU_HEADER_BYTES <= self.headers.len()
    }

    /// Nothing in it.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.iov.is_empty()
    }

    /// Octets put in since it was cleared.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends `length` octets of header for the caller to fill.
    #[inline]
    pub fn header(&mut self, length: usize) -> &mut [u8] {
        let start = self.headers_used;
        self.headers_used += length;
        self.bytes += length;
        let octets = &mut self.headers[start..start + length];
        match self.iov.last_mut() {
            Some(last) if self.open => last.iov_len += length,
            _ => {
                let iov_base = octets.as_mut_ptr().cast();
                self.iov.push(libc::iovec { iov_base, iov_len: length });
                self.open = true;
            }
        }
        octets
    }

    /// Appends payload at its place.
    ///
    /// # Safety
    /// The `length` octets at `data` stay readable until the caravan is sent or cleared.
    #[inline]
    pub unsafe fn payload(&mut self, data: *const u8, length: usize) {
        self.iov.push(libc::iovec { iov_base: data.cast_mut().cast(), iov_len: length });
        self.bytes += length;
        self.open = false;
    }

    /// Sends what is left, without waiting. `calls` counts system calls.
    ///
    /// # Errors
    /// The stream's; the connection is lost then.
    pub fn send(&mut self, stream: &mut Stream, calls: &mut u64) -> io::Result<Sent> {
        while self.first < self.iov.len() {
            *calls += 1;
            // SAFETY: every iovec names readable memory: `headers`, or payload by `payload`'s contract.
            match unsafe { stream.send(&self.iov[self.first..]) }? {
                Some(sent) => self.advance(sent),
                None => return Ok(Sent::Blocked),
            }
        }
        Ok(if stream.drain()? { Sent::All } else { Sent::Blocked })
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(entry) = self.iov.get_mut(self.first) {
            if sent < entry.iov_len {
                // SAFETY: stays within the entry's memory.
                entry.iov_base = unsafe { entry.iov_base.cast::<u8>().add(sent).cast() };
                entry.iov_len -= sent;
                return;
            }
            sent -= entry.iov_len;
            self.first += 1;
        }
    }

    /// Empties it for the next caravan.
    pub fn clear(&mut self) {
        self.headers_used = 0;
        self.iov.clear();
        self.open = false;
        self.first = 0;
        self.bytes = 0;
    }
}

// SAFETY: the pointers in `iov` are only used by `send`; whoever moves a filled caravan to another thread
// keeps `payload`'s contract there.
unsafe impl Send for Gather {}

/// Writes what a queue pair sends; `place` says where a slot's data lies, from an offset on, for a length.
pub struct GatherWriter<'a, F> {
    gather: &'a mut Gather,
    place: F,
    /// PDUs written.
    pub headers: u64,
}

impl<'a, F: FnMut(u16, u32, u32) -> Option<*const u8>> GatherWriter<'a, F> {
    /// # Safety
    /// Data is as long as was asked for, and stays as it is until the caravan is sent or cleared.
    #[inline]
    pub unsafe fn new(gather: &'a mut Gather, place: F) -> Self {
        GatherWriter { gather, place, headers: 0 }
    }
}

impl<F: FnMut(u16, u32, u32) -> Option<*const u8>> Caravan for GatherWriter<'_, F> {
    fn has_room(&self) -> bool {
        self.gather.has_room()
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.headers += 1;
        self.gather.header(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        let Some(data) = (self.place)(slot, offset, length) else { return };
        let length = length as usize;
        // SAFETY: by the promise of who made it.
        unsafe { self.gather.payload(data, length) };
        if digest {
            // SAFETY: as above.
            let data = unsafe { std::slice::from_raw_parts(data, length) };
            self.gather.header(4).copy_from_slice(&crc_fast::crc32_iscsi(data).to_le_bytes());
        }
    }
}
