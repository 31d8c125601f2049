//! Bodies of the frames that make and end lanes.

use super::frame::MacAddress;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of [`JoinBody::flags`].
pub mod join_flags {
    /// Both sides send BCRC.
    pub const CRC: u16 = 1;
}

/// Reason why a lane ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum LeaveReason {
    /// The sender does not know the token.
    UnknownToken = 1,
    /// The host closes the lane.
    Done = 2,
    /// The target shuts down.
    Shutdown = 3,
    /// The peer broke the protocol.
    Broken = 4,
}

impl LeaveReason {
    /// Returns the reason with that value.
    #[must_use]
    pub fn from_value(value: u16) -> Option<Self> {
        use LeaveReason::*;
        [UnknownToken, Done, Shutdown, Broken].into_iter().find(|&reason| reason as u16 == value)
    }
}

/// A subsystem at a port; its NQN follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct OfferBody {
    pub endpoint: [u8; 16],
    /// FRAME: largest frame, header and body.
    pub frame: U16,
    pub nqn_length: U16,
    pub reserved: U32,
}

/// Adds a link to a lane; the subsystem's NQN follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct JoinBody {
    /// TOKEN of the host.
    pub token: U64,
    /// FIRST SEQ of the host.
    pub first: U32,
    /// FRAME: largest frame that the host takes.
    pub frame: U16,
    /// PIECE: bytes of a piece.
    pub piece: U16,
    pub link: u8,
    /// LINKS of the lane.
    pub links: u8,
    /// Requested SLOTS.
    pub slots: U16,
    /// FLAGS: see [`join_flags`].
    pub flags: U16,
    pub nqn_length: U16,
    /// ENDPOINT of the target.
    pub endpoint: [u8; 16],
}

/// Reply to a [`JoinBody`]; [`addresses`] follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct JoinedBody {
    /// STATUS: zero, or the reason of the refusal.
    pub status: U16,
    /// SLOTS of the lane.
    pub slots: U16,
    /// TOKEN of the target.
    pub token: U64,
    /// FIRST SEQ of the target.
    pub first: U32,
    /// PAGES of the damq.
    pub pages: U32,
    /// FRAME: largest frame that the target takes.
    pub frame: U16,
    /// WINDOW: sequence numbers that it can hold.
    pub window: U16,
}

/// Maximum addresses in [`JoinedBody`].
pub const ADDRESSES_MAX: usize = 32;

/// Returns the addresses behind [`JoinedBody`], at which the target can be reached.
pub fn addresses(rest: &[u8]) -> impl Iterator<Item = MacAddress> {
    rest.as_chunks().0.iter().take(ADDRESSES_MAX).map(|bytes| MacAddress(*bytes))
}

/// Checks that the target still has a lane; the subsystem's NQN follows.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QueryBody {
    /// TOKEN of the target for the lane.
    pub token: U64,
    /// TOKEN of the host, for the reply's header.
    pub host_token: U64,
    pub nqn_length: U16,
    pub reserved: [u8; 6],
}

/// Ends a lane.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LeaveBody {
    /// TOKEN of the sender, which the receiver puts into its own frames.
    pub token: U64,
    /// REASON: see [`LeaveReason`].
    pub reason: U16,
    /// First bytes of ENDPOINT in a target's reply; otherwise zero.
    pub endpoint: [u8; 6],
}

/// Returns the part of an ENDPOINT that a Leave carries.
#[must_use]
pub fn endpoint_tag(endpoint: &[u8; 16]) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = *endpoint;
    [a, b, c, d, e, f]
}

/// Parses a body of `T` and an NQN with the length from `nqn_length`.
#[must_use]
pub fn with_nqn<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    body: &[u8],
    nqn_length: impl Fn(&T) -> u16,
) -> Option<(&T, &str)> {
    let (fixed, rest) = T::ref_from_prefix(body).ok()?;
    let nqn = rest.get(..usize::from(nqn_length(fixed)))?;
    Some((fixed, core::str::from_utf8(nqn).ok()?))
}

const _: () = {
    assert!(size_of::<OfferBody>() == 24);
    assert!(size_of::<JoinBody>() == 40);
    assert!(size_of::<JoinedBody>() == 24);
    assert!(size_of::<QueryBody>() == 24);
    assert!(size_of::<LeaveBody>() == 16);
};
