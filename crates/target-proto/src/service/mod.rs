//! Execution of a connection's admin and fabrics commands, from admission to answer, and rules of a reactor for its lanes.
//!
//! [`run_admin`], [`grant`] and [`apply`] decide; a [`Lane`] lends them the connection, and a [`Driver`] the control plane,
//! random bytes and a worker that computes. [`handle_event`], [`fence`], [`close_stale`], [`try_again`] and others decide
//! for all lanes of a [`Reactor`]. The engine and the simulator drive the same code: a check that is added here is
//! simulated as well.
//!
//! ```text
//! refused by the state -----------------------------------------------> status
//! Connect -> names of the stream -> stale connections -> control plane -> claim -> grant
//! authentication, where the host has to prove its name -> control plane -> grant
//! others -> control plane of the controller
//! ```

mod authenticate;
mod connect;
mod lane;
mod plane;
mod reactor;
mod reply;

pub use lane::{
    CommandsOf, Effect, Lane, after_sending, apply, before_sending, close, grant, leave, run_admin,
    take_postponed,
};
pub use plane::{Plane, answered, quiesce, quiesced};
pub use reactor::{
    Closing, Reactor, Rules, admits, arrived, check_after_pause, close_newcomers, close_overdue,
    close_stale, fence, finish, handle_event, handle_event_of, hold_places, reserved, try_again,
};
pub use reply::Reply;

use super::session::{Request, Session, State};
use super::{ConnectRefused, Connected, Outcome};
use core::net::SocketAddr;
use core::time::Duration;
use roadtrain_proto::security::dhchap::{Group, Work};
use roadtrain_proto::security::{GeneratedPsk, Hash};
use roadtrain_proto::time::Instant;
use roadtrain_wire::auth::Explanation;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Properties of the connection that a command came over. `C` identifies a connection that can end on its own.
#[derive(Clone, Copy, Debug)]
pub struct Port<C> {
    /// Local address of the connection.
    pub local: SocketAddr,
    /// The connection, unless it shares a port with others.
    pub connection: Option<C>,
    /// Time of arrival: a Connect that was postponed is older than others.
    pub since: Instant,
}

/// Message to all reactors, this one included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broadcast {
    /// Connections that the host of this name has closed end, before more of what they received is executed.
    CloseStale(String),
    /// The host of this name is queried for lanes without a connection of their own.
    Probe(String),
    /// Postponed commands are executed again.
    TryAgain,
}

/// Result of handing a computation to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computing {
    /// It has ended.
    Done,
    /// Postponed commands are tried again when it has ended.
    Later,
}

/// Event for logs and counters.
#[derive(Debug)]
pub enum Note<'a> {
    /// The state of the connection does not admit a command.
    NotAdmitted(&'a Sqe, State, Status),
    /// A Connect with this data is refused, before any proof.
    Refused(&'a [u8], &'a ConnectRefused),
    /// A Connect with this data, of this host, is refused while commands of its lost connections are in a store.
    Busy(&'a [u8], &'a str, Status),
    /// A queue was claimed.
    Claimed(&'a Connected),
    /// The host of this claim has proved its name, and is refused.
    RefusedAfterProof(&'a Connected, &'a ConnectRefused),
    /// The host has not proved its name: the reason, and the field that shows it.
    NotAuthenticated(&'a Connected, Explanation, &'static str),
    /// The host has proved its name.
    Authenticated(&'a Connected, (Hash, Group)),
    /// The host has proved its name again.
    Reauthenticated(&'a Connected, (Hash, Group)),
    /// The host has made a PSK, to connect again with TLS.
    GeneratedPsk(&'a Connected, (Hash, Group)),
}

/// Control plane, random bytes and a worker for the commands of one connection.
pub trait Driver {
    /// Identifies a connection that can end on its own.
    type Connection: Copy;

    /// Calls with the control plane locked. Before the lock is released the driver sends the returned message, then the
    /// events that the call has left.
    fn control<R>(
        &mut self,
        call: impl FnOnce(Plane<'_, Self::Connection>) -> (R, Option<Broadcast>),
    ) -> R;

    /// A number that no host can guess; `None`: the driver has none, and has reported that.
    fn number(&mut self) -> Option<u64>;

    /// A source of bytes that no host can guess, for one step of an authentication; `None` as above.
    fn random(&mut self) -> Option<impl FnMut(&mut [u8])>;

    /// Computes; `None`: the driver cannot, and has reported that.
    fn compute(&mut self, work: Work) -> Option<Computing>;

    /// Longest time of an authentication that a host begins again, without the time of computations.
    fn authentication_time(&self) -> Duration;

    /// Keeps the PSK for the host's TLS connections, unless [`has_keys_of`](crate::Target::has_keys_of) denies it.
    fn keep_psk(&mut self, now: Instant, connected: &Connected, psk: &GeneratedPsk);

    /// Reports an event.
    fn note(&mut self, note: &Note<'_>);
}

/// An admin or fabrics command with its data from the host.
#[derive(Clone, Copy)]
struct Command<'a, C> {
    /// Time of this turn.
    now: Instant,
    port: Port<C>,
    sqe: &'a Sqe,
    data: &'a [u8],
}

/// Executes a command, if the connection's state admits it. Data for the host goes to `page`.
fn execute<D: Driver>(
    driver: &mut D,
    session: &mut Session,
    command: Command<'_, D::Connection>,
    page: &mut Vec<u8>,
) -> Reply {
    let Command { now, sqe, data, .. } = command;
    let request = session.request(sqe);
    if let Err(status) = session.admits(request) {
        driver.note(&Note::NotAdmitted(sqe, session.state(), status));
        return Reply::completed(status, 0);
    }
    let Some(connected) = session.claim().or(session.queue()) else {
        return connect::connect(driver, session, command);
    };
    if request == Request::Authentication && connected.asked.is_some() {
        return authenticate::authenticate(driver, session, command, page);
    }
    let (cntlid, qid) = (connected.cntlid, connected.qid);
    let outcome = driver.control(|Plane { target, .. }| match qid {
        0 => (target.admin_command(now, cntlid, sqe, data, page), None),
        _ => (target.fabrics_command(now, cntlid, qid, sqe), None),
    });
    match outcome {
        Outcome::Complete { status, result } => Reply::completed(status, result),
        Outcome::Pending => Reply::default(),
        Outcome::LookUp(wanted) => Reply { look_up: Some(wanted), ..Reply::default() },
        Outcome::Disconnected => {
            session.disconnected();
            Reply { ends: true, ..Reply::completed(Status::SUCCESS, 0) }
        }
    }
}

/// Grants the host of a connection the queue that it has claimed, if it has proved its name or need not: `true` when
/// that is so now.
///
/// # Errors
/// The queue is refused: the connection is to end.
fn grant_claim<D: Driver>(
    driver: &mut D,
    now: Instant,
    session: &mut Session,
    connection: Option<D::Connection>,
) -> Result<bool, ConnectRefused> {
    let granted = driver.control(|Plane { target, presences, .. }| {
        (session.take_granted(now, target, presences, connection), None)
    });
    if let (Err(refused), Some(claim)) = (&granted, session.claim()) {
        driver.note(&Note::RefusedAfterProof(claim, refused));
    }
    granted
}

#[cfg(test)]
mod tests;
