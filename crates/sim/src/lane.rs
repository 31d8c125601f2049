//! A lane of the target: the end of a connection, its session, and the commands in execution.

use crate::commands::CommandDriver;
use crate::ends::{ConnId, ConnectionArrival, ConnectionLost};
use crate::environment::CommandEnv;
use crate::execution::{SimExecution, SimNamespace};
use crate::plan::{Sabotage, SimPlan};
use crate::pool::{SimBuffer, SimPool};
use crate::process::TargetProcess;
use crate::stores::TargetStores;
use crate::transport::{SimTargetEnd, SimTransport, TargetEndEvent};
use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::{FrameSecret, SealUse, SecuredAs};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::SubsystemNamespaces;
use roadtrain_target_proto::execution::Environment;
use roadtrain_target_proto::moves::LanePlacement;
use roadtrain_target_proto::service::{self, CommandOrigin, ServiceDriver};
use roadtrain_target_proto::session::{ListenerRequirements, TargetConnection};
use roadtrain_target_proto::stability::WriteMark;
use roadtrain_wire::cross_reset::IMMEDIATE;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Address of the target.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);

/// A lane of the target.
pub struct SimTargetLane<E> {
    /// Reactor that owns it.
    pub reactor: usize,
    /// Placement on this reactor.
    pub placement: LanePlacement,
    /// End of its connection.
    pub end: E,
    /// Session: host, controller and queue.
    pub session: TargetConnection,
    /// Commands in execution.
    pub execution: SimExecution,
    /// Mark of unflushed writes of an I/O queue.
    pub mark: Option<Arc<WriteMark>>,
    /// Namespaces for its I/O commands.
    namespaces: HashMap<u32, Rc<SimNamespace>>,
    /// Namespaces that are out of reach, instead of others.
    refused: Option<SubsystemNamespaces>,
    /// Unsent bytes above which nothing is received.
    unsent_max: usize,
    sabotage: Option<Sabotage>,
}

impl<E: SimTargetEnd> SimTargetLane<E> {
    /// Makes a lane for a new connection.
    pub fn new(plan: &SimPlan, reactor: usize, end: E, secured_as: Option<SecuredAs>) -> Self {
        let seals = if plan.ether.seals { SealUse::Required } else { SealUse::Off };
        let secures = secured_as.is_some();
        let mut session = TargetConnection::new(ListenerRequirements {
            secures,
            seals,
            ..ListenerRequirements::default()
        });
        secured_as.into_iter().for_each(|secured_as| session.secured(secured_as));
        SimTargetLane {
            reactor,
            placement: LanePlacement::default(),
            end,
            session,
            execution: SimExecution::default(),
            mark: None,
            namespaces: HashMap::new(),
            refused: None,
            unsent_max: plan.pool_bytes / 4,
            sabotage: plan.sabotage,
        }
    }

    /// Updates the namespaces from its subsystem.
    pub fn refresh(
        &mut self,
        stores: &TargetStores,
        process: &mut TargetProcess<SimTargetLane<E>>,
    ) {
        let control = &mut process.control;
        let connected = self.session.queue();
        let table = connected.and_then(|own| control.namespaces_of(own));
        let table = table.as_deref();
        let queue = self.session.queue().map(|queue| (queue.subnqn.clone(), queue.hostid));
        let mut namespace = |(nsid, geometry): (u32, &_)| {
            let access = queue.as_ref();
            let access = access.and_then(|(nqn, host)| control.access(nqn, nsid, *host));
            let (geometry, mark) = (*geometry, self.mark.clone().filter(|_| nsid == 1));
            let stability = stores.stability.clone();
            let memory = stores.memory().filter(|_| nsid == 1);
            let limit = (nsid == 1 && stores.is_limited).then(|| stores.limit.clone());
            (nsid, Rc::new(SimNamespace { nsid, geometry, access, limit, mark, stability, memory }))
        };
        let usable = table.filter(|table| table.is_usable());
        self.namespaces =
            usable.into_iter().flat_map(SubsystemNamespaces::iter).map(&mut namespace).collect();
        self.refused = table.filter(|table| !table.is_usable()).cloned();
    }

