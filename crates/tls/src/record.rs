//! What TLS 1.3 records look like on the wire (RFC 8446, 5).

use crate::Error;

/// Octets of a record's header.
pub(crate) const HEADER_BYTES: usize = 5;
/// Octets of AES-GCM's tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Octets of content in a record at most.
pub const CONTENT_BYTES_MAX: usize = 1 << 14;
/// Octets of a record at most. TLS allows 240 octets of padding more than we ever send; header and tag included.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + SEALED_BYTES_MAX;
/// What a record's length may say at most.
const SEALED_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;
/// The type of the content and the tag.
const SEALED_BYTES_MIN: usize = 1 + TAG_BYTES;
/// What a record has beside its content when nothing is padded.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// Records of TLS 1.3 say the version of TLS 1.2.
pub(crate) const LEGACY_VERSION: u16 = 0x0303;

/// The type of records that say why a connection ends.
pub const CONTENT_TYPE_ALERT: u8 = 21;
/// The first octet of a connection that begins with a handshake.
pub const CONTENT_TYPE_HANDSHAKE: u8 = 22;
/// The type of records with data.
pub const CONTENT_TYPE_DATA: u8 = 23;

/// Octets that `length` octets of data take when they are sealed.
#[must_use]
pub fn sealed_bytes(length: usize) -> usize {
    length + length.div_ceil(CONTENT_BYTES_MAX) * OVERHEAD_BYTES
}

/// Blocks of AES that a record takes: those of its content, of its tag, and of its header.
pub(crate) fn blocks(content: usize) -> u64 {
    (content as u64).div_ceil(16) + 2
}

/// Blocks of AES that `length` octets of data take in records that are as long as they can be.
#[must_use]
pub fn sealed_blocks(length: usize) -> u64 {
    let (whole, rest) = (length / CONTENT_BYTES_MAX, length % CONTENT_BYTES_MAX);
    whole as u64 * blocks(CONTENT_BYTES_MAX) + if rest > 0 { blocks(rest) } else { 0 }
}

/// The header of a record whose content, type and padding are `inner` octets.
pub(crate) fn header(inner: usize) -> [u8; HEADER_BYTES] {
    let [version_1, version_0] = LEGACY_VERSION.to_be_bytes();
    let [length_1, length_0] = ((inner + TAG_BYTES) as u16).to_be_bytes();
    [CONTENT_TYPE_DATA, version_1, version_0, length_1, length_0]
}

/// Octets of the record that `input` begins with, header and tag included; `None`: its header is not whole.
///
/// # Errors
/// No sealed record begins so.
pub(crate) fn record_bytes(input: &[u8]) -> Result<Option<usize>, Error> {
    let Some(&[kind, version_1, version_0, length_1, length_0]) = input.first_chunk() else {
        return Ok(None);
    };
    let wrong = |what, value: u16| Err(Error::Record { what, value: value.into() });
    if kind != CONTENT_TYPE_DATA {
        return wrong("type", kind.into());
    }
    let version = u16::from_be_bytes([version_1, version_0]);
    if version != LEGACY_VERSION {
        return wrong("version", version);
    }
    let length = u16::from_be_bytes([length_1, length_0]);
    if !(SEALED_BYTES_MIN..=SEALED_BYTES_MAX).contains(&usize::from(length)) {
        return wrong("length", length);
    }
    Ok(Some(HEADER_BYTES + usize::from(length)))
}

/// Where records end in a stream that is received in parts.
#[derive(Debug, Default)]
pub(crate) struct RecordEnd {
    header: [u8; HEADER_BYTES],
    /// Octets of the header that have come.
    filled: usize,
    /// Octets of the record after its header that have not.
    rest: usize,
}

impl RecordEnd {
    /// Octets to the end of the header, or to the end of the record; never none.
    pub(crate) fn left(&self) -> usize {
        if self.filled < HEADER_BYTES { HEADER_BYTES - self.filled } else { self.rest }
    }

    pub(crate) fn advance(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let (now, later) = octets.split_at(self.left().min(octets.len()));
            octets = later;
            if self.filled < HEADER_BYTES {
                self.header[self.filled..][..now.len()].copy_from_slice(now);
                self.filled += now.len();
                self.rest = u16::from_be_bytes([self.header[3], self.header[4]]).into();
            } else {
                self.rest -= now.len();
            }
            if self.filled == HEADER_BYTES && self.rest == 0 {
                self.filled = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_their_headers_say() {
        let mut end = RecordEnd::default();
        let mut lefts = Vec::new();
        for part in [&[22, 3, 3][..], &[0, 4], &[1, 2, 3], &[4, 20, 3, 3, 0], &[0], &[23]] {
            end.advance(part);
            lefts.push(end.left());
        }
        assert_eq!(lefts, [2, 4, 1, 1, 5, 4]);
    }
}
