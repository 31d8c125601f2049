//! The outside of frames: Ethernet's header, and how large they may be.

use roadtrain_wire::ether::{FrameHeader, MacAddress};
use std::mem;

/// Octets of Ethernet's header without a tag: what every received frame begins with.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Octets of a tag.
pub(super) const TAG_BYTES: usize = 4;
/// EtherType of a tag.
pub(super) const TAG_ETHERTYPE: u16 = 0x8100;
/// Where SOCKET is in a frame without tag.
pub(super) const SOCKET_OFFSET: usize =
    ETHERNET_HEADER_BYTES + mem::offset_of!(FrameHeader, socket_number);
/// Largest frame that FRAME can name.
pub(super) const FRAME_MAX: usize = u16::MAX as usize;

/// The outside of a frame: addresses, tag, EtherType, and how large it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) source: MacAddress,
    pub(super) ethertype: u16,
    pub(super) vlan: Option<u16>,
    /// Most octets behind Ethernet's header.
    pub(super) frame: usize,
}

impl Shape {
    /// Octets before our own header.
    pub(super) fn header_bytes(&self) -> usize {
        ETHERNET_HEADER_BYTES + if self.vlan.is_some() { TAG_BYTES } else { 0 }
    }

    /// Octets of the largest frame, all included.
    pub(super) fn frame_bytes(&self) -> usize {
        self.header_bytes() + self.frame
    }

    /// Writes Ethernet's header; its octets.
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

/// How a flush went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel has taken.
    pub frames: usize,
    /// Their octets, Ethernet's header included.
    pub octets: usize,
    /// Frames that were dropped here: the interface's queue is full, it is down, or its MTU has become smaller.
    pub refused: usize,
    /// System calls.
    pub calls: usize,
}
