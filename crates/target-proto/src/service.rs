//! Execution of a connection's admin and fabrics commands, from admission to completion, and rules of a reactor for its
//! lanes.
//!
//! [`run_admin`], [`grant`] and [`apply`] decide; a [`ServicedLane`] lends them the connection, and a [`ServiceDriver`] the control
//! plane, random bytes and a Diffie-Hellman worker. [`handle_event`], [`fence`], [`close_stale`], [`try_again`] and
//! others decide for all lanes of a [`ServicedReactor`]. The engine and the simulator drive the same code: a check added here
//! is simulated as well.
//!
//! ```text
//! refused by the state -----------------------------------------------> status
//! Connect -> names of the connection -> stale connections -> control plane -> claim -> grant
//! authentication, where required -> control plane -> grant
//! others -> control plane of the controller
//! ```

mod authenticate;
mod connect;
mod lane;
mod plane;
mod reactor;
mod reply;

pub use lane::{
    CommandsOf, Effect, ServicedLane, after_sending, apply, before_sending, close, grant, leave,
    run_admin, take_postponed,
};
pub use plane::{LockedControl, answered, quiesce, quiesced};
pub use reactor::{
    LaneClosing, ReactorRules, ServicedReactor, admits, arrived, check_after_pause, close_overdue,
    close_stale, close_unauthenticated, fence, finish, handle_event, handle_event_of, hold_places,
    reserved, try_again,
};
pub use reply::ServiceReply;

use super::session::{ConnectionState, SessionRequest, TargetConnection};
use super::{AdminOutcome, ConnectRefused, ConnectedQueue};
use core::net::SocketAddr;
use core::time::Duration;
use roadtrain_proto::security::dhchap::{DhGroup, DhTask};
use roadtrain_proto::security::{GeneratedPsk, Hash};
use roadtrain_proto::time::Instant;
use roadtrain_wire::auth::Explanation;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Properties of a command's connection. `C` identifies a connection that can end on its own.
#[derive(Clone, Copy, Debug)]
pub struct CommandOrigin<C> {
    /// Local address of the connection.
    pub local: SocketAddr,
    /// The connection, unless it shares a port with others.
    pub connection: Option<C>,
    /// Time of arrival: a postponed Connect is older than others.
    pub since: Instant,
}

/// Message to all reactors, the sender included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broadcast {
    /// Close connections that the host of this name has closed, before more of their received data is executed.
    CloseStale(String),
    /// Probe the host of this name for lanes without a connection of their own.
    Probe(String),
    /// Execute postponed commands again.
    TryAgain,
}

/// State of a computation passed to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computing {
    /// The computation has ended.
    Done,
    /// The computation is pending; postponed commands are retried at its end.
    Later,
}

