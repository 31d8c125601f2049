//! Transport of a lane: the operations of every transport, without a virtual call.

pub(super) mod ether;
pub(super) mod tcp;

use super::data::{LaneExecution, LanePayload};
use super::meter::LaneMeter;
use super::{LaneError, LaneResources};
use roadtrain_proto::policy::{Batcher, Class};
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::Batching;
use roadtrain_reactor::transports;
use roadtrain_target_proto::service::CommandOrigin;
use roadtrain_wire::status::Status;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;
use tcp::Tcp;

/// Local address of a lane without a connection.
const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Queue pair and the transport of its bytes.
#[allow(
    clippy::large_enum_variant,
    reason = "a lane stays in its place, and TCP is worth no indirection"
)]
pub(super) enum LaneTransport {
    /// TCP connection of its own.
    Tcp(Tcp),
    /// Frames over the ports of the reactor.
    Ether(Box<ether::EtherTransport>),
}

/// Commands and counters of a lane.
pub(super) type LaneCommands<'a> = (&'a mut LaneExecution, &'a mut LaneMeter);

/// Calls the method of the transport.
macro_rules! each {
    ($transport:expr, $t:ident => $call:expr) => {
        match $transport {
            LaneTransport::Tcp($t) => $call,
            LaneTransport::Ether($t) => $call,
        }
    };
}

transports! {
    /// Operations that every transport provides for a lane. The defaults suit transports whose lanes share ports.
    trait Carry for LaneTransport;
    required {
        /// Requests the command's data from the host.
        fn request_data(self: &mut Self, now: Instant, slot: u16, bytes: u32);
        /// Returns the slot of a command without a completion, and whether its data is still to come.
        fn unanswered(self: &mut Self, cid: u16) -> Option<(u16, bool)>;
        /// True if data of the command in a slot is still to come.
        fn awaits_data(self: &mut Self, slot: u16) -> bool;
        /// Rings the doorbells that are due.
        fn ring_due(self: &mut Self, now: Instant);
        /// Sends the freights whose doorbells have rung.
        fn flush(self: &mut Self, commands: LaneCommands<'_>, shared: &mut LaneResources) -> Result<(), LaneError>;
        /// Returns the time at which [`LaneTransport::expire`] is due.
        fn deadline(self: &mut Self) -> Option<Instant>;
        /// Returns the counters.
        fn batching(self: &Self) -> Batching;
        /// Closes the sending direction; data that was sent still reaches the peer.
        fn hang_up(self: &mut Self, commands: LaneCommands<'_>, shared: &mut LaneResources);
        /// Begins the end of the lane after a disconnect by the host. Returns true if the lane ends now; otherwise it
        /// first waits until the host has the completion.
        fn ends_at_once(self: &mut Self, now: Instant) -> bool;
    }
    provided {
        /// Returns the TCP connection, if the lane has one.
        fn tcp(self: &mut Self) -> Option<&mut Tcp> {
            None
        }
        /// Returns the reason why the lane ends now, if it does.
        fn is_over(self: &Self, now: Instant) -> Option<&'static str> {
            None
        }
        /// Moves data that outlives its frame to the memory that the host has chosen.
        fn place(self: &mut Self, now: Instant, payload: LanePayload<'_>) -> LanePayload<'static> {
            payload.without_frame()
        }
        /// Returns properties of the connection that carries the commands.
        fn port(self: &Self, since: Instant) -> CommandOrigin<RawFd> {
            CommandOrigin { local: NO_ADDRESS, connection: None, since }
        }
        /// Returns the lane's own descriptor, if it has one.
        fn fd(self: &Self) -> Option<RawFd> {
            None
        }
        /// True if the host protects data by a digest: data is kept only if the digest is correct.
        fn has_data_digest(self: &Self) -> bool {
            false // checked before data is placed
        }
        /// True if the peer has closed the connection. Data that it sent before may be unread.
        fn is_hung_up(self: &Self) -> bool {
            false // the host reports that, or answers a probe
        }
        /// True if the lane sends nothing until its descriptor is writable.
        fn is_blocked(self: &Self) -> bool {
            false
        }
        /// True if the lane receives nothing until more has been sent.
        fn is_receive_paused(self: &Self) -> bool {
            false // a lane's frames come with those of others
        }
        /// Delivers the command's data only in whole blocks.
        fn deliver_whole(self: &mut Self, slot: u16, block_bytes: u32) {}
        /// Starts to seal frames with keys of this secret.
        fn seal(self: &mut Self, secret: &FrameSecret) -> Result<(), LaneError> {
            Ok(()) // the transport has no frames
        }
        /// Discards unsent data when the connection closes.
        fn reset_on_close(self: &Self) {}
    }
}

impl LaneTransport {
    /// Returns the name of the transport in counters.
    pub(super) fn name(&self) -> &'static str {
        match self {
            LaneTransport::Tcp(tcp) if tcp.stream().is_plain() => "tcp",
            LaneTransport::Tcp(_) => "tls",
            LaneTransport::Ether(_) => "ether",
        }
    }

    /// Completes a command that returns no data.
    pub(super) fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        if let LaneTransport::Ether(ether) = self {
            ether.note_answer(now, slot);
        }
        each!(self, transport => transport.qpair.respond(now, slot, status, result));
    }

    /// Completes a command with `bytes` of the slot's data.
    pub(super) fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        if let LaneTransport::Ether(ether) = self {
            ether.note_answer(now, slot);
        }
        each!(self, transport => transport.qpair.respond_with_data(now, slot, bytes, result));
    }

    /// Sets the class of the command's namespace.
    pub(super) fn set_class(&mut self, slot: u16, class: Class) {
        each!(self, transport => transport.qpair.set_class(slot, class));
    }

    /// Configures the queue pair after a successful Connect.
    pub(super) fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class) {
        each!(self, transport => transport.qpair.set_connected(qid, entries, flow, class));
    }

    /// Sets the number of commands in asynchronous stores.
    pub(super) fn set_in_store(&mut self, commands: u32) {
        each!(self, transport => transport.qpair.set_in_store(commands));
    }

    /// Returns the number of commands in flight.
    pub(super) fn in_flight(&self) -> u32 {
        each!(self, transport => transport.qpair.in_flight())
    }

    /// Returns the slot of a command in execution.
    pub(super) fn slot_of(&mut self, cid: u16) -> Option<u16> {
        each!(self, transport => transport.qpair.slot_of(cid))
    }

    /// Returns the slot of an outstanding Asynchronous Event Request.
    pub(super) fn event_request_of(&mut self, cid: u16) -> Option<u16> {
        each!(self, transport => transport.qpair.event_request_of(cid))
    }

    /// Returns the batching state.
    pub(super) fn batcher(&mut self) -> &mut Batcher {
        each!(self, transport => transport.qpair.batcher())
    }

    /// Rings the doorbells that are due or that the policy releases at the end of a turn.
    pub(super) fn expire(&mut self, now: Instant) {
        self.ring_due(now);
        self.batcher().drained(now);
    }

    /// Limits the size of sends, because latency-critical lanes get turns in between.
    pub(super) fn set_yielding(&mut self, yielding: bool) {
        self.batcher().set_yielding(yielding);
    }
}
