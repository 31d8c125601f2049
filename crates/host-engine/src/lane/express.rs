//! A lane and its express connection, which is a lane of its own on the same reactor.

use super::HostLane;
use crate::api::{Class, Request};
use crate::link::Shared;
use roadtrain_host_proto::express::{Express, Rules, Traffic};
use roadtrain_host_proto::qpair::Data;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;

impl HostLane {
    /// It may get an express connection.
    pub(crate) fn allow_express(&mut self) {
        self.express = Express::new(Some(Rules::default()));
    }

    /// Its express connection, of the same kind.
    pub(crate) fn beside(&self) -> HostLane {
        let mut express = HostLane::new(self.requests.entries(), self.class, self.timeout);
        if self.requests.core.meter().is_some() {
            express.requests.core.share(); // there are other paths
        }
        express
    }

    /// A request of no class is of the lane's.
    #[inline]
    pub(crate) fn class_of(&self, request: &Request) -> Class {
        if request.class == Class::Normal { self.class } else { request.class }
    }

    /// The place that latency-critical requests go to, if not here.
    pub(crate) fn way(&mut self, now: Instant) -> Option<u32> {
        let requests = &self.requests.core;
        let takes = self.express.takes(now, Traffic::Critical, |least| requests.is_bulk(least));
        self.express_at.filter(|_| takes)
    }

    /// Submits a command that is nobody's request.
    pub(crate) fn submit_bare(&mut self, now: Instant, sqe: &Sqe) -> bool {
        let link = self.link.as_mut();
        link.is_some_and(|link| link.submit(now, sqe, Data::None, Urgency::Urgent).is_some())
    }

    /// Takes over what its express connection has, which is gone.
    pub(crate) fn absorb(&mut self, mut express: HostLane, shared: &mut Shared) {
        // Nothing of it is being sent any more.
        shared.completions.extend(express.requests.take_held_back(shared.now));
        match &mut self.link {
            Some(link) => link.count_on(express.batching()),
            None => self.past += express.batching(),
        }
        self.requests.absorb(express.requests);
    }
}
