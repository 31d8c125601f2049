//! What the reactor's ports bring to a lane.

use super::HostLane;
use crate::api::Completion;
use crate::counters::LaneCounters;
use crate::ether::{Found, Heard, Ports};
use crate::link::{Link, Shared, Transport};
use roadtrain_proto::recorder::Recorder;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::recorded::Line;
use std::collections::VecDeque;
use std::sync::Arc;

impl HostLane {
    /// A frame for the lane has come.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        (completions, in_flight): (&mut VecDeque<Completion>, &mut u32),
        recorder: &mut Recorder<Arc<Line>>,
    ) {
        if let Some(Link::Ether(link)) = &mut self.link
            && link.lane.token() == heard.header.token.get()
        {
            let before = link.in_flight();
            link.deliver(now, heard, &mut self.requests, completions, recorder);
            let ended = before.saturating_sub(link.in_flight());
            *in_flight = in_flight.saturating_sub(ended);
        }
    }

    /// A path to that target was found: perhaps one more link.
    pub(crate) fn offer(&mut self, now: Instant, found: &Found) {
        if let Some(link) = &mut self.link {
            link.offer(now, found);
        }
    }

    /// Interfaces have come or gone.
    pub(crate) fn check_carriers(&mut self, shared: &Shared) {
        if let Some(link) = &mut self.link {
            link.check_carriers(shared);
        }
    }

    /// Its parts of links, for other threads.
    pub(crate) fn write_paths(&self, ports: &Ports, counters: &LaneCounters) {
        if let Some(Link::Ether(link)) = &self.link {
            counters.write_paths(link.lane.paths(ports));
        }
    }
}
