//! Errors of a host's control plane, with hints.

use super::address::TargetAddress;
use super::config::HostConfig;
use super::link::LinkError;
use roadtrain_host_proto::procedure::ProcedureFailure;
use roadtrain_proto::security::dhchap;
use roadtrain_wire::status::Status;
use std::io;
use thiserror::Error;

/// Failure of the control plane.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "fields are what the message names")]
pub enum HostControlError {
    /// The target cannot be connected.
    #[error("cannot reach {address}: {source}{hint}", hint = unreachable_hint(address, source))]
    Unreachable { address: TargetAddress, source: LinkError },
    /// The target refused Connect.
    #[error("{address} refuses {what}: {status}{hint}")]
    Refused { address: TargetAddress, what: String, status: Status, hint: &'static str },
    /// Authentication failed.
    #[error("{address}: {error}")]
    Authentication { address: TargetAddress, error: dhchap::AuthHostError },
    /// An admin command failed.
    #[error("{what} failed: {status}")]
    Command { what: &'static str, status: Status },
    /// The connection was lost during the operation.
    #[error("{what}: {source}{hint}", hint = lost_hint(what, source))]
    Lost { what: &'static str, source: LinkError },
    /// The controller does not become ready, or its data is invalid.
    #[error("{0}")]
    Controller(String),
    /// The system has no resources left.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl HostControlError {
    /// Creates the error of a failure with the controller of `config`.
    pub(super) fn new(config: &HostConfig, failure: ProcedureFailure<LinkError>) -> Self {
        match failure {
            ProcedureFailure::Unreachable(LinkError::Refused(status)) => {
                refused(config, format!("a lane to {}", config.subsystem_nqn), status)
            }
            ProcedureFailure::Unreachable(source) => {
                HostControlError::Unreachable { address: config.address.clone(), source }
            }
            ProcedureFailure::Lost { what, source } => HostControlError::Lost { what, source },
            ProcedureFailure::Silent { what } => {
                let source = io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
                HostControlError::Lost { what, source: source.into() }
            }
            ProcedureFailure::Refused { qid, status } => {
                let queue = if qid == 0 { "admin queue" } else { "I/O queue" };
                refused(
                    config,
                    format!("Connect of the {queue} to {}", config.subsystem_nqn),
                    status,
                )
            }
            ProcedureFailure::Authentication { error, .. } => {
                HostControlError::Authentication { address: config.address.clone(), error }
            }
            ProcedureFailure::Command { what, status } => {
                HostControlError::Command { what, status }
            }
            ProcedureFailure::Controller(text) => HostControlError::Controller(text),
        }
    }

    /// True if the target is only busy: it may accept the same later.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let HostControlError::Refused { status, .. } = self else { return false };
        status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.is_dnr()
    }
}

fn refused(config: &HostConfig, what: String, status: Status) -> HostControlError {
    let address = config.address.clone();
    HostControlError::Refused { address, what, status, hint: connect_hint(status) }
}

/// Returns a hint for a connection that the target has ended. A target that refuses a host may close the connection
/// before its refusal is sent.
fn lost_hint(what: &str, error: &LinkError) -> &'static str {
    let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    let is_closed = match error {
        LinkError::Closed => true,
        LinkError::Io(error) => is_reset(error),
        _ => false,
    };
    if is_closed && what.starts_with("Authentication") {
        " while this host authenticated; the usual cause is a key that differs: do --dhchap-secret and the \
         target's key for this host NQN agree?"
    } else {
        ""
    }
}

/// Returns a hint for an unreachable target.
fn unreachable_hint(address: &TargetAddress, error: &LinkError) -> &'static str {
    match (address, error) {
        (_, LinkError::Port { .. } | LinkError::PlainClosed | LinkError::TlsClosed) => "",
        (_, LinkError::Tls(error)) if error.is_refusal() => {
            "; the target refuses this host's key: is it the one that the target has for this host NQN and \
             subsystem NQN?"
        }
        (_, LinkError::Tls(_)) => "",
        (_, LinkError::Name(_)) => " (does `getent ahosts` find it? An interface needs -t ether)",
        (TargetAddress::Tcp(_) | TargetAddress::Name(_), _) => {
            " (is the target running, and is this its port?)"
        }
        (TargetAddress::Ether(_), _) => {
            " (is the target running, and are these interfaces connected to it?)"
        }
    }
}

/// Returns a hint for a refused Connect.
fn connect_hint(status: Status) -> &'static str {
    if status.is(Status::CONNECT_INVALID_HOST) {
        "; the target does not allow this host NQN: add it there, or say another with --hostnqn; \
         if it has a TLS key for this host, use --tls"
    } else if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        "; is the subsystem NQN right? `roadtrain discover` lists those of a target"
    } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        "; it is still ending earlier commands of this host, or has no controller left"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_while_a_host_authenticates_names_the_usual_cause() {
        let lost = |what, source| HostControlError::Lost { what, source }.to_string();
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset).into();
        for source in [LinkError::Closed, reset()] {
            let said = lost("Authentication Receive", source);
            assert!(
                said.contains("while this host authenticated; the usual cause is a key"),
                "{said}"
            );
        }
        assert!(!lost("Identify", LinkError::Closed).contains("key"));
        assert!(!lost("Authentication Send", LinkError::Silent).contains("key"));
    }
}
