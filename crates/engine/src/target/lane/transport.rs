//! What carries a lane: what every transport can do, without a virtual call.

use super::tcp::Tcp;
use super::{LaneError, Shared};
use crate::stats::LaneStats;
use crate::target::control::Port;
use crate::target::slot::Slot;
use roadtrain_proto::policy::{Batcher, Class};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::os::fd::RawFd;

/// The queue pair and the way that its octets take.
pub(super) enum Transport {
    /// A TCP connection of its own.
    Tcp(Tcp),
}

/// Calls the queue pair, whichever it is.
macro_rules! qpair {
    ($transport:expr, $qpair:ident => $call:expr) => {
        match $transport {
            Transport::Tcp(Tcp { qpair: $qpair, .. }) => $call,
        }
    };
}

impl Transport {
    /// Answers a command that returns no data.
    pub(super) fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        qpair!(self, qpair => qpair.respond(now, slot, status, result));
    }

    /// Answers a command with `bytes` of the slot's data.
    pub(super) fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        qpair!(self, qpair => qpair.respond_with_data(now, slot, bytes, result));
    }

    /// Asks the host for the command's data.
    pub(super) fn request_data(&mut self, now: Instant, slot: u16, bytes: u32) {
        match self {
            Transport::Tcp(tcp) => tcp.qpair.request_data(now, slot, bytes),
        }
    }

    /// Class of the command's namespace.
    pub(super) fn set_class(&mut self, slot: u16, class: Class) {
        qpair!(self, qpair => qpair.set_class(slot, class));
    }

    /// Connect succeeded.
    pub(super) fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class) {
        qpair!(self, qpair => qpair.set_connected(qid, entries, flow, class));
    }

    /// So many commands are in a backend that takes its time.
    pub(super) fn set_in_backend(&mut self, commands: u32) {
        qpair!(self, qpair => qpair.set_in_backend(commands));
    }

    /// The slot of a command in execution.
    pub(super) fn slot_of(&self, cid: u16) -> Option<u16> {
        qpair!(self, qpair => qpair.slot_of(cid))
    }

    /// The batching state.
    pub(super) fn batcher(&mut self) -> &mut Batcher {
        qpair!(self, qpair => qpair.batcher())
    }

    /// Whether data lies under a digest of the host's: it is kept only when the digest is right.
    pub(super) fn has_data_digest(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.qpair.digests().data,
        }
    }

    /// Rings what is due, or what the policy lets go at the end of a turn.
    pub(super) fn expire(&mut self, now: Instant) {
        self.batcher().expire(now);
        self.batcher().drained(now);
    }

    /// Sends what doorbells have released.
    pub(super) fn flush(
        &mut self,
        slots: &mut [Slot],
        shared: &mut Shared,
    ) -> Result<(), LaneError> {
        match self {
            Transport::Tcp(tcp) => tcp.flush(slots, shared),
        }
    }

    /// When [`Transport::expire`] is to be called.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.batcher().deadline()
    }

    /// Whether a latency-critical lane has its turns in between.
    pub(super) fn set_yielding(&mut self, yielding: bool) {
        match self {
            Transport::Tcp(tcp) => tcp.yielding = yielding,
        }
        self.batcher().set_yielding(yielding);
    }

    /// Counters.
    pub(super) fn stats(&self) -> LaneStats {
        match self {
            Transport::Tcp(tcp) => tcp.connection.stats.with_doorbells(tcp.qpair.doorbells()),
        }
    }

    /// Its own descriptor, if it has one.
    pub(super) fn fd(&self) -> Option<RawFd> {
        match self {
            Transport::Tcp(tcp) => Some(tcp.connection.fd()),
        }
    }

    /// Where its commands come in, as the control plane wants to know it.
    pub(super) fn port(&self) -> Port {
        match self {
            Transport::Tcp(tcp) => Port { local: tcp.local, socket: Some(tcp.connection.fd()) },
        }
    }

    /// The peer has ended it, though what it sent before may be unread.
    pub(super) fn is_hung_up(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.connection.is_hung_up(),
        }
    }

    /// It sends nothing until its descriptor is writable.
    pub(super) fn is_blocked(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.connection.is_blocked(),
        }
    }

    /// Nothing is received until a buffer is there.
    pub(super) fn is_stalled(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.is_stalled(),
        }
    }

    /// Data has arrived that there is no buffer for.
    pub(super) fn stall(&mut self, now: Instant) {
        match self {
            Transport::Tcp(tcp) => tcp.stall(now),
        }
    }

    /// A clock that stands still while the peer is not to blame for what does not happen.
    pub(super) fn patience(&self, now: Instant) -> Instant {
        match self {
            Transport::Tcp(tcp) => tcp.patience(now),
        }
    }

    /// It is over; what was sent still reaches the peer.
    pub(super) fn hang_up(&mut self) {
        match self {
            Transport::Tcp(tcp) => tcp.connection.hang_up(),
        }
    }

    /// Nothing that was sent is to reach the peer any more.
    pub(super) fn reset_on_close(&self) {
        match self {
            Transport::Tcp(tcp) => tcp.connection.reset_on_close(),
        }
    }
}
