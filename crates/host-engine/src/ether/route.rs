//! Links of a lane, and what leads to them.

use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::fence::Route;
use roadtrain_wire::ether::setup::{Join, Joined};
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, MacAddress, TAG_BYTES};

/// Smallest piece of a request's data.
pub(super) const PIECE_MIN: u16 = 1024;
/// Smallest frame that holds a piece as small as they may be.
pub(super) const FRAME_MIN: u16 = HEADS_BYTES + PIECE_MIN;
/// Octets of a frame with a piece beside those of the piece; a tag has room, whether or not there will be one.
pub(super) const HEADS_BYTES: u16 = (FRAME_HEADER_BYTES + DATA_RECORD_BYTES + TAG_BYTES) as u16;

/// A link that leads to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) route: Route,
    /// Largest frame.
    pub(crate) frame_bytes: u16,
}

/// A link that a target has agreed to.
pub(crate) struct Linked {
    pub(crate) route: Route,
    pub(crate) config: ChannelConfig,
    /// The target's socket number to it.
    pub(crate) socket_number: u16,
}

impl Linked {
    /// What `join` and its answer, from `socket_number`, have agreed on.
    pub(super) fn new(route: Route, join: &Join, joined: &Joined, socket_number: u16) -> Self {
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

/// The route of a link.
pub(super) fn route(routes: &[(u8, Route)], link: u8) -> Option<Route> {
    let found = routes.iter().find(|(number, _)| *number == link);
    found.map(|&(_, route)| route)
}

/// Where a target can be reached, and over which links it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) addresses: Vec<MacAddress>,
    pub(crate) routes: Vec<Route>,
}
