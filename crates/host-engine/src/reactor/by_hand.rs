//! Host whose reactor a test steps on its own thread: lanes without a control thread.

use super::{
    FrontedReactor, HostGuest, HostReactor, HostReactorOrder, HostReactorParts, RING_ENTRIES,
};
use crate::admin::AdminConnection;
use crate::api::{Class, Front, FrontTurn};
use crate::config::HostConfig;
use crate::connect::connect_admin;
use crate::counters::LaneCounters;
use crate::ether::Ports;
use crate::link::QpairLink;
use roadtrain_ether_proto::fence::Fence;
use roadtrain_host_proto::bringup::NamespaceInfo;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::PathWrites;
use roadtrain_reactor::RxBuffers;
use roadtrain_system::guest::GuestReactor;
use roadtrain_system::mailbox::mailbox;
use roadtrain_wire::fabrics::{Connect, ConnectData, cattr};
use roadtrain_wire::zerocopy::IntoBytes;
use std::os::fd::RawFd;

/// Connected controller.
pub struct ConnectedLanes {
    _admin: AdminConnection,
    links: Vec<QpairLink>,
}

impl ConnectedLanes {
    /// Connects as many lanes as `config` requests, by blocking calls.
    pub fn new(config: &HostConfig) -> ConnectedLanes {
        let mut admin = AdminConnection::connect(config).unwrap();
        let info = admin.information(config.lanes, 0).unwrap();
        let connect = |number: u32| {
            let entries = config.queue_entries;
            let mut lane =
                connect_admin(config, entries, None, &mut Fence::default()).unwrap().queue;
            let (qid, sqsize) = (number as u16 + 1, entries - 1);
            // The usual choice of hosts.
            let cattr = cattr::DISABLE_SQ_FLOW_CONTROL;
            let connect = Connect { recfmt: 0, qid, sqsize, cattr, kato_ms: 0 };
            let names = ConnectData::new(
                config.host_id,
                admin.cntlid,
                &config.subsystem_nqn,
                &config.host_nqn,
            );
            let (cqe, _) = lane.command(&connect.emit(), names.as_bytes(), 0).unwrap();
            assert!(cqe.status().is_success(), "{}", cqe.status());
            lane.into_link(info.in_capsule_bytes, config.policy).unwrap()
        };
        let links = (0..config.lanes).map(connect).collect();
        ConnectedLanes { _admin: admin, links }
    }
}

struct ManualFront;

impl Front for ManualFront {
    fn turn(&mut self, _: &mut dyn FrontTurn) {}
}

/// Host on its caller's thread.
pub struct HandHost {
    reactor: HostReactor,
    rx: RxBuffers,
    turns: u32,
    _admin: AdminConnection,
}

impl HandHost {
    /// Takes over the connected lanes.
    pub fn new(config: &HostConfig, connected: ConnectedLanes) -> HandHost {
        let lanes: Vec<usize> = (0..config.lanes as usize).collect();
        let ((_, inbox), (reports, _)) = (mailbox().unwrap(), mailbox().unwrap());
        let parts = HostReactorParts {
            paths: 1,
            counters: lanes.iter().map(|_| LaneCounters::default()).collect(),
            lanes,
            queue_entries: config.queue_entries,
            ring_entries: RING_ENTRIES,
            class: Class::Normal,
            express: config.express,
            io_timeout: config.io_timeout,
            waiting: config.waiting,
            slow_over: config.slow_over,
            meter: Default::default(),
            own: Default::default(),
            ports: Ports::default(),
            inbox,
            reports: vec![reports],
            path_policy: Default::default(),
        };
        let mut reactor = HostReactor::new(parts).unwrap();
        for (lane, link) in connected.links.into_iter().enumerate() {
            let (link, rules, barred) =
                (Box::new(link), RetryRules::default(), BarredNsids::default());
            let (writes, guard) = (PathWrites::default(), Default::default());
            let verifier = NamespaceInfo { nsid: 1, write_verifier: Some(1), ..Default::default() };
            writes.observe(&[verifier]);
            reactor.apply(HostReactorOrder::Attach { lane, link, rules, barred, writes, guard });
        }
        let mut idle = ManualFront;
        let mut running = FrontedReactor { reactor: &mut reactor, front: &mut idle };
        let rx = roadtrain_reactor::begin(&mut running).expect("no thread runs it");
        HandHost { reactor, rx, turns: 0, _admin: connected._admin }
    }

    /// Returns the sockets of its connections.
    pub fn sockets(&self) -> Vec<RawFd> {
        self.reactor.lanes.iter().filter_map(|lane| lane.fd()).collect()
    }

    /// Returns it as a guest for another reactor of this thread, until the front stops it. It has made no turns.
    pub fn into_guest(self, front: impl Front + 'static) -> Box<dyn GuestReactor> {
        let admin = Box::new(self._admin);
        Box::new(HostGuest::with(self.reactor, Box::new(front), Some(self.rx), admin))
    }

    /// Runs one turn.
    pub fn step(&mut self, front: &mut dyn Front) {
        self.turns = self.turns.wrapping_add(1);
        let mut running = FrontedReactor { reactor: &mut self.reactor, front };
        roadtrain_reactor::step(&mut running, self.turns, &mut self.rx).unwrap();
    }
}
