//! Lanes over TCP: connections of [`crate::network`], with a queue pair at each end, and their faults.

use crate::connection::TcpTargetEnd;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival};
use crate::faults::Faults;
use crate::host::SimHost;
use crate::link::TcpHostEnd;
use crate::network::Network;
use crate::plan::{NQN, SimFault, SimPlan, host_nqn};
use crate::rng::SimRng;
use crate::summary::Summary;
use crate::target::SimTarget;
use crate::transport::{QueueOpening, SimTransport};
use roadtrain_host_proto::qpair::HostQpairConfig;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::security::SecuredAs;
use roadtrain_proto::time::Instant;

impl SimTransport for Network {
    type Host = TcpHostEnd;
    type Target = TcpTargetEnd;

    fn plan(rng: &mut SimRng) -> SimPlan {
        SimPlan::new(rng)
    }

    fn new(plan: &SimPlan, rng: SimRng) -> Self {
        let targets = plan.targets;
        let routes = (0..plan.hosts * plan.paths).map(|path| path % plan.paths % targets);
        Network::new(plan.network_behaviour, (routes.collect(), targets), plan.tls, rng)
    }

    fn route(&self, address: u8) -> u8 {
        Network::route(self, address)
    }

    fn pause(&mut self, target: u8, until: Instant) {
        Network::pause(self, target, until);
    }

    fn next_at(&self, end: ConnEnd) -> Option<Instant> {
        self.next_event_at(end)
    }

    fn begin_turn(&mut self, _: Instant, end: ConnEnd) {
        Network::begin_turn(self, end);
    }

    fn count(&self, summary: &mut Summary) {
        (summary.forged, summary.tls) = (self.forged, self.tls);
    }

    fn has_host(&self, conn: ConnId) -> bool {
        Network::has_host(self, conn)
    }

    fn open(
        &mut self,
        now: Instant,
        plan: &SimPlan,
        queue: QueueOpening,
        rng: &mut SimRng,
    ) -> TcpHostEnd {
        let in_capsule_bytes = if queue.qid == 0 { 0 } else { plan.host.in_capsule_bytes };
        let config = HostQpairConfig {
            queue_entries: queue.entries,
            in_capsule_bytes,
            policy: PolicyConfig::none(),
            ..plan.host
        };
        let placed = rng.chance(plan.placed_percent);
        TcpHostEnd::new((now, queue), config, self, plan, placed)
    }

    fn accept(&mut self, now: Instant, target: u8) -> Option<ConnId> {
        Network::accept(self, now, target)
    }

    fn target_end(
        &mut self,
        _now: Instant,
        id: ConnId,
        plan: &SimPlan,
        rng: &mut SimRng,
    ) -> TcpTargetEnd {
        TcpTargetEnd::new(plan, id, rng.chance(plan.placed_percent))
    }

    fn secured_as(&self, id: ConnId) -> Option<SecuredAs> {
        let hostnqn = host_nqn(self.secured_host(id)?);
        Some(SecuredAs { hostnqn, subnqn: NQN.into(), by_generated: false })
    }

    fn receive(&mut self, now: Instant, id: ConnId, end: ConnEnd) -> Option<ConnectionArrival> {
        Network::receive(self, now, id, end)
    }

    fn close(&mut self, now: Instant, id: ConnId, end: ConnEnd, orderly: bool) {
        Network::close(self, now, id, end, orderly);
    }

    fn is_closed(&self, now: Instant, id: ConnId, end: ConnEnd) -> bool {
        Network::is_closed(self, now, id, end)
    }

    fn listen(&mut self, id: ConnId, end: ConnEnd, listens: bool) {
        Network::listen(self, id, end, listens);
    }
}

impl Faults for Network {
    fn strike(
        &mut self,
        now: Instant,
        fault: &SimFault,
        hosts: &mut [SimHost<Self>],
        _: &mut [SimTarget<Self>],
    ) {
        match *fault {
            SimFault::Reroute { path, target } => return self.set_route(path, target),
            SimFault::Hold { time } => return self.hold(now + time),
            SimFault::Corrupt => return self.corrupt(),
            SimFault::Forge => return self.forge(),
            SimFault::Unread { time } => {
                return self.each(|network, conn| network.stall(conn, ConnEnd::Target, now + time));
            }
            SimFault::Silence { path, .. } | SimFault::Isolate { path, .. } => {
                let Some(host) = hosts.get_mut(usize::from(path)) else { return };
                let until = now + fault.time();
                let ids: Vec<ConnId> = host.links().map(|link| link.id()).collect();
                if matches!(fault, SimFault::Isolate { .. }) {
                    host.isolate(until);
                    ids.into_iter().for_each(|id| self.reset_one(now, id, ConnEnd::Host));
                } else {
                    ids.into_iter().for_each(|id| self.stall(id, ConnEnd::Target, until));
                }
                return;
            }
            SimFault::Partition => {
                return self.each(|network, conn| network.reset_one(now, conn, ConnEnd::Host));
            }
            _ => {}
        }
        let chosen = match fault {
            SimFault::Reset
            | SimFault::Leave(_)
            | SimFault::Stall { .. }
            | SimFault::Swallow
            | SimFault::ResetOne { .. } => self.any(),
            _ => None,
        };
        let Some(conn) = chosen else { return };
        match *fault {
            SimFault::Stall { end, time } => self.stall(conn, end, now + time),
            SimFault::Swallow => self.swallow(now, conn),
            SimFault::ResetOne { end } => self.reset_one(now, conn, end),
            SimFault::Leave(end) => self.leave(conn, end),
            _ => self.reset(now, conn),
        }
    }
}
