//! Frames and links of a lane over the reactor's ports.

use super::HostLane;
use crate::api::IoCompletion;
use crate::counters::LaneCounters;
use crate::ether::{FoundPath, HostFrame, Ports};
use crate::link::{LaneShared, LinkTransport, QpairLink};
use roadtrain_proto::recorder::FlightRecorder;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::recorded::ConnectionInfo;
use std::collections::VecDeque;
use std::sync::Arc;

impl HostLane {
    /// Handles a received frame of the lane.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        received: &HostFrame<'_>,
        (completions, in_flight): (&mut VecDeque<IoCompletion>, &mut u32),
        recorder: &mut FlightRecorder<Arc<ConnectionInfo>>,
    ) {
        if let Some(QpairLink::Ether(link)) = &mut self.link
            && link.lane.token() == received.header.token.get()
        {
            let before = link.in_flight();
            link.deliver(now, received, &mut self.requests, completions, recorder);
            let ended = before.saturating_sub(link.in_flight());
            *in_flight = in_flight.saturating_sub(ended);
        }
    }

    /// Adds a path to this target as a link, if the lane needs one.
    pub(crate) fn offer(&mut self, now: Instant, found: &FoundPath) {
        if let Some(link) = &mut self.link {
            link.offer(now, found);
        }
    }

    /// Updates links after a change of interfaces.
    pub(crate) fn check_carriers(&mut self, shared: &LaneShared) {
        if let Some(link) = &mut self.link {
            link.check_carriers(shared);
        }
    }

    /// Publishes the state of its links.
    pub(crate) fn write_paths(&self, ports: &Ports, counters: &LaneCounters) {
        if let Some(QpairLink::Ether(link)) = &self.link {
            counters.write_paths(link.lane.paths(ports));
        }
    }
}
