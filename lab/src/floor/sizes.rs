//! Sizes of headers, as in NVMe/TCP.

/// Bytes of a request header: a CapsuleCmd.
pub(super) const REQUEST_BYTES: usize = 72;
/// Bytes of an answer header: a CapsuleResp or the head of a C2HData.
pub(super) const ANSWER_BYTES: usize = 24;
