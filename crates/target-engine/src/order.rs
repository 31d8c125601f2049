//! What a reactor is told by other threads.

use super::ether::{Drops, Request};
use super::exclusion::Notice;
use super::listeners::ListenSocket;
use super::meters::LaneCells;
use super::range_locks::Grant;
use super::tasks::Owner;
use super::tickets::Ticket;
use roadtrain_proto::security::SecuredAs;
use roadtrain_reactor::metrics::FrameCount;
use roadtrain_reactor::recorded::OfReactor;
use roadtrain_reactor::stream::Stream;
use roadtrain_store::Completion;
use roadtrain_target_proto::stability::Wake;
use roadtrain_target_proto::{TargetEvent, TlsUse, TurnOf};
use roadtrain_wire::status::Status;
use std::any::Any;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// What other threads tell a reactor.
pub(super) enum Order {
    /// Take connections here, if this reactor does that.
    Listen(ListenSocket),
    /// Take none any more at this address.
    Unlisten(SocketAddr),
    /// Answer with the sockets that take connections.
    Sockets(SyncSender<Vec<TcpListener>>),
    /// Take no connections any more: another process does, at the same sockets.
    StopListening,
    /// Ask for TLS like this of what comes at this address.
    SetTls(SocketAddr, TlsUse),
    /// Serve this connection.
    Adopt(Box<Newcomer>),
    /// Go on with this lane of another reactor. It is a `Parcel`, which is made of parts that orders are part of.
    Arrive(Box<dyn Any + Send>),
    /// Your lane of that ticket has left, and so has what came for it before.
    Departed(u64),
    /// Something had happened in the control plane before the lane of that ticket came here.
    Passed(u64, TargetEvent),
    /// Nothing of before comes any more for the lane of that ticket.
    Settle(u64),
    /// End the connection that has this ticket: others need its room.
    Evict(u64),
    /// Somebody wants, asks for, or ends a lane over Ethernet that is, or is to be, this reactor's.
    Request(Request),
    /// Access to a namespace was taken away from some hosts: end what is executed of that, aborting it or waiting for it, then
    /// tell the control plane.
    Fence(TurnOf, bool),
    /// The control plane has ended a command about reservations, with its report.
    Reserved(Owner, Status, Arc<[u8]>),
    /// Something happened in the control plane; concerns the reactor that has the connection.
    Event(TargetEvent),
    /// The host is back: end its lanes whose connections it has ended, whatever it had sent over them.
    Sweep(Arc<str>),
    /// The host connects: does it still have its lanes over Ethernet?
    Ask(Arc<str>),
    /// Something of a host's lost connections is gone: Connects that waited for it may go on.
    Settled,
    /// A store has answered from another thread.
    Completed(Completion),
    /// A flush for which a command of this reactor waits.
    Flush(u32, Wake),
    /// An operation of this reactor that wants to be alone with a range is so far.
    Granted(u32, Grant),
    /// An operation is alone with a range, or not any more.
    Exclusion(Notice),
    /// Answer with the frames that were dropped, and with those that came and went at each of the reactor's ports.
    Frames(SyncSender<(Drops, Vec<FrameCount>)>),
    /// Answer with where the lanes are.
    Lanes(SyncSender<Vec<LanePlace>>),
    /// Answer with what is recorded.
    Recorded(SyncSender<OfReactor<LaneCells>>),
    /// Answer with how many lanes have come from other reactors.
    Moves(SyncSender<u64>),
    /// Answer with what is held.
    Usage(SyncSender<Usage>),
    /// Answer, as a sign of life.
    Beat(SyncSender<()>),
    /// As a test wants it: move all lanes of I/O to that reactor.
    #[cfg(test)]
    Move(usize),
    /// What a test does to the reactor.
    #[cfg(test)]
    Call(Box<dyn FnOnce() + Send>),
    /// The target ends soon: nobody waits for an emulated SSD any more.
    Depart,
    /// End every lane, then the reactor.
    Stop,
}

/// A connection that has come.
pub(super) struct Newcomer {
    pub(super) stream: Stream,
    /// With whose key it is secured.
    pub(super) secured_as: Option<SecuredAs>,
    /// It could be secured, and need not.
    pub(super) may_be_plain: bool,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) ticket: Ticket,
}

/// A lane, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlace {
    /// Its controller.
    pub cntlid: u16,
    /// Its queue; 0 is the admin queue.
    pub qid: u16,
    /// The core that its reactor is pinned to.
    pub core: Option<usize>,
    /// The core that processes its packets, as far as is known.
    pub packets_core: Option<usize>,
    /// The network card's receive queue that they come by: the kernel's number of its NAPI instance.
    pub napi_id: Option<u32>,
    /// How often it has moved from one reactor to another.
    pub moves: u32,
    /// Commands that were answered.
    pub requests: u64,
}

/// What a target holds at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Connections, with those whose commands are still in a store.
    pub connections: usize,
    /// Commands in the stores.
    pub store_commands: usize,
    /// I/O commands that hosts wait for.
    pub io_commands: usize,
    /// Buffer memory in use, in octets.
    pub buffer_bytes: usize,
    /// Buffer memory that was in use since reactors were last idle, in octets.
    pub kept_bytes: usize,
    /// Buffers in use besides the budget: those that end a stall.
    pub reserved_buffers: usize,
}
