//! Ethernet's header, and the header of frames behind it.

use core::fmt;
use crc_fast::crc32_iscsi;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// IEEE 802 local experimental EtherType 1: the default.
pub const ETHERTYPE: u16 = 0x88b5;
pub const VERSION: u8 = 1;
/// Bytes of [`FrameHeader`].
pub const FRAME_HEADER_BYTES: usize = 64;
/// Group address at which hosts discover targets.
pub const GROUP: MacAddress = MacAddress([0x03, 0x52, 0x54, 0x4e, 0x56, 0x4d]);

/// MAC address of an interface.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Ethernet's header without tag.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    pub destination: MacAddress,
    pub source: MacAddress,
    /// EtherType, in network order.
    pub ethertype: zerocopy::big_endian::U16,
}

/// Frame types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of docs/reference/ethernet.md")]
pub enum FrameType {
    Discover = 1,
    Offer = 2,
    Join = 3,
    Joined = 4,
    Probe = 5,
    Probed = 6,
    Query = 7,
    Cargo = 8,
    Ack = 9,
    Leave = 10,
}

impl FrameType {
    /// Returns the type with that value.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        use FrameType::*;
        const ALL: [FrameType; 10] =
            [Discover, Offer, Join, Joined, Probe, Probed, Query, Cargo, Ack, Leave];
        ALL.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// Bits of [`FrameHeader::flags`].
pub mod flags {
    /// BCRC is valid.
    pub const CRC: u16 = 1;
    /// The receiver acknowledges at once.
    pub const ASK: u16 = 1 << 1;
    /// SEQ is valid.
    pub const SEQ: u16 = 1 << 2;
    /// The body is sealed, and NUMBER is valid.
    pub const SEALED: u16 = 1 << 3;
}

/// The header of every frame, behind the EtherType.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct FrameHeader {
    pub version: u8,
    pub kind: u8,
    /// FLAGS: see [`flags`].
    pub flags: U16,
    pub hcrc: U32,
    /// TOKEN: the receiver's.
    pub token: U64,
    /// SOCKET: the receiver's.
    pub socket_number: U16,
    /// REPLY: the sender's socket number.
    pub reply: U16,
    pub link: u8,
    pub reserved_1: u8,
    /// BODY: bytes behind this header.
    pub body: U16,
    pub seq: U32,
    pub base: U32,
    pub ack: U32,
    /// DELAY, microseconds.
    pub delay_us: U16,
    pub credits: U16,
    pub sack: U64,
    pub bcrc: U32,
    pub reserved_2: U32,
    /// NUMBER of the sealed frame among all of the lane in this direction.
    pub number: U64,
}

/// Reason why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameError {
    /// Shorter than the header, or than header and BODY.
    Truncated,
    Version,
    Type,
    HeaderCrc,
    BodyCrc,
}

/// Sets HCRC. The caller has set BODY, BCRC and its flag.
pub fn set_hcrc(header: &mut FrameHeader) {
    header.hcrc = U32::ZERO;
    header.hcrc = U32::new(crc32_iscsi(header.as_bytes()));
}

/// Returns header, type and body of a frame behind the EtherType, without padding.
///
/// # Errors
/// Names the wrong part.
pub fn parse(bytes: &[u8]) -> Result<(FrameHeader, FrameType, &[u8]), FrameError> {
    let (header, rest) = FrameHeader::read_from_prefix(bytes).map_err(|_| FrameError::Truncated)?;
    if header.version != VERSION {
        return Err(FrameError::Version);
    }
    let mut unsealed = header;
    unsealed.hcrc = U32::ZERO;
    if crc32_iscsi(unsealed.as_bytes()) != header.hcrc.get() {
        return Err(FrameError::HeaderCrc);
    }
    let kind = FrameType::from_byte(header.kind).ok_or(FrameError::Type)?;
    let body = rest.get(..usize::from(header.body.get())).ok_or(FrameError::Truncated)?;
    if header.flags.get() & flags::CRC != 0 && crc32_iscsi(body) != header.bcrc.get() {
        return Err(FrameError::BodyCrc);
    }
    Ok((header, kind, body))
}

const _: () = {
    assert!(size_of::<EthernetHeader>() == 14);
    assert!(size_of::<FrameHeader>() == FRAME_HEADER_BYTES);
};
