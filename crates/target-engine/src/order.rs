//! Messages to a reactor from other threads.

use super::ether::{Drops, LaneSetupRequest};
use super::exclusion::RangeExclusionNotice;
use super::listeners::ListenSocket;
use super::meters::LaneCells;
use super::range_locks::Grant;
use super::tasks::TaskOwner;
use super::tickets::ConnectionTicket;
use roadtrain_proto::security::SecuredAs;
use roadtrain_reactor::metrics::FrameCount;
use roadtrain_reactor::recorded::ReactorRecords;
use roadtrain_reactor::stream::ConnectionStream;
use roadtrain_store::StoreCompletion;
use roadtrain_system::guest::GuestConstructor;
use roadtrain_system::platform::mptcp::MptcpSubflow;
use roadtrain_target_proto::stability::Wake;
use roadtrain_target_proto::{TargetEvent, TlsUse, TurnOf};
use roadtrain_wire::status::Status;
use std::any::Any;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Message to a reactor.
pub(super) enum TargetReactorMessage {
    /// Accepts connections at this socket.
    Listen(ListenSocket),
    /// Closes the listener at this address.
    Unlisten(SocketAddr),
    /// Requests the listening sockets.
    Sockets(SyncSender<Vec<TcpListener>>),
    /// Accepts no more connections: another process does, at the same sockets.
    StopListening,
    /// Sets the use of TLS for connections to this address.
    SetTls(SocketAddr, TlsUse),
    /// Serves this connection.
    Adopt(Box<NewConnection>),
    /// Adopts this lane of another reactor. It is a `LaneInTransit`, boxed as `Any` because its type depends on this
    /// enum.
    Arrive(Box<dyn Any + Send>),
    /// Reports that the lane with that ticket has left, and so have all messages for it.
    Departed(u64),
    /// Event that the control plane published before the lane with that ticket arrived.
    Passed(u64, TargetEvent),
    /// Reports that no more earlier events come for the lane with that ticket.
    Settle(u64),
    /// Closes the connection with this ticket to free its slot.
    Evict(u64),
    /// Request for a lane over Ethernet that belongs, or shall belong, to this reactor.
    Request(LaneSetupRequest),
    /// Ends the commands of hosts that have lost access to a namespace: aborts them (`true`) or waits for them, then
    /// reports to the control plane.
    Fence(TurnOf, bool),
    /// Completes a reservation command, with its report.
    Reserved(TaskOwner, Status, Arc<[u8]>),
    /// Event of the control plane for the reactor that has the connection.
    Event(TargetEvent),
    /// Closes stale lanes: the host is back and has closed their connections. Unread data is discarded.
    CloseStale(Arc<str>),
    /// Probes a connecting host: does it still have its lanes over Ethernet?
    Probe(Arc<str>),
    /// Retries Connects that waited for the end of a host's lost connections.
    Settled,
    /// Completion of a store from another thread.
    Completed(StoreCompletion),
    /// Adds a guest: a reactor for stores over the network.
    Guest(GuestConstructor),
    /// Wakes a command of this reactor that waits for a flush.
    Flush(u32, Wake),
    /// Reports progress of an operation of this reactor that waits for an exclusive range.
    Granted(u32, Grant),
    /// Closes or opens a range for an exclusive operation.
    Exclusion(RangeExclusionNotice),
    /// Requests the counters of dropped frames, and of frames at each port of the reactor.
    Frames(SyncSender<(Drops, Vec<FrameCount>)>),
    /// Requests the places of the lanes.
    Lanes(SyncSender<Vec<LanePlace>>),
    /// Requests the records.
    Recorded(SyncSender<ReactorRecords<LaneCells>>),
    /// Requests the number of lanes that came from other reactors.
    Moves(SyncSender<u64>),
    /// Requests the resources in use.
    Usage(SyncSender<TargetUsage>),
    /// Requests a sign of life.
    Heartbeat(SyncSender<()>),
    /// Moves all I/O lanes to that reactor, for a test.
    #[cfg(test)]
    Move(usize),
    /// Calls a function of a test on the reactor's thread.
    #[cfg(test)]
    Call(Box<dyn FnOnce() + Send>),
    /// Prepares for the end of the target: emulated SSDs complete immediately.
    Depart,
    /// Ends every lane, then the reactor.
    Stop,
}

/// New connection without a queue.
pub(super) struct NewConnection {
    pub(super) stream: ConnectionStream,
    /// Host that the PSK of its TLS connection identifies.
    pub(super) secured_as: Option<SecuredAs>,
    /// True if TLS is possible but not required.
    pub(super) may_be_plain: bool,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) ticket: ConnectionTicket,
}

/// Lane and its placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanePlace {
    /// ID of the controller.
    pub cntlid: u16,
    /// ID of the queue; 0 is the admin queue.
    pub qid: u16,
    /// Core that the reactor is pinned to.
    pub core: Option<usize>,
    /// Core that processes the lane's packets, as far as known.
    pub packets_core: Option<usize>,
    /// Receive queue of the network card: the kernel's ID of its NAPI instance.
    pub napi_id: Option<u32>,
    /// Number of moves from one reactor to another.
    pub moves: u32,
    /// Number of completed commands.
    pub requests: u64,
    /// Subflows of its connection over MPTCP; empty over TCP and Ethernet.
    pub subflows: Vec<MptcpSubflow>,
}

/// Resources that a target uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TargetUsage {
    /// Number of connections, including ended ones with commands in a store.
    pub connections: usize,
    /// Number of commands in the stores.
    pub store_commands: usize,
    /// Number of I/O commands in flight.
    pub io_commands: usize,
    /// Buffer memory in use, in bytes.
    pub buffer_bytes: usize,
    /// Buffer memory used since the reactors were last idle, in bytes.
    pub kept_bytes: usize,
    /// Number of buffers beyond the budget, which end a stall.
    pub reserved_buffers: usize,
}
