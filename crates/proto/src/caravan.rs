//! Caravan: the PDUs that one send carries, as header bytes and ranges of payload (i10, section 3.2).

use roadtrain_wire::pdu::{CommonHeader, Digests, header_digest};
use roadtrain_wire::zerocopy::{Immutable, IntoBytes};

/// Limits of a caravan: it is sent before the request that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaravanLimits {
    /// Maximum number of requests (or responses).
    pub count_max: u32,
    /// Maximum bytes of data; a single larger request still travels, alone.
    pub bytes_max: u32,
}

impl CaravanLimits {
    /// True if one more request of `bytes` fits behind `count` requests of `total` bytes.
    #[must_use]
    #[inline]
    pub fn fits(&self, count: u32, total: u32, bytes: u32) -> bool {
        count == 0 || (count < self.count_max && total.saturating_add(bytes) <= self.bytes_max)
    }
}

/// Buffer that a queue pair writes PDUs to. The engine turns it into one gather send.
pub trait Caravan {
    /// True if one more PDU fits (a header of at most 256 bytes, one payload, one digest).
    fn has_capacity(&self) -> bool;
    /// Appends `length` bytes of header, to be filled by the caller.
    fn header(&mut self, length: usize) -> &mut [u8];
    /// Appends `length` bytes of the slot's data from `offset`, then their CRC32C if `digest`.
    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool);
}

/// Writes a PDU's header `pdu`, its digest and the padding before its data.
#[inline]
pub fn put_header<P: IntoBytes + Immutable>(
    caravan: &mut impl Caravan,
    ch: &CommonHeader,
    pdu: &P,
    digests: Digests,
) {
    let bytes = pdu.as_bytes();
    let end = if ch.pdo > 0 { usize::from(ch.pdo) } else { ch.plen.get() as usize };
    let out = caravan.header(end);
    out[..bytes.len()].copy_from_slice(bytes);
    if end > bytes.len() {
        out[bytes.len()..].fill(0);
        if digests.header {
            out[bytes.len()..bytes.len() + 4].copy_from_slice(&header_digest(bytes));
        }
    }
}
