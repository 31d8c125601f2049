//! Lanes over TCP: connections of [`crate::network`], with a queue pair at each end, and their faults.

use crate::connection::Connection;
use crate::ends::{Arrival, ConnId, End};
use crate::faults::Faults;
use crate::host::Host;
use crate::link::Link;
use crate::network::Network;
use crate::plan::{Fault, NQN, Plan, host_nqn};
use crate::rng::Rng;
use crate::summary::Summary;
use crate::target::Target;
use crate::transport::{Opening, Transport};
use roadtrain_host_proto::qpair::Config;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::security::SecuredAs;
use roadtrain_proto::time::Instant;

impl Transport for Network {
    type Host = Link;
    type Target = Connection;

    fn plan(rng: &mut Rng) -> Plan {
        Plan::new(rng)
    }

    fn new(plan: &Plan, rng: Rng) -> Self {
        let targets = plan.targets;
        let routes = (0..plan.hosts * plan.paths).map(|path| path % plan.paths % targets);
        Network::new(plan.weather, (routes.collect(), targets), plan.tls, rng)
    }

    fn route(&self, address: u8) -> u8 {
        Network::route(self, address)
    }

    fn pause(&mut self, target: u8, until: Instant) {
        Network::pause(self, target, until);
    }

    fn next_at(&self, end: End) -> Option<Instant> {
        self.next_moment(end)
    }

    fn begin_turn(&mut self, _: Instant, end: End) {
        Network::begin_turn(self, end);
    }

    fn count(&self, summary: &mut Summary) {
        (summary.forged, summary.tls) = (self.forged, self.tls);
    }

    fn has_host(&self, conn: ConnId) -> bool {
        Network::has_host(self, conn)
    }

    fn open(&mut self, now: Instant, plan: &Plan, queue: Opening, rng: &mut Rng) -> Link {
        let in_capsule_bytes = if queue.qid == 0 { 0 } else { plan.host.in_capsule_bytes };
        let config = Config {
            queue_entries: queue.entries,
            in_capsule_bytes,
            policy: PolicyConfig::none(),
            ..plan.host
        };
        let placed = rng.chance(plan.placed_percent);
        Link::new((now, queue), config, self, plan, placed)
    }

    fn accept(&mut self, now: Instant, target: u8) -> Option<ConnId> {
        Network::accept(self, now, target)
    }

    fn target_end(&mut self, _now: Instant, id: ConnId, plan: &Plan, rng: &mut Rng) -> Connection {
        Connection::new(plan, id, rng.chance(plan.placed_percent))
    }

    fn secured_as(&self, id: ConnId) -> Option<SecuredAs> {
        let hostnqn = host_nqn(self.secured_host(id)?);
        Some(SecuredAs { hostnqn, subnqn: NQN.into(), by_generated: false })
    }

    fn receive(&mut self, now: Instant, id: ConnId, end: End) -> Option<Arrival> {
        Network::receive(self, now, id, end)
    }

    fn close(&mut self, now: Instant, id: ConnId, end: End, orderly: bool) {
        Network::close(self, now, id, end, orderly);
    }

    fn is_closed(&self, now: Instant, id: ConnId, end: End) -> bool {
        Network::is_closed(self, now, id, end)
    }

    fn listen(&mut self, id: ConnId, end: End, listens: bool) {
        Network::listen(self, id, end, listens);
    }
}

impl Faults for Network {
    fn strike(
        &mut self,
        now: Instant,
        fault: &Fault,
        hosts: &mut [Host<Self>],
        _: &mut [Target<Self>],
    ) {
        match *fault {
            Fault::Reroute { path, target } => return self.set_route(path, target),
            Fault::Hold { time } => return self.hold(now + time),
            Fault::Corrupt => return self.corrupt(),
            Fault::Forge => return self.forge(),
            Fault::Unread { time } => {
                return self.each(|network, conn| network.stall(conn, End::Target, now + time));
            }
            Fault::Silence { path, .. } | Fault::Isolate { path, .. } => {
                let Some(host) = hosts.get_mut(usize::from(path)) else { return };
                let until = now + fault.time();
                let ids: Vec<ConnId> = host.links().map(|link| link.id()).collect();
                if matches!(fault, Fault::Isolate { .. }) {
                    host.isolate(until);
                    ids.into_iter().for_each(|id| self.reset_one(now, id, End::Host));
                } else {
                    ids.into_iter().for_each(|id| self.stall(id, End::Target, until));
                }
                return;
            }
            Fault::Partition => {
                return self.each(|network, conn| network.reset_one(now, conn, End::Host));
            }
            _ => {}
        }
        let chosen = match fault {
            Fault::Reset
            | Fault::Leave(_)
            | Fault::Stall { .. }
            | Fault::Swallow
            | Fault::ResetOne { .. } => self.any(),
            _ => None,
        };
        let Some(conn) = chosen else { return };
        match *fault {
            Fault::Stall { end, time } => self.stall(conn, end, now + time),
            Fault::Swallow => self.swallow(now, conn),
            Fault::ResetOne { end } => self.reset_one(now, conn, end),
            Fault::Leave(end) => self.leave(conn, end),
            _ => self.reset(now, conn),
        }
    }
}
