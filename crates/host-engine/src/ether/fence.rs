//! Fencing of the host's earlier lanes, by `roadtrain_ether_proto::fence`.

use super::ports::Ports;
use crate::link::LinkError;
use roadtrain_ether_proto::fence::{Fence, FenceState, LaneRoute};
use roadtrain_system::clock;
use std::time::Duration;

/// Maximum frames handled between two reads of the clock.
const FRAMES: usize = 64;

/// Returns once the targets take no more frames of the host's earlier lanes.
///
/// # Errors
/// The targets do not confirm that.
pub(crate) fn end_lanes(fence: &mut Fence, ports: &mut Ports) -> Result<(), LinkError> {
    loop {
        let now = clock::now();
        fence
            .put(now, |LaneRoute { port, peer }, header, body| ports.put(port, peer, header, body));
        ports.flush();
        match fence.state(now) {
            FenceState::Open => return Ok(()),
            FenceState::Closed => return Err(LinkError::EarlierLanesRemain),
            FenceState::Querying => {}
        }
        ports.wait(None, fence.deadline().map_or(Duration::ZERO, |at| at.since(now)))?;
        for port in 0..ports.len() {
            ports.receive(port, FRAMES, |received| {
                fence.receive(received.header, received.kind, received.body)
            });
        }
    }
}
