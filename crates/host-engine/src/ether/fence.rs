//! Ends the host's earlier lanes, as `roadtrain_ether_proto::fence` says.

use super::ports::Ports;
use crate::link::LinkError;
use roadtrain_ether_proto::fence::{Fence, FenceState, Route};
use roadtrain_system::clock;
use std::time::Duration;

/// Most frames looked at before it is looked at the time.
const FRAMES: usize = 64;

/// Returns when the targets take no more frames of the host's earlier lanes.
///
/// # Errors
/// They do not say so.
pub(crate) fn end_lanes(fence: &mut Fence, ports: &mut Ports) -> Result<(), LinkError> {
    loop {
        let now = clock::now();
        fence.put(now, |Route { port, peer }, header, body| ports.put(port, peer, header, body));
        ports.flush();
        match fence.state(now) {
            FenceState::Open => return Ok(()),
            FenceState::Closed => return Err(LinkError::Clinging),
            FenceState::Asking => {}
        }
        ports.wait(None, fence.deadline().map_or(Duration::ZERO, |at| at.since(now)))?;
        for port in 0..ports.len() {
            ports.receive(port, FRAMES, |heard| fence.hear(heard.header, heard.kind, heard.body));
        }
    }
}
