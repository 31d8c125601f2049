//! Express connections of the simulated host; `roadtrain_host_proto::express` decides when they open and close.

use super::SimHost;
use super::lane::SimHostLane;
use crate::ends::ConnectionLost;
use crate::load::SimLoad;
use crate::plan::Sabotage;
use crate::transport::{SimHostEnd, SimTransport};
use roadtrain_host_proto::express::ExpressAction;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::PathWrites;
use roadtrain_proto::time::Instant;

/// An express connection.
pub(super) struct ExpressLane<L> {
    /// Queue identifier less one.
    pub(super) number: usize,
    /// Number of its lane.
    pub(super) lane_number: usize,
    pub(super) lane: SimHostLane<L>,
}

impl<T: SimTransport> SimHost<T> {
    /// Submits a request: over the express connection, if there is one that takes it.
    pub(super) fn take(&mut self, now: Instant, number: usize, load: &mut SimLoad) {
        let mut request = load.request(self.hostid[0]);
        request.hides_blocks = self.plan.sabotage == Some(Sabotage::OpenBlocks);
        let lane = &mut self.lanes[number];
        let requests = &lane.requests;
        let is_bulk = |least| requests.is_bulk(least);
        let takes = lane.express.takes(now, request.traffic(), is_bulk);
        let express = self.expresses.iter_mut().find(|express| express.lane_number == number);
        let lane = match express.filter(|express| takes && express.lane.has_room()) {
            Some(express) => {
                self.past.expressed += 1;
                &mut express.lane
            }
            None => lane,
        };
        lane.requests.take(now, request, lane.link.as_mut());
    }

    /// Returns a lane's express connection.
    pub(super) fn express_of(&self, lane_number: usize) -> Option<&SimHostLane<T::Host>> {
        let mut expresses = self.expresses.iter();
        expresses.find(|express| express.lane_number == lane_number).map(|express| &express.lane)
    }

    pub(super) fn express_of_mut(
        &mut self,
        lane_number: usize,
    ) -> Option<&mut SimHostLane<T::Host>> {
        let mut expresses = self.expresses.iter_mut();
        expresses
            .find(|express| express.lane_number == lane_number)
            .map(|express| &mut express.lane)
    }

    /// Returns the number of requests of a lane and its express connection.
    pub(super) fn outstanding(&self, number: usize) -> usize {
        let on_express = self.express_of(number).map_or(0, SimHostLane::outstanding);
        (self.lanes[number].outstanding() + on_express) as usize
    }

    /// Opens and closes express connections, as their state machines request.
    pub(super) fn review_expresses(&mut self, now: Instant, network: &mut T) {
        for lane_number in 0..self.lanes.len() {
            if self.lanes[lane_number].link.is_none() {
                continue; // the lane is lost, with its express connection
            }
            let at = self.expresses.iter().position(|express| express.lane_number == lane_number);
            let carried = at.map_or(0, |at| self.expresses[at].lane.outstanding());
            match self.lanes[lane_number].express.poll(now, carried) {
                Some(ExpressAction::Open) => self.association.want_express(lane_number),
                Some(ExpressAction::Close) => {
                    at.into_iter().for_each(|at| self.expresses[at].lane.disconnect(now));
                }
                None => {}
            }
            let express = &self.lanes[lane_number].express;
            if express.is_closing()
                && let Some(at) = at
                && (self.expresses[at].lane.has_disconnected() || express.has_timed_out(now))
            {
                self.express_closed(now, network, at);
            }
        }
    }

    pub(super) fn express_closed(&mut self, now: Instant, network: &mut T, at: usize) {
        let mut express = self.expresses.swap_remove(at);
        if let Some(mut link) = express.lane.link.take() {
            link.close(now, network, true);
        }
        self.lanes[express.lane_number].express.closed(now);
        self.association.express_closed(express.lane_number, express.number);
        self.past.expresses += 1;
    }

    /// Attaches the express connection that was opened for a lane.
    pub(super) fn attach_express(
        &mut self,
        now: Instant,
        network: &mut T,
        (lane_number, number): (usize, usize),
        (rules, (barred, writes), may_close, guard): (
            RetryRules,
            (BarredNsids, PathWrites),
            bool,
            LaneGuard,
        ),
    ) {
        let qid = number as u16 + 1;
        let Some(mut link) = self.queues.remove(&qid) else { return };
        let is_lost = self.lost.extract_if(.., |lost| *lost == qid).count() > 0;
        network.keep(self.hostid, &link);
        link.set_policy(self.plan.host.policy);
        let mut lane = SimHostLane::new(&self.plan);
        lane.requests.set_barred(barred);
        lane.requests.set_writes(writes);
        lane.attach(now, link, (rules, self.guard(guard, true)));
        self.lanes[lane_number].express.opened(now, may_close);
        self.expresses.push(ExpressLane { number, lane_number, lane });
        if is_lost {
            self.association.lane_lost(now, number, ConnectionLost);
        }
    }

    /// Notes that the target has refused the express connection.
    pub(super) fn refuse_express(&mut self, now: Instant, network: &mut T, lane_number: usize) {
        for (_, mut link) in self.queues.extract_if(1.., |_, _| true) {
            link.close(now, network, false);
        }
        self.running.take_if(|running| running.0 > 0);
        self.lost.clear();
        self.lanes[lane_number].express.refused(now);
        self.past.expresses_refused += 1;
    }

    /// Detaches all express connections: their requests go back to the lanes.
    pub(super) fn lose_expresses(&mut self, now: Instant, network: &mut T) {
        for mut express in std::mem::take(&mut self.expresses) {
            express.lane.detach(now, network);
            self.past.express_lost += express.lane.requests.waiting() as u64;
            self.lanes[express.lane_number].requests.absorb(&mut express.lane.requests);
        }
        self.lanes.iter_mut().for_each(|lane| lane.express.lost(now));
    }
}