/// Event for logs and counters.
#[derive(Debug)]
pub enum Note<'a> {
    /// The state of the connection does not allow a command.
    NotAdmitted(&'a Sqe, ConnectionState, Status),
    /// A Connect with this data is refused, before any authentication.
    Refused(&'a [u8], &'a ConnectRefused),
    /// A Connect with this data, of this host, is refused while commands of its lost connections are in a store.
    Busy(&'a [u8], &'a str, Status),
    /// A queue was claimed.
    Claimed(&'a ConnectedQueue),
    /// The host of this claim is authenticated, and refused.
    RefusedAfterProof(&'a ConnectedQueue, &'a ConnectRefused),
    /// The host has failed to authenticate: the reason, and the wrong field.
    NotAuthenticated(&'a ConnectedQueue, Explanation, &'static str),
    /// The host is authenticated.
    Authenticated(&'a ConnectedQueue, (Hash, DhGroup)),
    /// The host is authenticated again.
    Reauthenticated(&'a ConnectedQueue, (Hash, DhGroup)),
    /// The host has generated a PSK, to connect again with TLS.
    GeneratedPsk(&'a ConnectedQueue, (Hash, DhGroup)),
}

/// Control plane, random bytes and a worker for the commands of one connection.
pub trait ServiceDriver {
    /// Identifies a connection that can end on its own.
    type Connection: Copy;

    /// Calls with the control plane locked. Before the driver releases the lock it sends the returned message, then the
    /// events that the call has left.
    fn control<R>(
        &mut self,
        call: impl FnOnce(LockedControl<'_, Self::Connection>) -> (R, Option<Broadcast>),
    ) -> R;

    /// Returns an unpredictable number; `None`: the driver has none, and has reported that.
    fn number(&mut self) -> Option<u64>;

    /// Returns a source of unpredictable bytes, for one step of an authentication; `None` as above.
    fn random(&mut self) -> Option<impl FnMut(&mut [u8])>;

    /// Starts a computation; `None`: the driver cannot, and has reported that.
    fn compute(&mut self, work: DhTask) -> Option<Computing>;

    /// Returns the longest duration of a repeated authentication, without the time of computations.
    fn authentication_time(&self) -> Duration;

    /// Stores the PSK for the host's TLS connections, unless [`has_keys_of`](crate::TargetControl::has_keys_of) returns false.
    fn keep_psk(&mut self, now: Instant, connected: &ConnectedQueue, psk: &GeneratedPsk);

    /// Reports an event.
    fn note(&mut self, note: &Note<'_>);
}

/// An admin or fabrics command with its data from the host.
#[derive(Clone, Copy)]
struct ServiceCommand<'a, C> {
    /// Time of this turn.
    now: Instant,
    port: CommandOrigin<C>,
    sqe: &'a Sqe,
    data: &'a [u8],
}

/// Executes a command, if the connection's state allows it. Data for the host goes to `page`.
fn execute<D: ServiceDriver>(
    driver: &mut D,
    session: &mut TargetConnection,
    command: ServiceCommand<'_, D::Connection>,
    page: &mut Vec<u8>,
) -> ServiceReply {
    let ServiceCommand { now, sqe, data, .. } = command;
    let request = session.request(sqe);
    if let Err(status) = session.admits(request) {
        driver.note(&Note::NotAdmitted(sqe, session.state(), status));
        return ServiceReply::completed(status, 0);
    }
    let Some(connected) = session.claim().or(session.queue()) else {
        return connect::connect(driver, session, command);
    };
    if request == SessionRequest::Authentication && connected.requirement.is_some() {
        return authenticate::authenticate(driver, session, command, page);
    }
    let (cntlid, qid) = (connected.cntlid, connected.qid);
    let outcome = driver.control(|LockedControl { target, .. }| match qid {
        0 => (target.admin_command(now, cntlid, sqe, data, page), None),
        _ => (target.fabrics_command(now, cntlid, qid, sqe), None),
    });
    match outcome {
        AdminOutcome::Complete { status, result } => ServiceReply::completed(status, result),
        AdminOutcome::Pending => ServiceReply::default(),
        AdminOutcome::QueryLbaStatus(wanted) => {
            ServiceReply { status_query: Some(wanted), ..ServiceReply::default() }
        }
        AdminOutcome::Disconnected => {
            session.disconnected();
            ServiceReply { ends: true, ..ServiceReply::completed(Status::SUCCESS, 0) }
        }
    }
}

/// Grants the host of a connection its claimed queue, if it is authenticated or need not be. Returns true when the
/// queue was granted now.
///
/// # Errors
/// The refusal: the connection has to end.
fn grant_claim<D: ServiceDriver>(
    driver: &mut D,
    now: Instant,
    session: &mut TargetConnection,
    connection: Option<D::Connection>,
) -> Result<bool, ConnectRefused> {
    let granted = driver.control(|LockedControl { target, presences, .. }| {
        (session.take_granted(now, target, presences, connection), None)
    });
    if let (Err(refused), Some(claim)) = (&granted, session.claim()) {
        driver.note(&Note::RefusedAfterProof(claim, refused));
    }
    granted
}

#[cfg(test)]
mod tests;
