//! What a lane is connected by: a queue pair and what carries it, of whichever transport.

#[cfg(feature = "ether")]
pub(crate) mod ether;
mod tcp;

pub(crate) use tcp::TcpLink;

use super::ether::{PastLane, Ports};
use super::lane::Shared;
use super::requests::LaneRequests;
use crate::connection::{Heard, Rest, RxBuffer};
use crate::stats::LaneStats;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::host::qpair::Data;
use roadtrain_proto::policy::{Batcher, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::Reason;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;
use thiserror::Error;

/// Why a connection is over.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed it.
    #[error("connection closed by the target")]
    Closed,
    /// The protocol was broken.
    #[error(transparent)]
    Qpair(#[from] QpairError),
    /// No port at an interface.
    #[error("interface {interface}: {source}")]
    Port {
        /// Which.
        interface: String,
        /// Why not.
        source: io::Error,
    },
    /// What the target's name stands for is not known.
    #[error(transparent)]
    Name(io::Error),
    /// None of a name's addresses leads anywhere.
    #[error("{0}")]
    Nowhere(String),
    /// Nobody answers who offers the subsystem.
    #[error("nobody there offers this subsystem")]
    Nobody,
    /// The target makes no lane.
    #[error("lane refused: {0}")]
    Refused(Status),
    /// What a target says cannot be.
    #[error("{0}")]
    Nonsense(&'static str),
    /// The target still holds lanes of before.
    #[error("the target does not give up this host's earlier lanes")]
    Clinging,
    /// The target has ended the lane.
    #[error("lane ended by the target: {hint}", hint = left_hint(*.0))]
    Left(Reason),
    /// A command was neither answered nor ended by its abort.
    #[error("no answer to a command for {0:.0?}, though it was to be aborted")]
    Unanswered(Duration),
    /// Nothing has come for too long.
    #[error("the target is silent")]
    Silent,
    /// None of a lane's links leads to where the target is.
    #[error("the target is there, but at another address than those that links lead to")]
    Moved,
    /// One of a lane's links takes only smaller frames than it did.
    #[error("an interface takes smaller frames than its link (was an MTU changed?)")]
    Shrunk,
}

fn left_hint(reason: Reason) -> &'static str {
    match reason {
        Reason::UnknownToken => "it does not know it (was it restarted?)",
        Reason::Done => "as asked",
        Reason::Shutdown => "it stops",
        Reason::Broken => "it says that the protocol was broken",
    }
}

/// A connected, ready queue pair.
#[allow(clippy::large_enum_variant, reason = "a lane has one, which moves but once")]
pub(crate) enum Link {
    /// Over a TCP connection of its own.
    Tcp(TcpLink),
    /// Straight on Ethernet.
    #[cfg(feature = "ether")]
    Ether(ether::EtherLink),
}

/// Calls the transport's: no dynamic dispatch on the fast path.
macro_rules! each {
    ($link:expr, $l:ident => $call:expr) => {
        match $link {
            Link::Tcp($l) => $call,
            #[cfg(feature = "ether")]
            Link::Ether($l) => $call,
        }
    };
}

/// What every transport does for a lane: see the functions of [`Link`]. What a transport has nothing of is left out.
trait Transport {
    fn room(&self) -> u32;
    fn in_flight(&self) -> u32;
    fn submit(&mut self, now: Instant, sqe: &Sqe, data: Data, urgency: Urgency) -> Option<u16>;
    fn cid(&self, slot: u16) -> u16;
    fn batcher(&mut self) -> &mut Batcher;
    fn is_due(&self, now: Instant) -> bool;
    fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LinkError>;
    fn flush(&mut self, requests: &LaneRequests, shared: &mut Shared) -> Result<(), LinkError>;
    fn part(&mut self, shared: &mut Shared);
    fn stats(&self) -> LaneStats;

    fn deadline(&mut self) -> Option<Instant> {
        self.batcher().deadline()
    }

    // Of transports whose lanes have a socket of their own.

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn receive<'a>(
        &mut self,
        _requests: &mut LaneRequests,
        _rx: &'a mut RxBuffer,
        _limit: usize,
    ) -> Result<(Heard, Option<Rest<'a>>), LinkError> {
        Ok((Heard::default(), None)) // the reactor's ports do
    }

    fn parse<'a>(
        &mut self,
        _requests: &mut LaneRequests,
        _shared: &mut Shared,
        _rest: Rest<'a>,
        _batch: usize,
    ) -> Result<Option<Rest<'a>>, LinkError> {
        Ok(None)
    }

    fn resume(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    // Of transports whose lanes share the reactor's ports.

    fn move_to(&mut self, _now: Instant, _ports: &Ports, _lanes: usize) {}

    fn past(&self) -> Option<PastLane> {
        None
    }

    fn gathers(&mut self) -> bool {
        false
    }

    fn end(&mut self, _shared: &mut Shared) {} // a socket resets when it is closed
}

