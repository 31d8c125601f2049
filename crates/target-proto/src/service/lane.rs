//! Admin commands and events of one lane: their effect on its session and on the commands in execution.

use super::plane::try_again;
use super::{CommandOrigin, LockedControl, ServiceCommand, ServiceDriver, execute, grant_claim};
use crate::execution::{CommandExecution, Environment, LaneNamespace};
use crate::session::TargetConnection;
use crate::{CloseReason, ConnectRefused, ConnectedQueue, TargetEvent};
use core::ops::DerefMut;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Commands in execution of a lane.
pub type CommandsOf<L> =
    CommandExecution<<L as ServicedLane>::Namespace, <L as ServicedLane>::Buffer>;

/// A lane, with the resources that its driver lends for a call.
pub trait ServicedLane {
    /// Namespaces of its commands.
    type Namespace: LaneNamespace;
    /// Buffers of its commands.
    type Buffer: DerefMut<Target = [u8]>;
    /// Identifies a connection that can end on its own.
    type Connection: Copy;
    /// Error of its transport.
    type Error;

    /// Returns the time of this turn.
    fn now(&self) -> Instant;
    /// Returns the state of the connection.
    fn session(&mut self) -> &mut TargetConnection;
    /// Returns the commands in execution, and their environment.
    fn parts(&mut self)
    -> (&mut CommandsOf<Self>, impl Environment<Self::Namespace, Self::Buffer>);
    /// Returns the state of the connection, and the control plane for its commands.
    fn control(
        &mut self,
    ) -> (&mut TargetConnection, impl ServiceDriver<Connection = Self::Connection>);
    /// Returns the properties of the connection, for a command that arrived at `since`.
    fn port(&self, since: Instant) -> CommandOrigin<Self::Connection>;
    /// Returns an empty page for data from the control plane.
    fn take_page(&mut self) -> Vec<u8> {
        Vec::new()
    }
    /// Takes the page back.
    fn keep_page(&mut self, _page: Vec<u8>) {}

    /// Seals frames with this secret from now on.
    ///
    /// # Errors
    /// The transport does not support it.
    fn seal(&mut self, secret: &FrameSecret) -> Result<(), Self::Error>;
    /// Applies the negotiated parameters of Connect to the queue pair: queue, entries, flow control of the submission
    /// queue, class.
    fn set_connected(&mut self, agreed: (u16, u16, bool, Class));
    /// Sets up the resources of a granted queue: namespaces, its share of the buffers, counters.
    fn granted(&mut self);
    /// Resolves the namespaces again after a change.
    fn refresh(&mut self);
    /// Ends the transport: nothing more is received.
    fn hang_up(&mut self);
    /// Returns the slot of a command in execution.
    fn slot_of(&mut self, cid: u16) -> Option<u16>;
    /// Returns the slot of an outstanding Asynchronous Event Request.
    fn event_request_of(&mut self, cid: u16) -> Option<u16>;
}

/// Effect of an event on a lane, for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing to do.
    Nothing,
    /// End the lane's turn: it may have something to send.
    EndsTurn,
    /// Close the lane.
    Closes(CloseReason),
}

/// Executes the admin or fabrics command in a slot, if there is one. Returns true when the connection ends after its
/// completion.
///
/// # Errors
/// The connection ends at once.
pub fn run_admin<L: ServicedLane>(lane: &mut L, slot: u16) -> Result<bool, L::Error> {
    let Some((admin, buffer)) = lane.parts().0.take_admin(slot) else { return Ok(false) };
    let now = lane.now();
    let since = lane.session().connecting(now);
    let (port, mut page) = (lane.port(since), lane.take_page());
    let reply = {
        let (session, mut driver) = lane.control();
        let (sqe, data) = (&admin.sqe, admin.data(buffer.as_deref()));
        execute(&mut driver, session, ServiceCommand { now, port, sqe, data }, &mut page)
    };
    if reply.postponed {
        let (execution, mut env) = lane.parts();
        execution.postpone(&mut env, slot, (admin, buffer));
    } else {
        if let Some(secret) = lane.session().take_frame_secret() {
            lane.seal(&secret)?;
        }
        lane.session().answered();
        if reply.connected {
            let session = lane.session();
            let claimed = session.claim().or(session.queue());
            let agreed = claimed.map(|c| (c.qid, c.entries, c.sq_flow_control, c.class));
            agreed.into_iter().for_each(|agreed| lane.set_connected(agreed));
        }
        if reply.granted {
            lane.granted();
        }
        let (execution, mut env) = lane.parts();
        match reply.status_query {
            Some(wanted) => {
                execution.query_block_status(&mut env, slot, (&admin.sqe, buffer), wanted)
            }
            None => execution.answer(&mut env, slot, reply.completion, buffer, &page),
        }
    }
    lane.keep_page(page);
    Ok(reply.ends)
}

