//! Why a host cannot work with a target, and what to do about it.

use super::address::Address;
use super::link::LinkError;
use roadtrain_wire::status::Status;
use std::io;
use thiserror::Error;

/// A failure of the control plane.
#[derive(Debug, Error)]
pub enum HostError {
    /// No connection.
    #[error("cannot reach {address}: {source}{hint}", hint = unreachable_hint(address, source))]
    Unreachable {
        /// Where to.
        address: Address,
        /// Why.
        source: LinkError,
    },
    /// The target refused Connect.
    #[error("{address} refuses {what}: {status}{hint}")]
    Refused {
        /// By whom.
        address: Address,
        /// What was asked for.
        what: String,
        /// Its answer.
        status: Status,
        /// What may help.
        hint: &'static str,
    },
    /// An admin command failed.
    #[error("{what} failed: {status}")]
    Command {
        /// Which.
        what: &'static str,
        /// How.
        status: Status,
    },
    /// The connection was lost meanwhile.
    #[error("{what}: {source}")]
    Lost {
        /// During what.
        what: &'static str,
        /// Why.
        source: LinkError,
    },
    /// The controller does not become ready, or says things that make no sense.
    #[error("{0}")]
    Controller(String),
    /// This machine has no resources left.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl HostError {
    /// Whether the target is only busy: it may accept the same later.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let HostError::Refused { status, .. } = self else { return false };
        status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.is_dnr()
    }
}

/// What may help when nobody is there.
fn unreachable_hint(address: &Address, error: &LinkError) -> &'static str {
    match (address, error) {
        (_, LinkError::Port { .. }) => "",
        (_, LinkError::Name(_)) => " (is it spelled right, and does `getent ahosts` find it?)",
        (Address::Tcp(_) | Address::Name(_), _) => {
            " (is the target running, and is this its port?)"
        }
        (Address::Ether(_), _) => {
            " (is the target running, and are these interfaces connected to it?)"
        }
    }
}

/// What may help when Connect is refused.
pub(super) fn connect_hint(status: Status) -> &'static str {
    if status.is(Status::CONNECT_INVALID_HOST) {
        "; the target does not allow this host NQN: add it there, or say another with --hostnqn"
    } else if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        "; is the subsystem NQN right? `roadtrain discover` lists those of a target"
    } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        "; it is still ending what this host had asked before, or has no controller left"
    } else if status.is(Status::AUTHENTICATION_REQUIRED) {
        "; it wants authentication, which this host does not do yet"
    } else {
        ""
    }
}