impl Link {
    /// A reactor takes it over, with its ports.
    pub(crate) fn move_to(&mut self, now: Instant, ports: &Ports, lanes: usize) {
        each!(self, link => link.move_to(now, ports, lanes))
    }

    /// What must be known to end it for good when it was given up; nothing if that needs nothing.
    pub(crate) fn past(&self) -> Option<PastLane> {
        each!(self, link => link.past())
    }

    /// A socket of its own, to be watched.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        each!(self, link => link.fd())
    }

    /// Whether it takes nothing more to send now; its socket tells when that is over.
    pub(crate) fn is_blocked(&self) -> bool {
        each!(self, link => link.is_blocked())
    }

    /// Commands that may be submitted now.
    pub(crate) fn room(&self) -> u32 {
        each!(self, link => link.room())
    }

    /// Commands submitted and not completed.
    pub(crate) fn in_flight(&self) -> u32 {
        each!(self, link => link.in_flight())
    }

    /// Queues a command: its slot. `None` when the queue is full.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: Data,
        urgency: Urgency,
    ) -> Option<u16> {
        each!(self, link => link.submit(now, sqe, data, urgency))
    }

    /// Command identifier of the command in a slot.
    pub(crate) fn cid(&self, slot: u16) -> u16 {
        each!(self, link => link.cid(slot))
    }

    /// When to send: doorbells and their timers.
    pub(crate) fn batcher(&mut self) -> &mut Batcher {
        each!(self, link => link.batcher())
    }

    /// When [`Link::end_turn`] is due at the latest.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        each!(self, link => link.deadline())
    }

    /// Whether something released waits, and may leave.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        each!(self, link => link.is_due(now))
    }

    /// One receive; [`Link::parse`] handles what it brought.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn receive<'a>(
        &mut self,
        requests: &mut LaneRequests,
        rx: &'a mut RxBuffer,
        limit: usize,
    ) -> Result<(Heard, Option<Rest<'a>>), LinkError> {
        each!(self, link => link.receive(requests, rx, limit))
    }

    /// Handles what was received until `batch` commands have ended or the input is used up; what is left then.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn parse<'a>(
        &mut self,
        requests: &mut LaneRequests,
        shared: &mut Shared,
        rest: Rest<'a>,
        batch: usize,
    ) -> Result<Option<Rest<'a>>, LinkError> {
        each!(self, link => link.parse(requests, shared, rest, batch))
    }

    /// The turn is over: rings what the policy lets go.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LinkError> {
        each!(self, link => link.end_turn(shared))
    }

    /// Sends what doorbells have released. Frames leave when the reactor flushes its ports.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn flush(
        &mut self,
        requests: &LaneRequests,
        shared: &mut Shared,
    ) -> Result<(), LinkError> {
        each!(self, link => link.flush(requests, shared))
    }

    /// The socket is writable again: goes on with what it was too full for.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn resume(&mut self) -> Result<(), LinkError> {
        each!(self, link => link.resume())
    }

    /// Whether what it could send had better wait for what the next frames will add. Over TCP one receive takes all
    /// that has come, so there is nothing to wait for.
    pub(crate) fn gathers(&mut self) -> bool {
        each!(self, link => link.gathers())
    }

    /// The connection is given up: nothing of it is to reach the target any more, as far as that can be.
    pub(crate) fn end(&mut self, shared: &mut Shared) {
        each!(self, link => link.end(shared))
    }

    /// Nothing is left to be done: says good-bye.
    pub(crate) fn part(&mut self, shared: &mut Shared) {
        each!(self, link => link.part(shared))
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> LaneStats {
        each!(self, link => link.stats())
    }
}
