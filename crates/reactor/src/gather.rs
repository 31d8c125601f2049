//! A caravan as one gather send: header bytes, and payload in its own memory.

use crate::stream::ConnectionStream;
use crate::tuning::GATHER_IOV_MAX;
use roadtrain_proto::caravan::Caravan;
use std::io;

/// Capacity for header bytes of a caravan: a full set of responses with digests and padding.
const HEADER_BYTES: usize = 64 << 10;
/// Maximum header bytes of one PDU: header with digest and padding to 128 bytes, and a data digest.
const PDU_HEADER_BYTES: usize = 512;

/// Result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The kernel has taken everything.
    All,
    /// The socket is full: the rest is sent when it is writable.
    Blocked,
}

/// Headers and payload ranges of one caravan.
///
/// The reactor owns and reuses it: a lane keeps one only while its socket is full.
pub struct Gather {
    headers: Box<[u8]>,
    headers_used: usize,
    iov: Vec<libc::iovec>,
    /// True if the last entry of `iov` is header bytes that the next header may extend.
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
    /// True if one more PDU fits, or the two of a fused pair: data with its digest, header, data, digest.
    #[must_use]
    #[inline]
    pub fn has_capacity(&self) -> bool {
        self.iov.len() + 5 <= GATHER_IOV_MAX
            && self.headers_used + PDU_HEADER_BYTES <= self.headers.len()
    }

    /// True if the caravan is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.iov.is_empty()
    }

    /// Bytes added since the caravan was cleared.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends `length` bytes of header for the caller to fill.
    #[inline]
    pub fn header(&mut self, length: usize) -> &mut [u8] {
        let start = self.headers_used;
        self.headers_used += length;
        self.bytes += length;
        let bytes = &mut self.headers[start..start + length];
        match self.iov.last_mut() {
            Some(last) if self.open => last.iov_len += length,
            _ => {
                let iov_base = bytes.as_mut_ptr().cast();
                self.iov.push(libc::iovec { iov_base, iov_len: length });
                self.open = true;
            }
        }
        bytes
    }

    /// Appends payload without copying it.
    ///
    /// # Safety
    /// The `length` bytes at `data` stay readable until the caravan is sent or cleared.
    #[inline]
    pub unsafe fn payload(&mut self, data: *const u8, length: usize) {
        self.iov.push(libc::iovec { iov_base: data.cast_mut().cast(), iov_len: length });
        self.bytes += length;
        self.open = false;
    }

    /// Sends the remaining bytes, without waiting. `calls` counts system calls.
    ///
    /// # Errors
    /// The stream's error; the connection is lost then.
    pub fn send(
        &mut self,
        stream: &mut ConnectionStream,
        calls: &mut u64,
    ) -> io::Result<SendOutcome> {
        while self.first < self.iov.len() {
            *calls += 1;
            // SAFETY: every iovec names readable memory: `headers`, or payload by `payload`'s contract.
            match unsafe { stream.send(&self.iov[self.first..]) }? {
                Some(sent) => self.advance(sent),
                None => return Ok(SendOutcome::Blocked),
            }
        }
        Ok(if stream.drain()? { SendOutcome::All } else { SendOutcome::Blocked })
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

// SAFETY: only `send` uses the pointers in `iov`. A thread that moves a filled caravan to another one keeps
// `payload`'s contract there.
unsafe impl Send for Gather {}

/// Writer of a queue pair's PDUs; `place` returns the memory of a slot's data, from an offset on, for a length.
pub struct GatherWriter<'a, F> {
    gather: &'a mut Gather,
    place: F,
    /// PDUs written.
    pub headers: u64,
}

impl<'a, F: FnMut(u16, u32, u32) -> Option<*const u8>> GatherWriter<'a, F> {
    /// # Safety
    /// `place` returns as many bytes as requested; they stay unchanged until the caravan is sent or cleared.
    #[inline]
    pub unsafe fn new(gather: &'a mut Gather, place: F) -> Self {
        GatherWriter { gather, place, headers: 0 }
    }
}

impl<F: FnMut(u16, u32, u32) -> Option<*const u8>> Caravan for GatherWriter<'_, F> {
    fn has_capacity(&self) -> bool {
        self.gather.has_capacity()
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.headers += 1;
        self.gather.header(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        let Some(data) = (self.place)(slot, offset, length) else { return };
        let length = length as usize;
        // SAFETY: by the contract of `new`.
        unsafe { self.gather.payload(data, length) };
        if digest {
            // SAFETY: as above.
            let data = unsafe { std::slice::from_raw_parts(data, length) };
            self.gather.header(4).copy_from_slice(&crc_fast::crc32_iscsi(data).to_le_bytes());
        }
    }
}
