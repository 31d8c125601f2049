//! Settings of lanes over Ethernet and of their links.

use super::net::Manners;
use roadtrain_ether_proto::Packing;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, PAGE_BYTES, TAG_BYTES};

/// A link.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlan {
    /// Largest frame: header and body.
    pub frame_bytes: u16,
    /// To the host, to the target.
    pub ways: [Manners; 2],
}

/// One end's manner of sending.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Policy by which they are sent.
    pub policy: PolicyConfig,
    /// Packing: parts that go together.
    pub packing: Packing,
    /// Frames of one send.
    pub frames_per_send: usize,
}

/// Settings of lanes and their links.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Pages of a lane's damq.
    pub pages: u32,
    /// PIECE.
    pub piece_bytes: u16,
    /// Bodies have check sums.
    pub body_crc: bool,
    /// Frames are sealed, and hosts authenticate for that.
    pub seals: bool,
    /// The host's manner.
    pub host: Sending,
    /// The target's manner.
    pub target: Sending,
    /// The links.
    pub links: Vec<LinkPlan>,
    /// Frames that a receiver who does not look has room for.
    pub ring_frames: usize,
}

/// Largest piece that frames of all these links carry.
#[must_use]
pub fn piece_bytes(links: &[LinkPlan]) -> u16 {
    let smallest = links.iter().map(|link| usize::from(link.frame_bytes)).min().unwrap_or(0);
    let body = smallest.saturating_sub(FRAME_HEADER_BYTES + DATA_RECORD_BYTES + TAG_BYTES) & !7;
    body.min(PAGE_BYTES) as u16
}

impl Default for Sending {
    fn default() -> Self {
        Sending { policy: PolicyConfig::none(), packing: Packing::default(), frames_per_send: 1 }
    }
}
