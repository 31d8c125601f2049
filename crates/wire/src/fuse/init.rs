//! The first request, in which the two sides negotiate capabilities.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol.
pub const MAJOR: u32 = 7;
/// Highest supported minor version: requests over io_uring.
pub const MINOR: u32 = 42;
/// Minimum bytes of an Init in every version; missing fields count as zero.
pub const INIT_BYTES_MIN: usize = 16;

/// Capabilities of the kernel.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    /// The lower [`init_flag`](super::init_flag)s.
    pub flags: u32,
    /// The upper [`init_flag`](super::init_flag)s.
    pub flags2: u32,
    pub unused: [u32; 11],
}

impl InitIn {
    /// Returns all flags.
    #[must_use]
    pub fn all_flags(&self) -> u64 {
        u64::from(self.flags2) << 32 | u64::from(self.flags)
    }
}

/// Negotiated capabilities.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    /// The lower [`init_flag`](super::init_flag)s.
    pub flags: u32,
    /// Maximum asynchronous requests at a time.
    pub max_background: u16,
    /// Number of requests from which on the kernel reports congestion.
    pub congestion_threshold: u16,
    /// Maximum bytes of a Write.
    pub max_write: u32,
    /// Granularity of timestamps in nanoseconds.
    pub time_gran: u32,
    /// Maximum pages of a request's data.
    pub max_pages: u16,
    /// For shared memory, which is not supported.
    pub map_alignment: u16,
    /// The upper [`init_flag`](super::init_flag)s.
    pub flags2: u32,
    pub unused: [u32; 7],
}

const _: () = assert!(size_of::<InitIn>() == 64 && size_of::<InitOut>() == 64);
