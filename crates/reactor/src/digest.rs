//! Data digests.

/// CRC32C of a PDU's data.
#[must_use]
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}
