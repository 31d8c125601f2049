//! Lane at the target: a queue pair, its transport, and the commands that it executes.

mod admin;
mod data;
pub(super) mod execution;
mod flow;
mod meter;
mod recording;
mod transport;

use super::control::TargetControlPlane;
use super::ether::Port;
use super::meters::{LaneCells, Meters};
use super::namespace::LaneNamespaces;
use super::order::NewConnection;
use super::tasks::Tasks;
use super::tickets::ConnectionTicket;
use crate::flushes::Unflushed;
pub(super) use admin::BorrowedLane;
use data::{LaneExecution, LanePayload};
use flow::LaneFlow;
pub(super) use flow::LaneInTransit;
use meter::LaneMeter;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::policy::ReactorLoad;
use roadtrain_proto::recorder::FlightRecorder;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::RxBuffer;
use roadtrain_reactor::gather::Gather;
use roadtrain_reactor::metrics::Batching;
use roadtrain_system::buffer::BufferPool;
use roadtrain_system::ring::ReactorRing;
use roadtrain_target_proto::buffer_shares::BufferShares;
use roadtrain_target_proto::execution::ResumeAction;
use roadtrain_target_proto::qpair::TargetQpairConfig;
use roadtrain_target_proto::service;
use roadtrain_target_proto::session::{ListenerRequirements, TargetConnection};
use roadtrain_wire::sqe::Sqe;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use transport::LaneTransport;
pub(super) use transport::ether::{EtherLaneParts, EtherTransport, TargetLaneLink};
use transport::tcp::Tcp;

/// Reason why a lane ends.
#[derive(Debug, Error)]
pub(super) enum LaneError {
    #[error("connection lost: {0}")]
    Io(#[from] std::io::Error),
    #[error("closed by the host")]
    Closed,
    #[error(transparent)]
    Qpair(#[from] QpairError),
    #[error("{0}")]
    Ended(&'static str),
    /// Protocol error of the host in frames.
    #[error("{0}")]
    Broken(String),
    #[error("{0} for {1:?}, while other connections wait for the buffer")]
    Overdue(&'static str, Duration),
}

impl LaneError {
    /// Returns the kind of error, for counters.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            LaneError::Io(_) => "lost",
            LaneError::Closed => "closed",
            LaneError::Qpair(_) | LaneError::Broken(_) => "protocol",
            LaneError::Ended(_) => "ended",
            LaneError::Overdue(..) => "overdue",
        }
    }
}

/// State that the lanes of a reactor share.
pub(super) struct LaneResources {
    /// Index of the reactor.
    pub(super) number: usize,
    pub(super) gather: Box<Gather>,
    pub(super) pool: BufferPool,
    /// Part of the pool that may wait for hosts.
    pub(super) shares: BufferShares,
    /// Bytes that a lane with a full socket may have unsent before it stops receiving.
    pub(super) unsent_max: usize,
    /// Buffer where the control plane builds a page before it goes to a command's buffer.
    pub(super) page: Vec<u8>,
    pub(super) ring: ReactorRing,
    pub(super) tasks: Tasks,
    pub(super) now: Instant,
    /// Load over all lanes, as far as known.
    pub(super) load: ReactorLoad,
    /// True if the reactor polls instead of sleeping.
    pub(super) polls: bool,
    pub(super) control: Arc<TargetControlPlane>,
    /// Counters of this target.
    pub(super) meters: Arc<Meters>,
    /// Recorder of slow commands, and of samples of the others.
    pub(super) recorder: FlightRecorder<Arc<LaneCells>>,
    /// Ports that lanes over Ethernet share. Empty while they receive.
    pub(super) ports: Vec<Port>,
}

/// One queue pair at the target.
pub(super) struct TargetLane {
    /// Index in the reactor and generation of that index. It marks the lane's store tasks.
    pub(super) id: (u32, u32),
    pub(super) peer: String,
    transport: LaneTransport,
    /// Ticket of its connection; `None` over Ethernet.
    pub(super) ticket: Option<ConnectionTicket>,
    /// NVMe state of the queue: permitted commands, host and controller.
    pub(super) session: TargetConnection,
    pub(super) namespaces: LaneNamespaces,
    /// Stores that an admin queue flushes to shut its controller down.
    closing: Vec<Unflushed>,
    execution: LaneExecution,
    meter: LaneMeter,
    /// Placement: the core that processes its packets.
    pub(super) flow: LaneFlow,
}

impl TargetLane {
    /// Creates a lane over a TCP connection.
    pub(super) fn over_tcp(
        id: (u32, u32),
        connection: NewConnection,
        config: TargetQpairConfig,
    ) -> Self {
        let NewConnection { stream, secured_as, may_be_plain, peer, local, ticket } = connection;
        let tcp = Tcp::new(local, stream, config);
        let secures = secured_as.is_some();
        let declined_tls = may_be_plain && !secures;
        let mut session = TargetConnection::new(ListenerRequirements {
            secures,
            declined_tls,
            ..ListenerRequirements::default()
        });
        secured_as.into_iter().for_each(|secured_as| session.secured(secured_as));
        let lane = TargetLane::new(id, peer.to_string(), LaneTransport::Tcp(tcp), session);
        TargetLane { ticket: Some(ticket), ..lane }
    }

    fn new(
        id: (u32, u32),
        peer: String,
        transport: LaneTransport,
        session: TargetConnection,
    ) -> Self {
        TargetLane {
            id,
            peer,
            transport,
            ticket: None,
            session,
            namespaces: LaneNamespaces::default(),
            closing: Vec::new(),
            execution: LaneExecution::default(),
            meter: LaneMeter::default(),
            flow: LaneFlow::default(),
        }
    }

    /// Returns the descriptor to poll; `None` if the lane shares a port with other lanes.
    pub(super) fn fd(&self) -> Option<RawFd> {
        self.transport.fd()
    }

    /// True if the host has closed the connection. Data that it sent before may still be unread.
    pub(super) fn is_hung_up(&self) -> bool {
        self.transport.is_hung_up()
    }

    /// True if the lane has carried latency-critical PDUs recently.
    pub(super) fn is_express(&mut self, now: Instant) -> bool {
        self.transport.batcher().is_express(now)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.transport.is_blocked()
    }

    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let own = [self.transport.deadline(), self.execution.deadline(), self.session.deadline()];
        own.into_iter().flatten().min()
    }

    /// Returns the number of commands in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.transport.in_flight() as usize
    }