/// Grants the host its queue, if it is authenticated by now.
///
/// # Errors
/// The refusal: the connection has to end.
pub fn grant<L: ServicedLane>(lane: &mut L) -> Result<bool, ConnectRefused> {
    let now = lane.now();
    let connection = lane.port(now).connection;
    let is_granted = {
        let (session, mut driver) = lane.control();
        grant_claim(&mut driver, now, session, connection)?
    };
    if is_granted {
        lane.granted();
    }
    Ok(is_granted)
}

/// Returns the postponed commands to execute now: Connects, shutdowns, and steps of authentications.
pub fn take_postponed<L: ServicedLane>(lane: &mut L) -> Vec<u16> {
    let postponed = lane.session().take_postponed();
    let (execution, mut env) = lane.parts();
    postponed.into_iter().filter_map(|slot| execution.begin_admin(&mut env, slot)).collect()
}

/// Applies an event of the control plane to a lane that has not ended.
pub fn apply<L: ServicedLane>(lane: &mut L, event: &TargetEvent) -> Effect {
    let Some(ConnectedQueue { cntlid, qid, subnqn, .. }) = lane.session().queue() else {
        return Effect::Nothing;
    };
    let (own, is_admin) = ((*cntlid, *qid), *qid == 0);
    match *event {
        TargetEvent::Completion { cntlid, cid, status, result } if is_admin && cntlid == own.0 => {
            let slot = lane.slot_of(cid);
            complete(lane, slot, status, result)
        }
        TargetEvent::EventCompletion { cntlid, cid, status, result }
            if is_admin && cntlid == own.0 =>
        {
            let slot = lane.event_request_of(cid);
            complete(lane, slot, status, result)
        }
        TargetEvent::Close { cntlid, qid, reason } if (cntlid, qid) == own => {
            lane.session().forgotten(reason);
            Effect::Closes(reason)
        }
        TargetEvent::Abort { cntlid, qid, cid, id } if (cntlid, qid) == own => {
            let (execution, mut env) = lane.parts();
            execution.abort(&mut env, cid, id);
            Effect::EndsTurn
        }
        TargetEvent::Quiesce { cntlid, qid } if (cntlid, qid) == own => {
            let (execution, mut env) = lane.parts();
            execution.quiesce(&mut env);
            Effect::Nothing
        }
        TargetEvent::NamespacesChanged { ref nqn } if *subnqn == *nqn => {
            lane.refresh();
            let (execution, mut env) = lane.parts();
            execution.review(&mut env);
            Effect::EndsTurn
        }
        _ => Effect::Nothing,
    }
}

/// Completes a command that was pending in the control plane.
fn complete<L: ServicedLane>(
    lane: &mut L,
    slot: Option<u16>,
    status: Status,
    result: u64,
) -> Effect {
    if let Some(slot) = slot {
        lane.parts().1.respond(slot, status, result);
    }
    Effect::EndsTurn
}

/// Closes a lane. Its commands in a store stay until they have ended; [`leave`] follows then.
pub fn close<L: ServicedLane>(lane: &mut L) {
    {
        let (session, mut driver) = lane.control();
        if let Some(presence) = session.end() {
            driver.control(|LockedControl { presences, .. }| {
                presences.drain(presence);
                ((), try_again(presences))
            });
        }
    }
    lane.hang_up();
    let (execution, mut env) = lane.parts();
    for slot in execution.status_query_slots().collect::<Vec<_>>() {
        env.cancel(slot);
    }
    execution.close(|buffer| env.give(buffer));
}

/// Reports to the control plane that nothing is left of a lane. Only then is its queue removed, so that a host which
/// connects again never overtakes its own old commands.
pub fn leave<D: ServiceDriver>(driver: &mut D, session: TargetConnection) {
    if let Some(leaving) = session.leave() {
        driver.control(|LockedControl { target, presences, .. }| {
            leaving.report(target, presences);
            ((), try_again(presences))
        });
    }
}

/// Runs the steps at the end of a lane's turn, before it sends.
#[inline]
pub fn before_sending<L: ServicedLane>(lane: &mut L) {
    lane.session().report_traffic();
    let (execution, mut env) = lane.parts();
    execution.begin_due(&mut env);
}

/// Runs the steps at the end of a lane's turn, after it has sent.
///
/// # Errors
/// The reason why the connection has to end.
#[inline]
pub fn after_sending<L: ServicedLane>(lane: &mut L) -> Result<(), &'static str> {
    let (execution, mut env) = lane.parts();
    execution.end_turn(&mut env);
    drop(env);
    let now = lane.now();
    match lane.session().deadline() {
        Some(deadline) if deadline <= now => {
            Err("it has begun to authenticate again, and did not end in time")
        }
        _ => Ok(()),
    }
}
