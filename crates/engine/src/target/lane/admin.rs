//! Admin and fabrics commands: handed to the control plane, and answered.

use super::{LaneError, Shared, TargetLane};
use crate::target::tickets::Ticket;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::service;
use roadtrain_target_proto::session::{Session, State};
use roadtrain_target_proto::{Connected, TargetEvent};
use tracing::warn;

/// Room for a page that a reactor keeps from one command to the next.
const PAGE_BYTES_KEPT: usize = 64 << 10;

impl TargetLane {
    /// Hands a command to the control plane, if there is one that is to be executed now.
    pub(super) fn run_admin(
        &mut self,
        shared: &mut Shared,
        slot: Option<u16>,
    ) -> Result<(), LaneError> {
        let command = slot.and_then(|slot| Some((slot, self.execution.take_admin(slot)?)));
        let Some((slot, (admin, buffer))) = command else { return Ok(()) };
        let control = shared.control.clone();
        let (now, mut page) = (shared.now, std::mem::take(&mut shared.page));
        page.clear();
        let since = self.session.connecting(now);
        let port = self.transport.port(since);
        let (sqe, data) = (&admin.sqe, admin.data(buffer.as_deref()));
        let mut driver = control.commands(&self.peer);
        let session = &mut self.session;
        let reply = service::command(&mut driver, now, session, port, (sqe, data), &mut page);
        if reply.postponed {
            shared.page = page;
            let (execution, mut env) = self.parts(shared);
            execution.postpone(&mut env, slot, (admin, buffer));
            return Ok(());
        }
        if let Some(secret) = self.session.take_frame_secret() {
            self.transport.seal(&secret)?;
        }
        self.session.answered();
        if reply.connected
            && let Some(connected) = self.session.claim().or(self.session.queue())
        {
            let &Connected { qid, entries, sq_flow_control, class, .. } = connected;
            self.transport.set_connected(qid, entries, sq_flow_control, class);
        }
        if reply.granted {
            self.granted(shared);
        }
        let (execution, mut env) = self.parts(shared);
        match reply.look_up {
            Some(wanted) => execution.look_up(&mut env, slot, (sqe, buffer), wanted),
            None => execution.answer(&mut env, slot, reply.completion, buffer, &page),
        }
        page.shrink_to(PAGE_BYTES_KEPT);
        shared.page = page;
        if reply.ends && self.transport.ends_at_once(shared.now) {
            self.end_turn(shared)?;
            return Err(LaneError::Ended(why_ended(&self.session)));
        }
        Ok(())
    }

    /// The host has its queue: from now on the connection makes room for no other, and counts.
    pub(in crate::target) fn granted(&mut self, shared: &Shared) {
        self.ticket.iter().for_each(Ticket::granted);
        let proved = self.session.has_proved();
        let agreed = self.session.authenticator().filter(|_| proved).map(|one| one.agreed());
        if let Some(connected) = self.session.queue() {
            log_other_hostid(&self.peer, connected);
            let account = (&*shared.meters, shared.number);
            self.meter.connected(account, connected, (&self.peer, self.transport.name()));
            agreed.into_iter().for_each(|agreed| shared.meters.authenticated(connected, agreed));
        }
        self.refresh(&shared.control);
        self.join_share(shared);
    }

    /// The controller shuts down.
    pub(in crate::target) fn quiesce(&mut self, shared: &mut Shared) {
        let (execution, mut env) = self.parts(shared);
        execution.quiesce(&mut env);
    }

    /// Tries Connect and shutdown commands again that had to wait; whether there were any.
    pub(in crate::target) fn connect_again(
        &mut self,
        shared: &mut Shared,
    ) -> Result<bool, LaneError> {
        let waiting = self.session.take_postponed();
        for &slot in &waiting {
            let (execution, mut env) = self.parts(shared);
            let admin = execution.begin_admin(&mut env, slot);
            self.run_admin(shared, admin)?;
        }
        Ok(!waiting.is_empty())
    }

    /// Answers a command that the control plane has kept.
    pub(in crate::target) fn complete(&mut self, now: Instant, event: &TargetEvent) {
        let (slot, status, result) = match *event {
            TargetEvent::Completion { cid, status, result, .. } => {
                (self.transport.slot_of(cid), status, result)
            }
            TargetEvent::EventCompletion { cid, status, result, .. } => {
                (self.transport.event_request_of(cid), status, result)
            }
            _ => return,
        };
        if let Some(slot) = slot {
            self.transport.respond(now, slot, status, result);
        }
    }
}

/// Says which HOSTID counts, where a host has named several.
fn log_other_hostid(peer: &str, connected: &Connected) {
    if let Some(other) = connected.other_hostid {
        let (cntlid, hostid) = (connected.cntlid, u128::from_be_bytes(other));
        let hostid = format_args!("{hostid:#034x}");
        warn!(%peer, cntlid, %hostid, "an I/O queue's Connect names another HOSTID than the admin queue's, which counts");
    }
}

/// Why the connection ends after an answer.
fn why_ended(session: &Session) -> &'static str {
    match session.state() {
        State::Draining => "disconnected by the host",
        _ => "not authenticated",
    }
}
