//! Settings of lanes over Ethernet and of their links.

use super::net::LinkBehaviour;
use roadtrain_ether_proto::Packing;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, PAGE_BYTES, TAG_BYTES};

/// A link.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlan {
    /// Largest frame in bytes: header and body.
    pub frame_bytes: u16,
    /// Behaviour towards the host and towards the target.
    pub directions: [LinkBehaviour; 2],
}

/// Send settings of one end.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Batching policy.
    pub policy: PolicyConfig,
    /// Packing of requests and pieces.
    pub packing: Packing,
    /// Most frames of one send.
    pub frames_per_send: usize,
}

/// Settings of lanes and their links.
#[derive(Clone, Debug, Default)]
pub struct EtherSettings {
    /// Pages of a lane's damq.
    pub pages: u32,
    /// PIECE in bytes.
    pub piece_bytes: u16,
    /// True if bodies have checksums.
    pub body_crc: bool,
    /// True if frames are sealed, for which hosts authenticate.
    pub seals: bool,
    /// Send settings of the host.
    pub host: Sending,
    /// Send settings of the target.
    pub target: Sending,
    /// Links of every lane.
    pub links: Vec<LinkPlan>,
    /// Frames that fit into the ring of a receiver that does not poll.
    pub ring_frames: usize,
}

/// Returns the largest piece that frames of all these links carry.
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
