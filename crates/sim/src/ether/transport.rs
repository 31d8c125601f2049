//! Lanes over Ethernet, as hosts and targets use them.

use super::host::HostLink;
use super::setup::Ether;
use super::target::TargetLink;
use crate::ends::{Arrival, ConnId, End};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::summary::Summary;
use crate::transport::{Opening, Transport};
use roadtrain_proto::time::Instant;

impl Transport for Ether {
    type Host = HostLink;
    type Target = TargetLink;

    fn plan(rng: &mut Rng) -> Plan {
        super::plan::plan(rng)
    }

    fn new(plan: &Plan, rng: Rng) -> Self {
        Ether::new(plan, rng)
    }

    fn next_at(&self, end: End) -> Option<Instant> {
        Ether::next_at(self, end)
    }

    fn stalled_until(&self, end: End) -> Instant {
        Ether::stalled_until(self, end)
    }

    fn begin_turn(&mut self, now: Instant, end: End) {
        Ether::sort(self, now, end);
    }

    fn behave(&mut self, now: Instant) {
        self.net.behave(now);
    }

    fn silence(&mut self, until: Instant) {
        Ether::silence(self, until);
    }

    fn has_host(&self, id: ConnId) -> bool {
        Ether::has_host(self, id)
    }

    fn count(&self, summary: &mut Summary) {
        (summary.made, summary.foreign, summary.fates) = (self.made, self.foreign, self.net.fates);
        (summary.refused, summary.silent) = (self.refused, self.silent);
    }

    fn open(&mut self, now: Instant, _: &Plan, queue: Opening, _: &mut Rng) -> HostLink {
        HostLink::new(Ether::open(self, now, queue), queue.qid == 0)
    }

    fn accept(&mut self, now: Instant, _target: u8) -> Option<ConnId> {
        Ether::accept(self, now)
    }

    fn target_end(&mut self, now: Instant, id: ConnId, _: &Plan, _: &mut Rng) -> TargetLink {
        TargetLink::new(now, id, self)
    }

    fn receive(&mut self, now: Instant, id: ConnId, end: End) -> Option<Arrival> {
        Ether::receive(self, now, id, end)
    }

    fn close(&mut self, _now: Instant, id: ConnId, end: End, _orderly: bool) {
        Ether::close(self, id, end);
    }

    fn keep(&mut self, hostid: [u8; 16], end: &HostLink) {
        let Some(qpair) = &end.qpair else { return };
        Ether::keep(self, hostid, end.id, &qpair.end.links, qpair.end.proofs());
    }

    fn forget(&mut self, hostid: [u8; 16]) {
        Ether::forget(self, hostid);
    }

    fn proof(_: ConnId) -> Option<ConnId> {
        None
    }

    fn is_closed(&self, now: Instant, id: ConnId, end: End) -> bool {
        Ether::is_closed(self, now, id, end)
    }
}
