//! A lane of the simulated host: its requests, and its connection when there is one.

use crate::ends::ConnectionLost;
use crate::load::SimLoad;
use crate::plan::SimPlan;
use crate::request::LoadRequest;
use crate::transport::SimHostEnd;
use roadtrain_host_proto::express::ExpressPolicy;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::{EndedRequest, RequestOutcome, RequestQueue, RequestTable};
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics;

/// A lane.
pub(super) struct SimHostLane<L> {
    /// Its connection.
    pub(super) link: Option<L>,
    /// Its requests.
    pub(super) requests: RequestTable<LoadRequest>,
    slots: u16,
    /// State of its express connection, and the choice of requests for it.
    pub(super) express: ExpressPolicy,
    /// Slot of the Disconnect that ends it.
    disconnect_slot: Option<u16>,
    /// Time of the next request.
    pub(super) next_at: Instant,
}

impl<L: SimHostEnd> SimHostLane<L> {
    /// Makes a lane without a connection.
    pub(super) fn new(plan: &SimPlan) -> Self {
        let mut requests = RequestTable::new(plan.queue_entries, plan.io_timeout);
        if plan.paths > 1 {
            requests.share();
        }
        SimHostLane {
            link: None,
            requests,
            slots: plan.queue_entries,
            express: ExpressPolicy::new(plan.express_rules()),
            disconnect_slot: None,
            next_at: Instant(0),
        }
    }

    /// Returns the time of its next event, with a connection.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let link = self.link.as_mut()?;
        let requests = self.requests.deadline(link.in_flight());
        requests.into_iter().chain(link.deadline()).chain(self.express.deadline()).min()
    }

    /// Returns the number of requests that have not ended.
    pub(super) fn outstanding(&self) -> u32 {
        self.requests.outstanding(self.link.as_ref())
    }

    /// True if it takes a request.
    pub(super) fn has_room(&self) -> bool {
        self.requests.room(self.link.as_ref()) > 0
    }

    /// Sends a Disconnect on the idle queue.
    pub(super) fn disconnect(&mut self, now: Instant) {
        let link = self.link.as_mut();
        self.disconnect_slot = link.and_then(|link| {
            link.run(now, &fabrics::disconnect(), CommandTransfer::None, Vec::new())
        });
    }

    /// True if the target has responded to the Disconnect.
    pub(super) fn has_disconnected(&self) -> bool {
        self.disconnect_slot.is_none()
    }

    /// Returns the number of requests without a slot.
    pub(super) fn waiting(&self) -> usize {
        let link = self.link.as_ref();
        let slots = link.map_or(0, RequestQueue::in_flight);
        (self.requests.outstanding(link) - slots) as usize
    }

    /// Attaches a new connection. Returns the number of requests that it carries first.
    pub(super) fn attach(
        &mut self,
        now: Instant,
        link: L,
        (rules, guard): (RetryRules, LaneGuard),
    ) -> u64 {
        let waiting = self.requests.waiting() as u64;
        self.requests.attach(rules, guard);
        self.requests.resume(now, self.link.insert(link));
        waiting
    }

    /// Receives from its connection; the inner `Err`: the connection is lost.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        network: &mut L::Network,
        load: &mut SimLoad,
    ) -> Result<Result<(), ConnectionLost>, String> {
        let Some(link) = &mut self.link else { return Ok(Ok(())) };
        let mut completed = Vec::new();
        let alive = link.receive(now, network, &mut completed);
        for command in completed {
            if self.disconnect_slot.take_if(|slot| *slot == command.slot).is_some() {
                continue;
            }
            let request = self.requests.get_mut(command.slot);
            let request = request.ok_or("a slot without request has completed")?;
            request.buffer = command.data;
            let (token, status) = (request.token, command.cqe.status());
            if status.is_success() && !command.data_intact {
                return Err(format!("request {token}: success without data"));
            }
            match self.requests.end(now, command.slot, status, command.data_intact) {
                Some(RequestOutcome::Ended(EndedRequest { request, status, .. })) => {
                    let checked = load.complete(token, status, &request.buffer);
                    checked.map_err(|what| format!("request {token}: {what}"))?;
                }
                Some(RequestOutcome::Rests { .. }) => load.tally.repeated += 1,
                None => return Err(format!("request {token}: gone")),
            }
        }
        if alive.is_ok() {
            self.requests.resume(now, link);
        }
        Ok(alive)
    }

    /// Passes overdue commands to `abort`. True if the connection is to be reset.
    pub(super) fn check_overdue(&mut self, now: Instant, mut abort: impl FnMut(u16)) -> bool {
        let Some(link) = &self.link else { return false };
        self.requests.may_be_overdue(now)
            && self.requests.check_overdue(now, |slot| abort(link.cid(slot)))
    }

    /// Submits waiting requests, after some have come from another path.
    pub(super) fn resume(&mut self, now: Instant, network: &mut L::Network) {
        if let Some(link) = &mut self.link {
            self.requests.resume(now, link);
            link.end_turn(now, network);
        }
    }

    /// Resets the connection.
    pub(super) fn detach(&mut self, now: Instant, network: &mut L::Network) {
        let Some(mut link) = self.link.take() else { return };
        link.close(now, network, false);
        for slot in 0..self.slots {
            if let Some(request) = self.requests.get_mut(slot) {
                request.buffer = link.take_buffer(slot);
            }
        }
        self.requests.detach();
    }

    /// Returns requests that have failed without a response.
    pub(super) fn failed(&mut self) -> impl Iterator<Item = EndedRequest<LoadRequest>> {
        std::iter::from_fn(|| self.requests.next_failed())
    }
}
