//! What carries a lane: what every transport can do, without a virtual call.

use super::ether::Ether;
use super::tcp::Tcp;
use super::{LaneError, Shared};
use crate::stats::LaneStats;
use crate::target::control::Port;
use crate::target::slot::Slot;
use roadtrain_proto::policy::{Batcher, Class};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;

/// Our address where there is none.
const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The queue pair and the way that its octets take.
#[expect(
    clippy::large_enum_variant,
    reason = "a lane stays in its seat, and TCP is worth no indirection"
)]
pub(super) enum Transport {
    /// A TCP connection of its own.
    Tcp(Tcp),
    /// Frames, over the reactor's ports.
    Ether(Box<Ether>),
}

/// Calls the queue pair, whichever it is.
macro_rules! qpair {
    ($transport:expr, $qpair:ident => $call:expr) => {
        match $transport {
            Transport::Tcp(Tcp { qpair: $qpair, .. }) => $call,
            Transport::Ether(ether) => {
                let $qpair = &mut ether.qpair;
                $call
            }
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
            // Data comes with its command, or there is none.
            Transport::Ether(ether) => {
                ether.qpair.respond(now, slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), 0);
            }
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
    pub(super) fn slot_of(&mut self, cid: u16) -> Option<u16> {
        qpair!(self, qpair => qpair.slot_of(cid))
    }

    /// The slot of a command that was not answered, and whether its data is still to come.
    pub(super) fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        match self {
            Transport::Tcp(tcp) => tcp.qpair.unanswered(cid),
            // Commands come with their data.
            Transport::Ether(ether) => Some((ether.qpair.slot_of(cid)?, false)),
        }
    }

    /// The batching state.
    pub(super) fn batcher(&mut self) -> &mut Batcher {
        qpair!(self, qpair => qpair.batcher())
    }

    /// Whether data lies under a digest of the host's: it is kept only when the digest is right.
    pub(super) fn has_data_digest(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.qpair.digests().data,
            Transport::Ether(_) => false, // checked before it is placed
        }
    }

    /// Rings what is due, or what the policy lets go at the end of a turn.
    pub(super) fn expire(&mut self, now: Instant) {
        match self {
            Transport::Tcp(tcp) => tcp.qpair.batcher().expire(now),
            Transport::Ether(ether) => ether.qpair.expire(now),
        }
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
            Transport::Ether(ether) => {
                ether.flush(slots, shared);
                Ok(())
            }
        }
    }

    /// When [`Transport::expire`] is to be called.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        match self {
            Transport::Tcp(tcp) => tcp.qpair.batcher().deadline(),
            Transport::Ether(ether) => ether.deadline(),
        }
    }

    /// The host has disconnected and is to have the answer: `true` when the lane ends now.
    pub(super) fn ends_at_once(&mut self, now: Instant) -> bool {
        match self {
            Transport::Tcp(_) => true,
            Transport::Ether(ether) => {
                ether.end_soon(now);
                false
            }
        }
    }

    /// Why it ends now, if it does.
    pub(super) fn is_over(&self, now: Instant) -> Option<&'static str> {
        match self {
            Transport::Tcp(_) => None,
            Transport::Ether(ether) => ether.is_over(now),
        }
    }

    /// Whether it sends little at once, as latency-critical lanes have their turns in between.
    pub(super) fn set_yielding(&mut self, yielding: bool) {
        self.batcher().set_yielding(yielding);
    }

    /// Data of the command is delivered in whole blocks only.
    pub(super) fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        if let Transport::Tcp(tcp) = self {
            tcp.qpair.deliver_whole(slot, block_bytes);
        }
    }

    /// Counters.
    pub(super) fn stats(&self) -> LaneStats {
        match self {
            Transport::Tcp(tcp) => tcp.connection.stats.with_doorbells(tcp.qpair.doorbells()),
            Transport::Ether(ether) => ether.stats.with_doorbells(ether.qpair.doorbells()),
        }
    }

    /// Its own descriptor, if it has one.
    pub(super) fn fd(&self) -> Option<RawFd> {
        match self {
            Transport::Tcp(tcp) => Some(tcp.connection.stream.fd()),
            Transport::Ether(_) => None,
        }
    }

    /// Where its commands come in, as the control plane wants to know it.
    pub(super) fn port<'a>(&self, peer: &'a str, since: Instant) -> Port<'a> {
        match self {
            Transport::Tcp(tcp) => {
                Port { peer, local: tcp.local, socket: Some(tcp.connection.stream.fd()), since }
            }
            Transport::Ether(_) => Port { peer, local: NO_ADDRESS, socket: None, since },
        }
    }

    /// The peer has ended it, though what it sent before may be unread.
    pub(super) fn is_hung_up(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.connection.stream.is_hung_up(),
            Transport::Ether(_) => false, // the host says when it is, or is asked
        }
    }

    /// It sends nothing until its descriptor is writable.
    pub(super) fn is_blocked(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.connection.is_blocked(),
            Transport::Ether(_) => false,
        }
    }

    /// Nothing is received until a buffer is there.
    pub(super) fn is_stalled(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.is_stalled(),
            Transport::Ether(_) => false,
        }
    }

    /// Nothing is received until more has been sent.
    pub(super) fn is_deaf(&self) -> bool {
        match self {
            Transport::Tcp(tcp) => tcp.is_deaf(),
            Transport::Ether(_) => false, // a lane's frames come with those of others
        }
    }

    /// So many octets of a buffer are to be sent.
    pub(super) fn add_unsent(&mut self, bytes: u32) {
        if let Transport::Tcp(tcp) = self {
            tcp.add_unsent(bytes);
        }
    }

    /// Data has arrived that there is no buffer for.
    pub(super) fn stall(&mut self, now: Instant) {
        if let Transport::Tcp(tcp) = self {
            tcp.stall(now);
        }
    }

    /// A clock that stands still while the peer is not to blame for what does not happen.
    pub(super) fn patience(&self, now: Instant) -> Instant {
        match self {
            Transport::Tcp(tcp) => tcp.patience(now),
            Transport::Ether(_) => now,
        }
    }

    /// It is over; what was sent still reaches the peer.
    pub(super) fn hang_up(&mut self, slots: &mut [Slot], shared: &mut Shared) {
        match self {
            Transport::Tcp(tcp) => tcp.connection.hang_up(),
            Transport::Ether(ether) => ether.hang_up(slots, shared),
        }
    }

    /// Nothing that was sent is to reach the peer any more.
    pub(super) fn reset_on_close(&self) {
        if let Transport::Tcp(tcp) = self {
            tcp.connection.stream.reset_on_close();
        }
    }
}
