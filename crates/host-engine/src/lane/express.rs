//! Express connection of a lane, which is a lane of its own on the same reactor.

use super::HostLane;
use crate::api::{Class, IoRequest};
use crate::link::LaneShared;
use roadtrain_host_proto::express::{ExpressPolicy, ExpressRules, RequestTraffic};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;

impl HostLane {
    /// Enables express connections for the lane.
    pub(crate) fn allow_express(&mut self) {
        self.express = ExpressPolicy::new(Some(ExpressRules::default()));
    }

    /// Creates the lane of its express connection, with the same parameters.
    pub(crate) fn new_express_lane(&self) -> HostLane {
        let mut express = HostLane::new(self.requests.entries(), self.class, self.timeout);
        if self.requests.core.meter().is_some() {
            express.requests.core.share(); // requests are measured if there are other paths
        }
        express
    }

    /// Returns the class of a request; the lane's class if it has none.
    #[inline]
    pub(crate) fn class_of(&self, request: &IoRequest) -> Class {
        if request.class == Class::Normal { self.class } else { request.class }
    }

    /// Returns the lane that latency-critical requests go to, if not this one.
    pub(crate) fn critical_lane(&mut self, now: Instant) -> Option<u32> {
        let requests = &self.requests.core;
        let takes =
            self.express.takes(now, RequestTraffic::Critical, |least| requests.is_bulk(least));
        self.express_at.filter(|_| takes)
    }

    /// Submits a command that does not belong to a request.
    pub(crate) fn submit_bare(&mut self, now: Instant, sqe: &Sqe) -> bool {
        let link = self.link.as_mut();
        link.is_some_and(|link| {
            link.submit(now, sqe, CommandTransfer::None, Urgency::Urgent).is_some()
        })
    }

    /// Takes over the requests of its closed express connection.
    pub(crate) fn absorb(&mut self, mut express: HostLane, shared: &mut LaneShared) {
        // None of its data is in the send buffer any more.
        shared.completions.extend(express.requests.take_held_back(shared.now));
        match &mut self.link {
            Some(link) => link.count_on(express.batching()),
            None => self.past += express.batching(),
        }
        self.requests.absorb(express.requests);
    }
}
