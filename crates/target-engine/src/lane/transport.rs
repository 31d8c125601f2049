//! What carries a lane: what every transport can do, without a virtual call.

pub(super) mod ether;
pub(super) mod tcp;

use super::data::{Execution, Payload};
use super::meter::Meter;
use super::{LaneError, Shared};
use roadtrain_proto::policy::{Batcher, Class};
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::Batching;
use roadtrain_reactor::transports;
use roadtrain_target_proto::service::Port;
use roadtrain_wire::status::Status;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;
use tcp::Tcp;

/// Our address where there is none.
const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The queue pair and the way that its octets take.
#[allow(
    clippy::large_enum_variant,
    reason = "a lane stays in its place, and TCP is worth no indirection"
)]
pub(super) enum Transport {
    /// A TCP connection of its own.
    Tcp(Tcp),
    /// Frames, over the reactor's ports.
    Ether(Box<ether::Ether>),
}

/// A lane's commands, and where they are counted.
pub(super) type Commands<'a> = (&'a mut Execution, &'a mut Meter);

/// Calls the transport's.
macro_rules! each {
    ($transport:expr, $t:ident => $call:expr) => {
        match $transport {
            Transport::Tcp($t) => $call,
            Transport::Ether($t) => $call,
        }
    };
}

transports! {
    /// What every transport does for a lane. What is provided is so for one whose lanes share ports.
    trait Carry for Transport;
    required {
        /// Asks the host for the command's data.
        fn request_data(self: &mut Self, now: Instant, slot: u16, bytes: u32);
        /// The slot of a command that was not answered, and whether its data is still to come.
        fn unanswered(self: &mut Self, cid: u16) -> Option<(u16, bool)>;
        /// Whether data of the command in a slot is still to come.
        fn awaits_data(self: &mut Self, slot: u16) -> bool;
        /// Rings what is due.
        fn ring_due(self: &mut Self, now: Instant);
        /// Sends what doorbells have released.
        fn flush(self: &mut Self, commands: Commands<'_>, shared: &mut Shared) -> Result<(), LaneError>;
        /// When [`Transport::expire`] is to be called.
        fn deadline(self: &mut Self) -> Option<Instant>;
        /// Counters.
        fn batching(self: &Self) -> Batching;
        /// It is over; what was sent still reaches the peer.
        fn hang_up(self: &mut Self, commands: Commands<'_>, shared: &mut Shared);
        /// The host has disconnected and is to have the answer: `true` when the lane ends now.
        fn ends_at_once(self: &mut Self, now: Instant) -> bool;
    }
    provided {
        /// The connection, if it is one.
        fn tcp(self: &mut Self) -> Option<&mut Tcp> {
            None
        }
        /// Why it ends now, if it does.
        fn is_over(self: &Self, now: Instant) -> Option<&'static str> {
            None
        }
        /// Data that is to stay longer than its frame goes where the host wants it.
        fn place(self: &mut Self, now: Instant, payload: Payload<'_>) -> Payload<'static> {
            payload.without_frame()
        }
        /// Properties of the connection that its commands come over.
        fn port(self: &Self, since: Instant) -> Port<RawFd> {
            Port { local: NO_ADDRESS, connection: None, since }
        }
        /// Its own descriptor, if it has one.
        fn fd(self: &Self) -> Option<RawFd> {
            None
        }
        /// Whether data lies under a digest of the host's: it is kept only when the digest is right.
        fn has_data_digest(self: &Self) -> bool {
            false // checked before data is placed
        }
        /// The peer has ended it, though what it sent before may be unread.
        fn is_hung_up(self: &Self) -> bool {
            false // the host says when it is, or is asked
        }
        /// It sends nothing until its descriptor is writable.
        fn is_blocked(self: &Self) -> bool {
            false
        }
        /// Nothing is received until more has been sent.
        fn is_deaf(self: &Self) -> bool {
            false // a lane's frames come with those of others
        }
        /// Data of the command is delivered in whole blocks only.
        fn deliver_whole(self: &mut Self, slot: u16, block_bytes: u32) {}
        /// From now on its frames may be sealed with this.
        fn seal(self: &mut Self, secret: &FrameSecret) -> Result<(), LaneError> {
            Ok(()) // there are none
        }
        /// Nothing that was sent is to reach the peer any more.
        fn reset_on_close(self: &Self) {}
    }
}

impl Transport {
    /// What it is called among the counters.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Transport::Tcp(tcp) if tcp.stream().is_plain() => "tcp",
            Transport::Tcp(_) => "tls",
            Transport::Ether(_) => "ether",
        }
    }

    /// Answers a command that returns no data.
    pub(super) fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        if let Transport::Ether(ether) = self {
            ether.note_answer(now, slot);
        }
        each!(self, transport => transport.qpair.respond(now, slot, status, result));
    }

    /// Answers a command with `bytes` of the slot's data.
    pub(super) fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        if let Transport::Ether(ether) = self {
            ether.note_answer(now, slot);
        }
        each!(self, transport => transport.qpair.respond_with_data(now, slot, bytes, result));
    }

    /// Class of the command's namespace.
    pub(super) fn set_class(&mut self, slot: u16, class: Class) {
        each!(self, transport => transport.qpair.set_class(slot, class));
    }

    /// Connect succeeded.
    pub(super) fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class) {
        each!(self, transport => transport.qpair.set_connected(qid, entries, flow, class));
    }

    /// So many commands are in a store that takes its time.
    pub(super) fn set_in_store(&mut self, commands: u32) {
        each!(self, transport => transport.qpair.set_in_store(commands));
    }

    /// Commands that the host waits for.
    pub(super) fn in_flight(&self) -> u32 {
        each!(self, transport => transport.qpair.in_flight())
    }

    /// The slot of a command in execution.
    pub(super) fn slot_of(&mut self, cid: u16) -> Option<u16> {
        each!(self, transport => transport.qpair.slot_of(cid))
    }

    /// The slot of an outstanding Asynchronous Event Request.
    pub(super) fn event_request_of(&mut self, cid: u16) -> Option<u16> {
        each!(self, transport => transport.qpair.event_request_of(cid))
    }

    /// The batching state.
    pub(super) fn batcher(&mut self) -> &mut Batcher {
        each!(self, transport => transport.qpair.batcher())
    }

    /// Rings what is due, or what the policy lets go at the end of a turn.
    pub(super) fn expire(&mut self, now: Instant) {
        self.ring_due(now);
        self.batcher().drained(now);
    }

    /// Whether it sends little at once, as latency-critical lanes have their turns in between.
    pub(super) fn set_yielding(&mut self, yielding: bool) {
        self.batcher().set_yielding(yielding);
    }
}
