//! Format of TLS 1.3 records (RFC 8446, 5).

use crate::TlsError;

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 5;
/// Bytes of AES-GCM's tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Maximum bytes of content in a record.
pub const CONTENT_BYTES_MAX: usize = 1 << 14;
/// Maximum bytes of a record, header and tag included. TLS allows 240 bytes of padding more than this end ever sends.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + SEALED_BYTES_MAX;
/// Maximum value of a record's length field.
const SEALED_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;
/// Minimum value of a record's length field: the type of the content and the tag.
const SEALED_BYTES_MIN: usize = 1 + TAG_BYTES;
/// Bytes of a record besides its content, without padding.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// Version field of records: TLS 1.3 sends that of TLS 1.2.
pub(crate) const LEGACY_VERSION: u16 = 0x0303;

/// Type of records with the reason why a connection ends.
pub const CONTENT_TYPE_ALERT: u8 = 21;
/// First byte of a connection that begins with a handshake.
pub const CONTENT_TYPE_HANDSHAKE: u8 = 22;
/// Type of records with data.
pub const CONTENT_TYPE_DATA: u8 = 23;

/// Returns the bytes of records for `length` bytes of data.
#[must_use]
pub fn sealed_bytes(length: usize) -> usize {
    length + length.div_ceil(CONTENT_BYTES_MAX) * OVERHEAD_BYTES
}

/// Returns the blocks of AES of a record: those of its content, of its tag, and of its header.
pub(crate) fn blocks(content: usize) -> u64 {
    (content as u64).div_ceil(16) + 2
}

/// Returns the blocks of AES of `length` bytes of data in records of full length.
#[must_use]
pub fn sealed_blocks(length: usize) -> u64 {
    let (whole, rest) = (length / CONTENT_BYTES_MAX, length % CONTENT_BYTES_MAX);
    whole as u64 * blocks(CONTENT_BYTES_MAX) + if rest > 0 { blocks(rest) } else { 0 }
}

/// Returns the header of a record whose content, type and padding are `inner` bytes.
pub(crate) fn header(inner: usize) -> [u8; HEADER_BYTES] {
    let [version_1, version_0] = LEGACY_VERSION.to_be_bytes();
    let [length_1, length_0] = ((inner + TAG_BYTES) as u16).to_be_bytes();
    [CONTENT_TYPE_DATA, version_1, version_0, length_1, length_0]
}

/// Returns the bytes of the record at the start of `input`, header and tag included; `None`: its header is incomplete.
///
/// # Errors
/// The input does not begin with a sealed record.
pub(crate) fn record_bytes(input: &[u8]) -> Result<Option<usize>, TlsError> {
    let Some(&[kind, version_1, version_0, length_1, length_0]) = input.first_chunk() else {
        return Ok(None);
    };
    let wrong = |what, value: u16| Err(TlsError::Record { what, value: value.into() });
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

/// Position in a stream of records that arrives in parts.
#[derive(Debug, Default)]
pub(crate) struct RecordEnd {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have arrived.
    filled: usize,
    /// Bytes of the record after its header that have not arrived.
    rest: usize,
}

impl RecordEnd {
    /// Returns the bytes to the end of the header, or to the end of the record; never 0.
    pub(crate) fn left(&self) -> usize {
        if self.filled < HEADER_BYTES { HEADER_BYTES - self.filled } else { self.rest }
    }

    pub(crate) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(self.left().min(bytes.len()));
            bytes = later;
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
