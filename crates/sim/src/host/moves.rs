//! What a path of the simulated host gives to another one.

use super::Host;
use crate::load::{Load, Request};
use crate::transport::Transport;
use roadtrain_proto::host::paths::{Offer, WayState};
use roadtrain_proto::host::requests::{Moved, Queue};
use roadtrain_proto::time::Instant;

impl<T: Transport> Host<T> {
    /// How it stands with a lane.
    pub(crate) fn way_state(&self, lane: usize) -> WayState {
        match &self.lanes[lane].link {
            Some(_) => WayState::Live,
            None if self.is_lost => WayState::Lost,
            None => WayState::Connecting,
        }
    }

    /// What a lane offers to one more request.
    pub(crate) fn offer(&self, now: Instant, lane: usize, request: &Request) -> Offer {
        let lane = &self.lanes[lane];
        let meter = lane.requests.meter().expect("there are other paths");
        Offer {
            room: 1,
            in_flight: lane.link.as_ref().map_or(0, Queue::in_flight),
            expected: meter.expected(now, request.traffic()),
            wants_probe: meter.wants_probe(now, request.traffic()),
        }
    }

    /// Requests of a lane that may go elsewhere, as it has no connection; with `early` those that may not, too.
    pub(crate) fn take_free(&mut self, lane: usize, early: bool) -> Vec<Moved<Request>> {
        let lane = &mut self.lanes[lane];
        if lane.link.is_some() {
            return Vec::new();
        }
        if early {
            lane.requests.release();
        }
        lane.requests.take_free()
    }

    /// Requests of a lane that its path has refused.
    pub(crate) fn take_diverted(&mut self, lane: usize) -> Vec<Moved<Request>> {
        self.lanes[lane].requests.take_diverted()
    }

    /// A request stays.
    pub(crate) fn keep(&mut self, lane: usize, moved: Moved<Request>) {
        self.lanes[lane].requests.keep(moved);
    }

    /// A request comes from another path.
    pub(crate) fn adopt(&mut self, lane: usize, moved: Moved<Request>) {
        self.past.moved += 1;
        self.lanes[lane].requests.adopt(moved);
    }

    /// Requests have come.
    ///
    /// # Errors
    /// What may not be.
    pub(crate) fn go_on(
        &mut self,
        now: Instant,
        network: &mut T,
        load: &mut Load,
    ) -> Result<(), String> {
        self.lanes.iter_mut().for_each(|lane| lane.resume(now, network));
        self.complete_failed(load)
    }
}