    /// Returns its commands, and their environment.
    pub fn parts<'a>(
        &'a mut self,
        now: Instant,
        conn: ConnId,
        stores: &'a mut TargetStores,
        process: &'a mut TargetProcess<SimTargetLane<E>>,
    ) -> (&'a mut SimExecution, CommandEnv<'a, E, SimTargetLane<E>>) {
        let SimTargetLane { reactor, end, session, execution, namespaces, refused, .. } = self;
        let reactor = *reactor;
        let env =
            CommandEnv { now, reactor, conn, end, session, namespaces, refused, stores, process };
        (execution, env)
    }

    /// True if it receives: not while it waits for a buffer, or for its host to read responses.
    pub fn listens(&self) -> bool {
        let is_backlogged = self.execution.unsent() >= self.unsent_max && self.end.is_blocked();
        !self.execution.is_stalled() && !is_backlogged && !self.placement.is_leaving
    }

    /// Takes an arrival, for [`SimTargetLane::handle`].
    pub fn receive(
        &mut self,
        now: Instant,
        arrival: ConnectionArrival,
        stores: &mut TargetStores,
    ) -> Result<(), ConnectionLost> {
        self.end.take(now, arrival, &mut stores.hold(self.reactor, &mut self.execution))
    }

    /// Handles received data as far as possible, or until an admin command is to be executed (`Some`). `Err` when the
    /// connection has ended.
    pub fn handle(
        &mut self,
        now: Instant,
        conn: ConnId,
        stores: &mut TargetStores,
        process: &mut TargetProcess<SimTargetLane<E>>,
    ) -> Result<Option<u16>, ConnectionLost> {
        while !self.execution.is_stalled() {
            let mut hold = stores.hold(self.reactor, &mut self.execution);
            let Some(event) = self.end.poll(now, &mut hold)? else { break };
            let skips = matches!(&event, TargetEndEvent::Command(_, sqe, _) if self.skips(sqe));
            let (execution, mut env) = self.parts(now, conn, stores, process);
            let admin = match event {
                TargetEndEvent::Initialized => {
                    self.session.initialized();
                    None
                }
                // Sealing may grant the queue to its host, which happens before any command.
                TargetEndEvent::Sealed => match self.session.sealed() {
                    true => return Ok(None),
                    false => None,
                },
                TargetEndEvent::Command(slot, sqe, payload) => {
                    execution.command(&mut env, slot, &sqe, payload)
                }
                TargetEndEvent::SplitBlock(slot, offset) => {
                    execution.split_block(&mut env, slot, offset);
                    None
                }
                TargetEndEvent::DataDone(slot, intact) => {
                    execution.data_done(&mut env, slot, intact)
                }
            };
            if let Some(slot) = admin.filter(|_| skips) {
                let (execution, mut env) = self.parts(now, conn, stores, process);
                let buffer = execution.take_admin(slot).and_then(|(_, buffer)| buffer);
                let completion = Some((Status::SUCCESS, IMMEDIATE.into()));
                execution.answer(&mut env, slot, completion, buffer, &[]);
            } else if admin.is_some() {
                return Ok(admin);
            }
        }
        Ok(None)
    }

    /// True if a faulty target responds to the command without executing it.
    fn skips(&self, sqe: &Sqe) -> bool {
        self.session.queue().is_some() && self.sabotage.is_some_and(|wrong| wrong.skips(sqe))
    }

    /// Returns controller and queue.
    pub fn ids(&self) -> Option<(u16, u16)> {
        self.session.queue().map(|connected| (connected.cntlid, connected.qid))
    }

    /// Leaves its reactor: buffers of its commands return to the pool, and their bytes move along.
    pub fn pack(&mut self, pool: &mut SimPool) {
        self.execution.replace_buffers(|buffer| pool.detach(buffer));
        self.execution.leave_share();
    }

    /// Arrives at a reactor, whose pool provides the buffers for its commands, if there are any.
    pub fn unpack(
        &mut self,
        reactor: usize,
        stores: &mut TargetStores,
        process: &mut TargetProcess<SimTargetLane<E>>,
    ) {
        self.reactor = reactor;
        let (pool, shares) = &mut stores.buffers[reactor];
        self.execution.replace_buffers(|buffer| pool.attach(buffer));
        if let Some(connected) = self.session.queue() {
            self.execution.set_share(shares.join(&connected.hostnqn));
        }
        self.placement.arrive();
        self.refresh(stores, process);
    }

    /// Sends everything that may be sent.
    pub fn send(
        &mut self,
        now: Instant,
        conn: ConnId,
        network: &mut E::Network,
        stores: &mut TargetStores,
    ) {
        let mut hold = stores.hold(self.reactor, &mut self.execution);
        self.end.end_turn(now, conn, network, &mut hold);
    }
}

/// A lane and its target, for the service.
pub(crate) struct LentLane<'a, T: SimTransport> {
    pub(crate) now: Instant,
    pub(crate) conn: ConnId,
    pub(crate) lane: &'a mut SimTargetLane<T::Target>,
    pub(crate) stores: &'a mut TargetStores,
    pub(crate) commands: CommandDriver<'a, SimTargetLane<T::Target>, T>,
}

impl<'a, T: SimTransport> service::ServicedLane for LentLane<'a, T> {
    type Namespace = SimNamespace;
    type Buffer = SimBuffer;
    type Connection = ConnId;
    type Error = Infallible;

    fn now(&self) -> Instant {
        self.now
    }

    fn session(&mut self) -> &mut TargetConnection {
        &mut self.lane.session
    }

    fn parts(&mut self) -> (&mut SimExecution, impl Environment<SimNamespace, SimBuffer>) {
        self.lane.parts(self.now, self.conn, self.stores, self.commands.process)
    }

    fn control(&mut self) -> (&mut TargetConnection, impl ServiceDriver<Connection = ConnId>) {
        (&mut self.lane.session, self.commands.reborrow())
    }

    fn port(&self, since: Instant) -> CommandOrigin<ConnId> {
        CommandOrigin { local: LOCAL, connection: T::proof(self.conn), since }
    }

    fn seal(&mut self, secret: &FrameSecret) -> Result<(), Infallible> {
        self.lane.end.seal(secret);
        Ok(())
    }

    fn set_connected(&mut self, (qid, entries, flow, class): (u16, u16, bool, Class)) {
        self.lane.end.set_connected(qid, entries, flow, class);
    }

    fn granted(&mut self) {
        let LentLane { now, lane, stores, .. } = self;
        if let Some(connected) = lane.session.queue().filter(|connected| connected.qid > 0) {
            let user = connected.user();
            lane.mark = Some(stores.stability.borrow_mut().enter(*now, &user));
            lane.execution.set_share(stores.buffers[lane.reactor].1.join(&connected.hostnqn));
        }
        self.refresh();
    }

    fn refresh(&mut self) {
        self.lane.refresh(self.stores, self.commands.process);
    }

    /// Leaves the end of the connection to the network.
    fn hang_up(&mut self) {}

    fn slot_of(&mut self, cid: u16) -> Option<u16> {
        self.lane.end.slot_of(cid)
    }

    fn event_request_of(&mut self, cid: u16) -> Option<u16> {
        self.lane.end.event_request_of(cid)
    }
}
