//! What the control plane wants of whoever owns the connections.

use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Work for whoever owns the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// Answer an Abort, a Cross-Controller Reset or a Set Features on the controller's admin queue.
    Completion { cntlid: u16, cid: u16, status: Status, result: u64 },
    /// Answer an Asynchronous Event Request on the controller's admin queue, unless another command has its identifier
    /// by now.
    EventCompletion { cntlid: u16, cid: u16, status: Status, result: u64 },
    /// Close a queue's connection; the controller knows it no more.
    Close { cntlid: u16, qid: u16, reason: CloseReason },
    /// Abort an I/O command if it can be, then tell [`Target::aborted`](super::Target::aborted); the command ends before that is told.
    Abort { cntlid: u16, qid: u16, cid: u16, id: u32 },
    /// Execute nothing more, and tell [`Target::quiesced`](super::Target::quiesced) when no command is in a store any more.
    Quiesce { cntlid: u16, qid: u16 },
    /// Bring what a namespace is to know of reservations to stable storage, then tell [`Target::saved`](super::Target::saved).
    Save { turn: TurnOf, image: Arc<[u8]> },
    /// A reservation has taken access away: end what lanes execute of that ([`Execution::fence`](super::execution::Execution::fence)),
    /// aborting it or waiting for it, then tell [`Target::fenced`](super::Target::fenced).
    Fence { turn: TurnOf, aborts: bool },
    /// Answer a lane's command about reservations ([`Target::reserve`](super::Target::reserve)), with its report.
    Reserved { token: u64, status: Status, report: Arc<[u8]> },
    /// Fetch the subsystem's [`NamespaceTable`](super::NamespaceTable) again.
    NamespacesChanged { nqn: Arc<str> },
}

/// A command's turn with the reservations of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnOf {
    pub nqn: Arc<str>,
    pub nsid: u32,
    /// Which turn of the namespace it is.
    pub number: u64,
}

/// Why a queue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Nothing was heard from the host for its keep alive timeout.
    KeepAliveExpired,
    /// The host has reset the controller, which ends its I/O queues.
    ControllerReset,
    /// The connection of the admin queue was lost.
    AdminQueueLost,
    /// The subsystem is no longer exported.
    SubsystemRemoved,
    /// The host may no longer use the subsystem.
    HostNotAllowed,
    /// The host has no key any more.
    KeyRemoved,
    /// The host has to prove who it is by now, or to use TLS, and has not.
    ProofRequired,
    /// The host has had the controller reset by another one.
    CrossControllerReset,
    /// The host has ended another connection of the controller, and comes again.
    ConnectionLost,
}

impl CloseReason {
    /// A word for it, for counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CloseReason::KeepAliveExpired => "keep_alive",
            CloseReason::ControllerReset => "reset",
            CloseReason::AdminQueueLost => "admin_queue_lost",
            CloseReason::SubsystemRemoved => "subsystem_removed",
            CloseReason::HostNotAllowed => "host_not_allowed",
            CloseReason::KeyRemoved => "key_removed",
            CloseReason::ProofRequired => "proof_required",
            CloseReason::CrossControllerReset => "cross_reset",
            CloseReason::ConnectionLost => "connection_lost",
        }
    }

    /// Whether the controller lives, and waits until the queue has ended.
    #[must_use]
    pub fn gives_up(self) -> bool {
        matches!(self, CloseReason::ControllerReset | CloseReason::ConnectionLost)
    }
}
