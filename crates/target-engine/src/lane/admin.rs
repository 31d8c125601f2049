//! Admin and fabrics commands of a lane. The service executes them.

use super::data::LaneExecution;
use super::{LaneError, LaneResources, TargetLane};
use crate::namespace::{LaneNamespaces, LocalNamespace};
use crate::tickets::ConnectionTicket;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::ConnectedQueue;
use roadtrain_target_proto::execution::Environment;
use roadtrain_target_proto::service::{self, CommandOrigin, ServiceDriver};
use roadtrain_target_proto::session::{ConnectionState, TargetConnection};
use std::os::fd::RawFd;
use tracing::warn;

/// Largest page buffer, in bytes, that a reactor keeps from one command to the next.
const PAGE_BYTES_KEPT: usize = 64 << 10;

/// A lane and its reactor, lent to the service.
pub(crate) struct BorrowedLane<'a> {
    lane: &'a mut TargetLane,
    shared: &'a mut LaneResources,
}

impl service::ServicedLane for BorrowedLane<'_> {
    type Namespace = LocalNamespace;
    type Buffer = Buffer;
    type Connection = RawFd;
    type Error = LaneError;

    fn now(&self) -> Instant {
        self.shared.now
    }

    fn session(&mut self) -> &mut TargetConnection {
        &mut self.lane.session
    }

    fn parts(&mut self) -> (&mut LaneExecution, impl Environment<LocalNamespace, Buffer>) {
        self.lane.parts(self.shared)
    }

    fn control(&mut self) -> (&mut TargetConnection, impl ServiceDriver<Connection = RawFd>) {
        let TargetLane { session, peer, .. } = &mut *self.lane;
        (session, self.shared.control.commands(peer))
    }

    fn port(&self, since: Instant) -> CommandOrigin<RawFd> {
        self.lane.transport.port(since)
    }

    fn take_page(&mut self) -> Vec<u8> {
        let mut page = std::mem::take(&mut self.shared.page);
        page.clear();
        page
    }

    fn keep_page(&mut self, mut page: Vec<u8>) {
        page.shrink_to(PAGE_BYTES_KEPT);
        self.shared.page = page;
    }

    fn seal(&mut self, secret: &FrameSecret) -> Result<(), LaneError> {
        self.lane.transport.seal(secret)
    }

    fn set_connected(&mut self, (qid, entries, flow, class): (u16, u16, bool, Class)) {
        self.lane.transport.set_connected(qid, entries, flow, class);
    }

    /// Marks the connection as authenticated, so that none of its slots goes to another one, and starts its counters.
    fn granted(&mut self) {
        let BorrowedLane { lane, shared } = self;
        lane.ticket.iter().for_each(ConnectionTicket::granted);
        let proved = lane.session.is_authenticated();
        let agreed = lane.session.authenticator().filter(|_| proved).map(|one| one.agreed());
        if let Some(connected) = lane.session.queue() {
            log_other_hostid(&lane.peer, connected);
            let account = (&*shared.meters, shared.number);
            lane.meter.connected(account, connected, (&lane.peer, lane.transport.name()));
            agreed.into_iter().for_each(|agreed| shared.meters.authenticated(connected, agreed));
        }
        lane.refresh(&shared.control);
        lane.join_share(shared);
    }

    fn refresh(&mut self) {
        self.lane.refresh(&self.shared.control);
    }

    fn hang_up(&mut self) {
        let BorrowedLane { lane, shared } = self;
        lane.transport.hang_up((&mut lane.execution, &mut lane.meter), shared);
        lane.namespaces = LaneNamespaces::default();
    }

    fn slot_of(&mut self, cid: u16) -> Option<u16> {
        self.lane.transport.slot_of(cid)
    }

    fn event_request_of(&mut self, cid: u16) -> Option<u16> {
        self.lane.transport.event_request_of(cid)
    }
}

impl TargetLane {
    /// Lends the lane to the service.
    pub(crate) fn lend<'a>(&'a mut self, shared: &'a mut LaneResources) -> BorrowedLane<'a> {
        BorrowedLane { lane: self, shared }
    }

    /// Executes the admin or fabrics command in `slot`, if any.
    pub(crate) fn run_admin(
        &mut self,
        shared: &mut LaneResources,
        slot: Option<u16>,
    ) -> Result<(), LaneError> {
        let Some(slot) = slot else { return Ok(()) };
        if service::run_admin(&mut self.lend(shared), slot)?
            && self.transport.ends_at_once(shared.now)
        {
            self.end_turn(shared)?;
            return Err(LaneError::Ended(end_reason(&self.session)));
        }
        Ok(())
    }
}

/// Logs the HOSTID that counts if a host has sent different ones.
fn log_other_hostid(peer: &str, connected: &ConnectedQueue) {
    if let Some(other) = connected.other_hostid {
        let (cntlid, hostid) = (connected.cntlid, u128::from_be_bytes(other));
        let hostid = format_args!("{hostid:#034x}");
        warn!(%peer, cntlid, %hostid, "an I/O queue's Connect names another HOSTID than the admin queue's, which counts");
    }
}

/// Returns the reason why the connection ends after a completion.
fn end_reason(session: &TargetConnection) -> &'static str {
    match session.state() {
        ConnectionState::Draining => "disconnected by the host",
        _ => "not authenticated",
    }
}
