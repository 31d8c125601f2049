//! Context of a command that the control plane executes.

use super::config::TargetLimits;
use super::controller::TargetController;
use super::discovery::DiscoveryLogSource;
use super::namespace_request::NamespaceRequest;
use super::outcome::LbaStatusQuery;
use super::subsystem::TargetSubsystem;
use super::target_event::TargetEvent;
use roadtrain_proto::error::CommandError;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::identify::NSID_ALL;
use roadtrain_wire::sqe::{SGL_TRANSPORT, Sqe};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;

/// Byte offsets of a command's fields, for the error log.
pub(super) mod byte {
    pub(crate) const OPCODE: u8 = 0;
    pub(crate) const FLAGS: u8 = 1;
    pub(crate) const NSID: u8 = 4;
    pub(crate) const SGL: u8 = 24;
    pub(crate) const CDW10: u8 = 40;
    pub(crate) const CDW11: u8 = 44;
    pub(crate) const CDW12: u8 = 48;
    pub(crate) const CDW13: u8 = 52;
    pub(crate) const CDW14: u8 = 56;
}

/// Result of a successful command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandReply {
    Result(u64),
    Pending,
    Disconnected,
    /// The lane queries the block status from the store.
    QueryLbaStatus(LbaStatusQuery),
    /// Another controller of the host is to be dropped.
    CrossReset(ControllerInstance),
    /// New value of Reservation Persistence for the namespaces.
    Persist(bool),
    /// The owner of the configuration changes namespaces.
    ManageNamespaces(NamespaceRequest),
}

/// Returns the error of a command with an NSID that no namespace can have.
pub(super) fn bad_namespace() -> CommandError {
    CommandError::at(Status::INVALID_NAMESPACE, byte::NSID)
}

/// One command, with all state it may use.
pub(super) struct CommandContext<'a> {
    pub(super) now: Instant,
    pub(super) started: Instant,
    pub(super) limits: &'a TargetLimits,
    pub(super) origin: u128,
    pub(super) network: u128,
    pub(super) controller: &'a mut TargetController,
    /// `None` for discovery controllers.
    pub(super) subsystem: Option<&'a TargetSubsystem>,
    pub(super) discovery: DiscoveryLogSource<'a>,
    pub(super) outbox: &'a mut VecDeque<TargetEvent>,
    pub(super) qid: u16,
    pub(super) sqe: &'a Sqe,
    pub(super) data_in: &'a [u8],
}

impl CommandContext<'_> {
    /// True if the command names no namespace: NSID is 0 or FFFFFFFFh.
    pub(super) fn is_for_controller(&self) -> bool {
        matches!(self.sqe.nsid.get(), 0 | NSID_ALL)
    }

    /// Checks that the command's SGL takes exactly `length` bytes for the host.
    pub(super) fn check_data_out(&self, length: usize) -> Result<(), CommandError> {
        let sgl = &self.sqe.sgl;
        if sgl.kind != SGL_TRANSPORT {
            return Err(CommandError::at(Status::SGL_TYPE_INVALID, byte::SGL));
        }
        if sgl.length.get() as usize != length {
            return Err(CommandError::at(Status::DATA_SGL_LENGTH_INVALID, byte::SGL));
        }
        Ok(())
    }
}
