//! Target with one reactor that a test turns by hand, on its own thread.

use super::{Balance, TargetReactor, TargetReactorParts};
use crate::control::TargetControlPlane;
use crate::ether::EtherPorts;
use crate::listeners::{self, OpenedListeners};
use crate::meters::Meters;
use crate::order::TargetReactorMessage;
use crate::stores::OpenNamespaces;
use crate::tickets::Tickets;
use crate::{Export, ServerConfig};
use roadtrain_host_engine::{Front, HandHost};
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_reactor::{RxBuffers, waits::ReactorWaits};
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxSender, mailbox};
use roadtrain_target_proto::qpair::TargetQpairConfig as QpairConfig;
use roadtrain_target_proto::{TargetConfig, TargetControl};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct HandTarget {
    reactor: TargetReactor,
    rx: RxBuffers,
    turns: u32,
    control: Arc<TargetControlPlane>,
}

impl HandTarget {
    /// Starts a target that never sleeps before [`HandTarget::set_waiting`] permits it.
    pub(crate) fn new(config: &ServerConfig) -> HandTarget {
        let nothing = TargetConfig::<Export>::default();
        let exports = TargetConfig {
            subsystems: config.subsystems.clone(),
            listeners: nothing.listeners_at(&config.listen),
            ..nothing
        };
        let OpenedListeners { listeners, sockets } =
            listeners::open(&exports.listeners, (&[], &[]), (&[], false)).unwrap();
        let mut prepared =
            OpenNamespaces::default().prepare(&config.subsystems, |_, _| true).unwrap();
        prepared.stage().unwrap();
        let target =
            TargetControl::new(clock::now(), &prepared.config(&exports, listeners)).unwrap();
        let (time, meters) = (Duration::from_secs(10), Arc::new(Meters::new(1)));
        let control =
            TargetControlPlane::new(target, prepared.stores(), (exports, false), time, meters)
                .unwrap();
        let (orders, inbox) = mailbox().unwrap();
        control.set_reactors(vec![orders.clone()]);
        let parts = TargetReactorParts {
            number: 0,
            ether: EtherPorts::open(None, 1).unwrap().take(0),
            inbox,
            peers: vec![orders],
            balance: Balance::new(vec![None], false),
            control: control.clone(),
            tickets: Arc::new(Tickets::new(config.connections)),
            handshakes: None,
            qpair: QpairConfig {
                digests: config.digests,
                maxh2cdata: config.maxh2cdata,
                in_capsule_bytes_max: config.limits.in_capsule_bytes_max,
                policy: config.policy,
            },
            pool_bytes: config.pool_bytes,
            connect_timeout: config.connect_timeout,
            transfer_timeout: config.transfer_timeout,
            buffer_idle: config.buffer_idle,
            waiting: WaitPolicy::BusyPoll,
            slow_over: config.slow_over,
            meter: Arc::default(),
        };
        let mut reactor = TargetReactor::new(parts).unwrap();
        control.listen(sockets);
        drop(prepared.switch(&mut OpenNamespaces::default()));
        let rx = roadtrain_reactor::begin(&mut reactor).expect("the reactor does not run yet");
        HandTarget { reactor, rx, turns: 0, control }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.control.addresses()[0]
    }

    pub(crate) fn set_waiting(&mut self, waiting: WaitPolicy) {
        self.reactor.core.waits = ReactorWaits::new(waiting, Default::default());
    }

    /// Returns the sockets of its connections.
    pub(crate) fn sockets(&self) -> Vec<RawFd> {
        self.reactor.lanes.table.iter().filter_map(|lane| lane.fd()).collect()
    }

    /// Runs in one loop with a host on this thread, until the front stops it.
    pub(crate) fn run_with_host(&mut self, host: HandHost, front: impl Front + 'static) {
        self.reactor.guests.add(&mut self.reactor.lanes.shared.ring, host.into_guest(front));
        while !self.reactor.guests.is_empty() {
            self.step();
        }
    }

    /// Returns the mailbox of the reactor.
    pub(crate) fn orders(&self) -> MailboxSender<TargetReactorMessage> {
        self.reactor.peers.all[0].clone()
    }

    /// Returns the number of sleeps.
    pub(crate) fn sleeps(&self) -> u64 {
        self.reactor.core.waits.sleeps
    }

    /// Runs one turn.
    pub(crate) fn step(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        roadtrain_reactor::step(&mut self.reactor, self.turns, &mut self.rx).unwrap();
    }
}
