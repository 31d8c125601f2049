//! Completion queue entry (NVMe Base 2.0, section 3.3.3.2).

use crate::status::Status;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 16;

/// Completion queue entry.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Command-specific result, low dword.
    pub dw0: U32,
    /// Command-specific result, high dword.
    pub dw1: U32,
    /// Submission queue head pointer, for flow control.
    pub sqhd: U16,
    /// Submission queue identifier (reserved over fabrics; Linux fills it).
    pub sqid: U16,
    pub cid: U16,
    /// Phase tag (bit 0, unused over fabrics) and status field (bits 15:1).
    pub status: U16,
}

const _: () = assert!(size_of::<Cqe>() == CQE_BYTES);

impl Cqe {
    /// A completion of `cid` with `status`.
    #[must_use]
    #[inline]
    pub fn new(cid: u16, status: Status) -> Self {
        Cqe { cid: cid.into(), status: status.to_field().into(), ..Cqe::default() }
    }

    /// Returns the status.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }

    /// Returns the 64-bit result in DW0 and DW1.
    #[must_use]
    #[inline]
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | u64::from(self.dw1.get()) << 32
    }

    /// Sets the 64-bit result.
    #[must_use]
    #[inline]
    pub fn with_result(mut self, result: u64) -> Self {
        self.dw0 = (result as u32).into();
        self.dw1 = ((result >> 32) as u32).into();
        self
    }
}
