//! What a lane is connected by: a queue pair and what carries it, of whichever transport.

mod ether;
mod tcp;

pub(crate) use ether::EtherLink;
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
    Ether(EtherLink),
}

/// Calls the transport's: no dynamic dispatch on the fast path.
macro_rules! each {
    ($link:expr, $l:ident => $call:expr) => {
        match $link {
            Link::Tcp($l) => $call,
            Link::Ether($l) => $call,
        }
    };
}

impl Link {
    /// A reactor takes it over, with its ports.
    pub(crate) fn move_to(&mut self, now: Instant, ports: &Ports, lanes: usize) {
        if let Link::Ether(link) = self {
            link.lane.move_to(now, ports, lanes);
        }
    }

    /// What must be known to end it for good when it was given up; nothing if that needs nothing.
    pub(crate) fn past(&self) -> Option<PastLane> {
        match self {
            Link::Tcp(_) => None,
            Link::Ether(link) => Some(link.lane.past()),
        }
    }

    /// A socket of its own, to be watched.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        match self {
            Link::Tcp(link) => Some(link.fd()),
            Link::Ether(_) => None,
        }
    }

    /// Whether it takes nothing more to send now; its socket tells when that is over.
    pub(crate) fn is_blocked(&self) -> bool {
        match self {
            Link::Tcp(link) => link.is_blocked(),
            Link::Ether(_) => false,
        }
    }

    /// Commands that may be submitted now.
    pub(crate) fn room(&self) -> u32 {
        match self {
            Link::Tcp(link) => link.qpair.room(),
            Link::Ether(link) => link.lane.qpair.room(),
        }
    }

    /// Commands submitted and not completed.
    pub(crate) fn in_flight(&self) -> u32 {
        match self {
            Link::Tcp(link) => link.qpair.in_flight(),
            Link::Ether(link) => link.lane.qpair.in_flight(),
        }
    }

    /// Queues a command: its slot. `None` when the queue is full.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: Data,
        urgency: Urgency,
    ) -> Option<u16> {
        match self {
            Link::Tcp(link) => link.qpair.submit(now, sqe, data, urgency),
            Link::Ether(link) => {
                link.stats.caravan_requests += 1;
                link.lane.qpair.submit(now, sqe, data, urgency)
            }
        }
    }

    /// Command identifier of the command in a slot.
    pub(crate) fn cid(&self, slot: u16) -> u16 {
        match self {
            Link::Tcp(link) => link.qpair.cid(slot),
            Link::Ether(link) => link.lane.qpair.cid(slot),
        }
    }

    /// When to send: doorbells and their timers.
    pub(crate) fn batcher(&mut self) -> &mut Batcher {
        match self {
            Link::Tcp(link) => link.qpair.batcher(),
            Link::Ether(link) => link.lane.qpair.batcher(),
        }
    }

    /// When [`Link::end_turn`] is due at the latest.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        match self {
            Link::Tcp(link) => link.qpair.batcher().deadline(),
            Link::Ether(link) => link.lane.deadline(false),
        }
    }

    /// Whether something released waits, and may leave.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self {
            Link::Tcp(link) => link.is_due(),
            Link::Ether(link) => link.lane.qpair.has_tx(now),
        }
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
        match self {
            Link::Tcp(link) => link.receive(requests, rx, limit),
            Link::Ether(_) => Ok((Heard::default(), None)), // the reactor's ports do
        }
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
        match self {
            Link::Tcp(link) => link.parse(requests, shared, rest, batch),
            Link::Ether(_) => Ok(None),
        }
    }

    /// The turn is over: rings what the policy lets go.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LinkError> {
        match self {
            Link::Tcp(link) => {
                let batcher = link.qpair.batcher();
                batcher.expire(shared.now);
                batcher.drained(shared.now);
                Ok(())
            }
            Link::Ether(link) => link.end_turn(shared.now, &mut shared.ports),
        }
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
        match self {
            Link::Tcp(link) => link.flush(requests, shared),
            Link::Ether(link) => {
                link.flush(shared.now, requests, &mut shared.ports);
                Ok(())
            }
        }
    }

    /// The socket is writable again: goes on with what it was too full for.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn resume(&mut self) -> Result<(), LinkError> {
        match self {
            Link::Tcp(link) => link.resume(),
            Link::Ether(_) => Ok(()),
        }
    }

    /// The connection is given up: nothing of it is to reach the target any more, as far as that can be.
    pub(crate) fn end(&mut self, shared: &mut Shared) {
        match self {
            Link::Tcp(_) => {} // its socket resets when it is closed
            Link::Ether(link) => link.lane.leave(shared.now, &mut shared.ports),
        }
    }

    /// Nothing is left to be done: says good-bye.
    pub(crate) fn part(&mut self, shared: &mut Shared) {
        match self {
            Link::Tcp(link) => link.part(),
            Link::Ether(link) => link.lane.leave(shared.now, &mut shared.ports),
        }
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> LaneStats {
        each!(self, link => link.stats())
    }
}
