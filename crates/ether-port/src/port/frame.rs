//! The Ethernet framing: Ethernet's header, and limits of frames.

use roadtrain_wire::ether::{FrameHeader, MacAddress};
use std::mem;

/// Bytes of Ethernet's header without a tag, with which every received frame begins.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Bytes of a tag.
pub(super) const TAG_BYTES: usize = 4;
/// EtherType of a tag.
pub(super) const TAG_ETHERTYPE: u16 = 0x8100;
/// Offset of SOCKET in a frame without tag.
pub(super) const SOCKET_OFFSET: usize =
    ETHERNET_HEADER_BYTES + mem::offset_of!(FrameHeader, socket_number);
/// Largest frame that FRAME can express.
pub(super) const FRAME_MAX: usize = u16::MAX as usize;

/// Ethernet properties of a frame: addresses, tag, EtherType, and maximum size.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameShape {
    pub(super) source: MacAddress,
    pub(super) ethertype: u16,
    pub(super) vlan: Option<u16>,
    /// Most bytes behind Ethernet's header.
    pub(super) frame: usize,
}

impl FrameShape {
    /// Returns the bytes before our own header.
    pub(super) fn header_bytes(&self) -> usize {
        ETHERNET_HEADER_BYTES + if self.vlan.is_some() { TAG_BYTES } else { 0 }
    }

    /// Returns the bytes of the largest frame, including all headers.
    pub(super) fn frame_bytes(&self) -> usize {
        self.header_bytes() + self.frame
    }

    /// Writes Ethernet's header; returns its bytes.
    pub(super) fn write_header(&self, place: &mut [u8], destination: MacAddress) -> usize {
        place[..6].copy_from_slice(&destination.0);
        place[6..12].copy_from_slice(&self.source.0);
        let mut at = 12;
        if let Some(vlan) = self.vlan {
            place[at..at + 2].copy_from_slice(&TAG_ETHERTYPE.to_be_bytes());
            place[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
            at += TAG_BYTES;
        }
        place[at..at + 2].copy_from_slice(&self.ethertype.to_be_bytes());
        at + 2
    }
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushResult {
    /// Frames that the kernel has taken.
    pub frames: usize,
    /// Bytes of these frames, including Ethernet's header.
    pub bytes: usize,
    /// Frames that were dropped here: the interface's queue is full, it is down, or its MTU has become smaller.
    pub refused: usize,
    /// System calls.
    pub calls: usize,
}
