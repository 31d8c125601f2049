//! What carries a lane: what every transport can do, without a virtual call.

use super::execution::{Execution, Payload};
use super::tcp::Tcp;
use super::{LaneError, Shared};
use crate::stats::LaneStats;
use crate::target::control::Port;
use roadtrain_proto::policy::{Batcher, Class};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;

/// Our address where there is none.
const NO_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The queue pair and the way that its octets take.
#[allow(
    clippy::large_enum_variant,
    reason = "a lane stays in its seat, and TCP is worth no indirection"
)]
pub(super) enum Transport {
    /// A TCP connection of its own.
    Tcp(Tcp),
    /// Frames, over the reactor's ports.
    #[cfg(feature = "ether")]
    Ether(Box<super::ether::Ether>),
}

/// Calls the transport's.
macro_rules! each {
    ($transport:expr, $t:ident => $call:expr) => {
        match $transport {
            Transport::Tcp($t) => $call,
            #[cfg(feature = "ether")]
            Transport::Ether($t) => $call,
        }
    };
}

/// What every transport does for a lane: see the functions of [`Transport`]. What a transport has nothing of is left
/// out: it is what is so for a transport whose lanes share ports.
pub(super) trait Carry {
    fn request_data(&mut self, now: Instant, slot: u16, bytes: u32);
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)>;
    fn expire(&mut self, now: Instant);
    fn flush(&mut self, execution: &mut Execution, shared: &mut Shared) -> Result<(), LaneError>;
    fn deadline(&mut self) -> Option<Instant>;
    fn stats(&self) -> LaneStats;
    fn hang_up(&mut self, execution: &mut Execution, shared: &mut Shared);
    fn ends_at_once(&mut self, now: Instant) -> bool;

    fn tcp(&mut self) -> Option<&mut Tcp> {
        None
    }

    fn is_over(&self, _now: Instant) -> Option<&'static str> {
        None
    }

    fn place(&mut self, _now: Instant, payload: Payload<'_>) -> Payload<'static> {
        payload.without_frame()
    }

    fn port<'a>(&self, peer: &'a str, since: Instant) -> Port<'a> {
        Port { peer, local: NO_ADDRESS, socket: None, since }
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn has_data_digest(&self) -> bool {
        false // checked before data is placed
    }

    fn is_hung_up(&self) -> bool {
        false // the host says when it is, or is asked
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn is_deaf(&self) -> bool {
        false // a lane's frames come with those of others
    }

    fn deliver_whole(&mut self, _slot: u16, _block_bytes: u32) {}

    fn reset_on_close(&self) {}
}

impl Transport {
    /// Answers a command that returns no data.
    pub(super) fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        each!(self, transport => transport.qpair.respond(now, slot, status, result));
    }

    /// Answers a command with `bytes` of the slot's data.
    pub(super) fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        each!(self, transport => transport.qpair.respond_with_data(now, slot, bytes, result));
    }

    /// Asks the host for the command's data.
    pub(super) fn request_data(&mut self, now: Instant, slot: u16, bytes: u32) {
        each!(self, transport => transport.request_data(now, slot, bytes));
    }

    /// Class of the command's namespace.
    pub(super) fn set_class(&mut self, slot: u16, class: Class) {
        each!(self, transport => transport.qpair.set_class(slot, class));
    }

    /// Connect succeeded.
    pub(super) fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class) {
        each!(self, transport => transport.qpair.set_connected(qid, entries, flow, class));
    }

    /// So many commands are in a backend that takes its time.
    pub(super) fn set_in_backend(&mut self, commands: u32) {
        each!(self, transport => transport.qpair.set_in_backend(commands));
    }

    /// The slot of a command in execution.
    pub(super) fn slot_of(&mut self, cid: u16) -> Option<u16> {
        each!(self, transport => transport.qpair.slot_of(cid))
    }

    /// The slot of a command that was not answered, and whether its data is still to come.
    pub(super) fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        each!(self, transport => transport.unanswered(cid))
    }

    /// The batching state.
    pub(super) fn batcher(&mut self) -> &mut Batcher {
        each!(self, transport => transport.qpair.batcher())
    }

    /// Whether data lies under a digest of the host's: it is kept only when the digest is right.
    pub(super) fn has_data_digest(&self) -> bool {
        each!(self, transport => transport.has_data_digest())
    }

    /// Rings what is due, or what the policy lets go at the end of a turn.
    pub(super) fn expire(&mut self, now: Instant) {
        each!(self, transport => transport.expire(now));
        self.batcher().drained(now);
    }

    /// Sends what doorbells have released.
    pub(super) fn flush(
        &mut self,
        execution: &mut Execution,
        shared: &mut Shared,
    ) -> Result<(), LaneError> {
        each!(self, transport => transport.flush(execution, shared))
    }

    /// When [`Transport::expire`] is to be called.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        each!(self, transport => transport.deadline())
    }

    /// The host has disconnected and is to have the answer: `true` when the lane ends now.
    pub(super) fn ends_at_once(&mut self, now: Instant) -> bool {
        each!(self, transport => transport.ends_at_once(now))
    }

    /// Why it ends now, if it does.
    pub(super) fn is_over(&self, now: Instant) -> Option<&'static str> {
        each!(self, transport => transport.is_over(now))
    }

    /// Whether it sends little at once, as latency-critical lanes have their turns in between.
    pub(super) fn set_yielding(&mut self, yielding: bool) {
        self.batcher().set_yielding(yielding);
    }

    /// Data of the command is delivered in whole blocks only.
    pub(super) fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        each!(self, transport => transport.deliver_whole(slot, block_bytes));
    }

    /// The connection, if it is one.
    pub(super) fn tcp(&mut self) -> Option<&mut Tcp> {
        each!(self, transport => transport.tcp())
    }

    /// Data that is to stay longer than its frame goes where the host wants it.
    pub(super) fn place(&mut self, now: Instant, payload: Payload<'_>) -> Payload<'static> {
        each!(self, transport => transport.place(now, payload))
    }

    /// Counters.
    pub(super) fn stats(&self) -> LaneStats {
        each!(self, transport => transport.stats())
    }

    /// Its own descriptor, if it has one.
    pub(super) fn fd(&self) -> Option<RawFd> {
        each!(self, transport => transport.fd())
    }

    /// Where its commands come in, as the control plane wants to know it.
    pub(super) fn port<'a>(&self, peer: &'a str, since: Instant) -> Port<'a> {
        each!(self, transport => transport.port(peer, since))
    }

    /// The peer has ended it, though what it sent before may be unread.
    pub(super) fn is_hung_up(&self) -> bool {
        each!(self, transport => transport.is_hung_up())
    }

    /// It sends nothing until its descriptor is writable.
    pub(super) fn is_blocked(&self) -> bool {
        each!(self, transport => transport.is_blocked())
    }

    /// Nothing is received until more has been sent.
    pub(super) fn is_deaf(&self) -> bool {
        each!(self, transport => transport.is_deaf())
    }

    /// It is over; what was sent still reaches the peer.
    pub(super) fn hang_up(&mut self, execution: &mut Execution, shared: &mut Shared) {
        each!(self, transport => transport.hang_up(execution, shared));
    }

    /// Nothing that was sent is to reach the peer any more.
    pub(super) fn reset_on_close(&self) {
        each!(self, transport => transport.reset_on_close());
    }
}
