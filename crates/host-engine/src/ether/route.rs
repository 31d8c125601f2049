//! Links of a lane, and paths to them.

use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_wire::ether::setup::{JoinBody, JoinedBody};
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, MacAddress, TAG_BYTES};

/// Minimum bytes of a piece of a request's data.
pub(super) const PIECE_MIN: u16 = 1024;
/// Minimum bytes of a frame that holds a piece.
pub(super) const FRAME_MIN: u16 = HEADS_BYTES + PIECE_MIN;
/// Bytes of a frame with a piece, without the piece; including a tag, whether or not there is one.
pub(super) const HEADS_BYTES: u16 = (FRAME_HEADER_BYTES + DATA_RECORD_BYTES + TAG_BYTES) as u16;

/// Path to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkPath {
    pub(crate) route: LaneRoute,
    /// Largest frame, in bytes.
    pub(crate) frame_bytes: u16,
}

/// Established link.
pub(crate) struct Linked {
    pub(crate) route: LaneRoute,
    pub(crate) config: ChannelConfig,
    /// Socket number of the target.
    pub(crate) socket_number: u16,
}

impl Linked {
    /// Creates the link from `join` and its reply, which came from `socket_number`.
    pub(super) fn new(
        route: LaneRoute,
        join: &JoinBody,
        joined: &JoinedBody,
        socket_number: u16,
    ) -> Self {
        let config = ChannelConfig {
            link: join.link,
            first_tx: join.first.get(),
            first_rx: joined.first.get(),
            window: joined.window.get(),
            frame_bytes: join.frame.get().min(joined.frame.get()),
        };
        Linked { route, config, socket_number }
    }
}

/// Returns the route of a link.
pub(super) fn route(routes: &[(u8, LaneRoute)], link: u8) -> Option<LaneRoute> {
    let found = routes.iter().find(|(number, _)| *number == link);
    found.map(|&(_, route)| route)
}

/// Addresses of a target, and the links of a lane to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) addresses: Vec<MacAddress>,
    pub(crate) routes: Vec<LaneRoute>,
}
