//! What a lane is connected by: a queue pair and what carries it, of whichever transport.

mod tcp;

pub(crate) use tcp::TcpLink;

use super::flights::Flights;
use super::lane::Shared;
use crate::connection::Heard;
use crate::stats::LaneStats;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::host::qpair::Data;
use roadtrain_proto::policy::{Batcher, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use std::io;
use std::os::fd::RawFd;
use thiserror::Error;

/// Why a connection is over.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The peer closed it.
    #[error("connection closed by the target")]
    Closed,
    /// The protocol was broken.
    #[error(transparent)]
    Qpair(#[from] QpairError),
}

/// A connected, ready queue pair.
pub(crate) enum Link {
    /// Over a TCP connection of its own.
    Tcp(TcpLink),
}

/// Calls the transport's: no dynamic dispatch on the fast path.
macro_rules! each {
    ($link:expr, $l:ident => $call:expr) => {
        match $link {
            Link::Tcp($l) => $call,
        }
    };
}

impl Link {
    /// A socket of its own, to be watched.
    pub(crate) fn fd(&self) -> Option<RawFd> {
        match self {
            Link::Tcp(link) => Some(link.fd()),
        }
    }

    /// Whether it takes nothing more to send now; its socket tells when that is over.
    pub(crate) fn is_blocked(&self) -> bool {
        each!(self, link => link.is_blocked())
    }

    /// Commands that may be submitted now.
    pub(crate) fn room(&self) -> u32 {
        each!(self, link => link.qpair.room())
    }

    /// Commands submitted and not completed.
    pub(crate) fn in_flight(&self) -> u32 {
        each!(self, link => link.qpair.in_flight())
    }

    /// Queues a command: its slot. `None` when the queue is full.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: Data,
        urgency: Urgency,
    ) -> Option<u16> {
        each!(self, link => link.qpair.submit(now, sqe, data, urgency))
    }

    /// When to send: doorbells and their timers.
    pub(crate) fn batcher(&mut self) -> &mut Batcher {
        each!(self, link => link.qpair.batcher())
    }

    /// When [`Link::end_turn`] is due at the latest.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        match self {
            Link::Tcp(link) => link.qpair.batcher().deadline(),
        }
    }

    /// Whether something released waits, and may leave.
    pub(crate) fn is_due(&self) -> bool {
        each!(self, link => link.is_due())
    }

    /// One receive; [`Link::parse`] handles what it brought.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn receive(
        &mut self,
        flights: &mut Flights,
        shared: &mut Shared,
        limit: usize,
    ) -> Result<Heard, LinkError> {
        each!(self, link => link.receive(flights, shared, limit))
    }

    /// Handles what was received until `batch` commands have ended or the input is used up; `true` when
    /// some is left.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn parse(
        &mut self,
        flights: &mut Flights,
        shared: &mut Shared,
        batch: usize,
    ) -> Result<bool, LinkError> {
        each!(self, link => link.parse(flights, shared, batch))
    }

    /// The turn is over: rings what the policy lets go.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        let batcher = self.batcher();
        batcher.expire(now);
        batcher.drained(now);
    }

    /// Sends what doorbells have released.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn flush(
        &mut self,
        flights: &Flights,
        shared: &mut Shared,
    ) -> Result<(), LinkError> {
        each!(self, link => link.flush(flights, shared))
    }

    /// The socket is writable again: goes on with what it was too full for.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn resume(&mut self) -> Result<(), LinkError> {
        each!(self, link => link.resume())
    }

    /// The connection is over: nothing of it reaches the target any more.
    pub(crate) fn end(&mut self) {
        each!(self, link => link.end());
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> LaneStats {
        each!(self, link => link.stats())
    }
}
