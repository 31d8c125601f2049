//! The first request, in which the two sides agree on what they can do.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol.
pub const MAJOR: u32 = 7;
/// The last of its changes that is known here: requests over io_uring.
pub const MINOR: u32 = 42;
/// Octets that an Init has in every version; what follows counts as zero if it is missing.
pub const INIT_OCTETS_MIN: usize = 16;

/// What the kernel can do.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    /// The lower [`init_flag`](super::init_flag)s.
    pub flags: u32,
    /// The upper ones.
    pub flags2: u32,
    pub unused: [u32; 11],
}

impl InitIn {
    /// All flags.
    #[must_use]
    pub fn all_flags(&self) -> u64 {
        u64::from(self.flags2) << 32 | u64::from(self.flags)
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    /// The lower [`init_flag`](super::init_flag)s.
    pub flags: u32,
    /// Asynchronous requests at a time.
    pub max_background: u16,
    /// With that many, the kernel says that it is congested.
    pub congestion_threshold: u16,
    /// Most octets of a Write.
    pub max_write: u32,
    /// Nanoseconds that times are multiples of.
    pub time_gran: u32,
    /// Most pages of a request's data.
    pub max_pages: u16,
    /// For shared memory, which there is not.
    pub map_alignment: u16,
    /// The upper flags.
    pub flags2: u32,
    pub unused: [u32; 7],
}

const _: () = assert!(size_of::<InitIn>() == 64 && size_of::<InitOut>() == 64);
