//! Requests of the control plane to the owner of the connections.

use super::namespace_request::NamespaceRequest;
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// A request to the owner of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// Complete an Abort, a Cross-Controller Reset, a Set Features or a change of namespaces on the controller's admin queue.
    Completion { cntlid: u16, cid: u16, status: Status, result: u64 },
    /// Complete an Asynchronous Event Request on the controller's admin queue, unless another command has its
    /// identifier by now.
    EventCompletion { cntlid: u16, cid: u16, status: Status, result: u64 },
    /// Close a queue's connection; the controller has dropped the queue.
    Close { cntlid: u16, qid: u16, reason: CloseReason },
    /// Abort an I/O command if possible. Call [`TargetControl::aborted`](super::TargetControl::aborted) after the command has
    /// completed.
    Abort { cntlid: u16, qid: u16, cid: u16, id: u32 },
    /// Execute nothing more. Call [`TargetControl::quiesced`](super::TargetControl::quiesced) once no command is in a store.
    Quiesce { cntlid: u16, qid: u16 },
    /// Save a namespace's reservations to stable storage, then call [`TargetControl::saved`](super::TargetControl::saved).
    Save { turn: TurnOf, image: Arc<[u8]> },
    /// A reservation has revoked access: end forbidden commands of lanes by aborting them or by waiting for them
    /// ([`CommandExecution::fence`](super::execution::CommandExecution::fence)). Then call [`TargetControl::fenced`](super::TargetControl::fenced).
    Fence { turn: TurnOf, aborts: bool },
    /// Complete a lane's reservation command ([`TargetControl::reserve`](super::TargetControl::reserve)), with its report.
    Reserved { token: u64, status: Status, report: Arc<[u8]> },
    /// Fetch the subsystem's [`SubsystemNamespaces`](super::SubsystemNamespaces) again.
    NamespacesChanged { nqn: Arc<str> },
    /// Change the namespaces of a subsystem as a host requests, then call
    /// [`TargetControl::namespace_request_done`](super::TargetControl::namespace_request_done). A refusal is a status, too.
    NamespaceRequest { id: u64, nqn: Arc<str>, request: NamespaceRequest },
}

/// A command's turn in the reservations of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnOf {
    pub nqn: Arc<str>,
    pub nsid: u32,
    /// Number of the turn in its namespace.
    pub number: u64,
}

/// Reason why a queue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// No traffic of the host for its keep-alive timeout.
    KeepAliveExpired,
    /// The host has reset the controller, which ends its I/O queues.
    ControllerReset,
    /// The connection of the admin queue was lost.
    AdminQueueLost,
    /// The subsystem is no longer exported.
    SubsystemRemoved,
    /// The host may no longer use the subsystem.
    HostNotAllowed,
    /// The host's key was removed.
    KeyRemoved,
    /// The host has to authenticate or to use TLS now, and has not.
    ProofRequired,
    /// The host has reset the controller by a Cross-Controller Reset.
    CrossControllerReset,
    /// The host has closed another connection of the controller, and connects again.
    ConnectionLost,
}

impl CloseReason {
    /// Returns its name in counters.
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

    /// True if the controller is alive, and waits for the queue's end.
    #[must_use]
    pub fn awaits_queue_end(self) -> bool {
        matches!(self, CloseReason::ControllerReset | CloseReason::ConnectionLost)
    }
}