    pub(super) fn batching(&self) -> Batching {
        Batching { data_bytes: self.session.data_bytes(), ..self.transport.batching() }
    }

    fn handle_command(
        &mut self,
        shared: &mut LaneResources,
        slot: u16,
        sqe: &Sqe,
        payload: LanePayload<'_>,
    ) -> Result<(), LaneError> {
        self.meter.begin(shared, slot, sqe);
        let (execution, mut env) = self.parts(shared);
        match execution.command(&mut env, slot, sqe, payload) {
            None => Ok(()),
            admin => self.run_admin(shared, admin),
        }
    }

    /// Continues commands that wait for buffers while buffers are available. Returns true if the lane had stopped
    /// receiving because of that and may receive again.
    pub(super) fn feed(
        &mut self,
        shared: &mut LaneResources,
        rx: &mut RxBuffer,
    ) -> Result<bool, LaneError> {
        let was_stalled = self.is_stalled();
        loop {
            let (execution, mut env) = self.parts(shared);
            match execution.resume(&mut env) {
                Some(ResumeAction::Receiving) => self.receive_kept(shared, rx)?,
                Some(ResumeAction::Admin(slot)) => self.run_admin(shared, Some(slot))?,
                None => return Ok(was_stalled && !self.is_stalled()),
            }
        }
    }

    /// True if the lane receives nothing until a buffer is available.
    pub(super) fn is_stalled(&self) -> bool {
        self.execution.is_stalled()
    }

    /// True if the lane receives nothing until more has been sent.
    pub(super) fn is_receive_paused(&self) -> bool {
        self.transport.is_receive_paused()
    }

    pub(super) fn is_starved(&self) -> bool {
        self.execution.is_waiting_for_buffers()
    }

    /// Makes the close of its connection reset it.
    pub(super) fn reset_on_close(&self) {
        self.transport.reset_on_close();
    }

    /// Updates the table of namespaces after a change.
    pub(super) fn refresh(&mut self, control: &Arc<TargetControlPlane>) {
        self.namespaces = control.lane_namespaces(self.session.queue(), &self.namespaces);
        self.meter.set_namespaces(&self.namespaces);
    }

    /// Reports the end of the lane to the control plane.
    pub(super) fn report_end(self, control: &TargetControlPlane) {
        service::leave(&mut control.commands(&self.peer), self.session);
    }

    /// Ends the turn: rings the doorbells that the policy releases, and sends.
    pub(super) fn end_turn(&mut self, shared: &mut LaneResources) -> Result<(), LaneError> {
        service::before_sending(&mut self.lend(shared));
        self.transport.batcher().add_to(shared.now, &mut shared.load);
        self.update_load(shared);
        self.transport.expire(shared.now);
        self.flush(shared)?;
        let ended = service::after_sending(&mut self.lend(shared));
        let TargetLane { session, transport, .. } = &*self;
        let batching = || Batching { data_bytes: session.data_bytes(), ..transport.batching() };
        self.meter.end_turn(transport.in_flight(), batching);
        ended.map_err(LaneError::Ended)?;
        match self.transport.is_over(shared.now) {
            Some(why) => Err(LaneError::Ended(why)),
            None => Ok(()),
        }
    }

    /// Passes the load of other lanes to the policy, which derives the delay of completions from it.
    #[inline]
    pub(super) fn update_load(&mut self, shared: &mut LaneResources) {
        let batcher = self.transport.batcher();
        batcher.take_load(shared.now, &mut shared.load);
        batcher.set_polling(shared.polls);
    }

    /// Sends the freights whose doorbells have rung.
    pub(super) fn flush(&mut self, shared: &mut LaneResources) -> Result<(), LaneError> {
        self.transport.flush((&mut self.execution, &mut self.meter), shared)
    }

    /// Gives the lane the share of its host in the buffers of the reactor.
    pub(super) fn join_share(&mut self, shared: &LaneResources) {
        if let Some(connected) = self.session.queue().filter(|connected| connected.qid > 0) {
            self.execution.set_share(shared.shares.join(&connected.hostnqn));
        }
    }

    /// Stops counting: the lane ends for the reason `why`.
    pub(super) fn end_account(&mut self, shared: &LaneResources, why: &'static str) {
        self.meter.leave((&shared.meters, shared.number), why);
    }
}
