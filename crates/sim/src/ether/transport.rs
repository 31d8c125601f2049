//! Lanes over Ethernet, as hosts and targets use them.

use super::host::HostLink;
use super::setup::EtherNetwork;
use super::target::TargetLink;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival};
use crate::plan::SimPlan;
use crate::rng::SimRng;
use crate::summary::Summary;
use crate::transport::{QueueOpening, SimTransport};
use roadtrain_proto::time::Instant;

impl SimTransport for EtherNetwork {
    type Host = HostLink;
    type Target = TargetLink;

    fn plan(rng: &mut SimRng) -> SimPlan {
        super::plan::plan(rng)
    }

    fn new(plan: &SimPlan, rng: SimRng) -> Self {
        EtherNetwork::new(plan, rng)
    }

    fn next_at(&self, end: ConnEnd) -> Option<Instant> {
        EtherNetwork::next_at(self, end)
    }

    fn stalled_until(&self, end: ConnEnd) -> Instant {
        EtherNetwork::stalled_until(self, end)
    }

    fn begin_turn(&mut self, now: Instant, end: ConnEnd) {
        EtherNetwork::sort(self, now, end);
    }

    fn behave(&mut self, now: Instant) {
        self.net.behave(now);
    }

    fn silence(&mut self, until: Instant) {
        EtherNetwork::silence(self, until);
    }

    fn has_host(&self, id: ConnId) -> bool {
        EtherNetwork::has_host(self, id)
    }

    fn count(&self, summary: &mut Summary) {
        (summary.made, summary.foreign, summary.fates) = (self.made, self.foreign, self.net.fates);
        (summary.refused, summary.silent) = (self.refused, self.silent);
    }

    fn open(&mut self, now: Instant, _: &SimPlan, queue: QueueOpening, _: &mut SimRng) -> HostLink {
        HostLink::new(EtherNetwork::open(self, now, queue), queue.qid == 0)
    }

    fn accept(&mut self, now: Instant, _target: u8) -> Option<ConnId> {
        EtherNetwork::accept(self, now)
    }

    fn target_end(&mut self, now: Instant, id: ConnId, _: &SimPlan, _: &mut SimRng) -> TargetLink {
        TargetLink::new(now, id, self)
    }

    fn receive(&mut self, now: Instant, id: ConnId, end: ConnEnd) -> Option<ConnectionArrival> {
        EtherNetwork::receive(self, now, id, end)
    }

    fn close(&mut self, _now: Instant, id: ConnId, end: ConnEnd, _orderly: bool) {
        EtherNetwork::close(self, id, end);
    }

    fn keep(&mut self, hostid: [u8; 16], end: &HostLink) {
        let Some(qpair) = &end.qpair else { return };
        EtherNetwork::keep(self, hostid, end.id, &qpair.end.links, qpair.end.proofs());
    }

    fn forget(&mut self, hostid: [u8; 16]) {
        EtherNetwork::forget(self, hostid);
    }

    fn proof(_: ConnId) -> Option<ConnId> {
        None
    }

    fn is_closed(&self, now: Instant, id: ConnId, end: ConnEnd) -> bool {
        EtherNetwork::is_closed(self, now, id, end)
    }
}
