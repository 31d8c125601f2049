//! Errors by blame.

use roadtrain_wire::pdu::{Fes, FieldError};
use roadtrain_wire::status::Status;
use thiserror::Error;

/// The peer broke the protocol: answered with a TermReq PDU, then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("peer misbehaved: {what} ({fes:?}, {fei:#x})")]
pub struct PeerMisbehaved {
    /// Fatal error status for the TermReq.
    pub fes: Fes,
    /// Fatal error information: field offset or digest.
    pub fei: u32,
    /// What was wrong, for the log.
    pub what: &'static str,
}

impl PeerMisbehaved {
    /// A header field at `offset` octets that is wrong.
    #[must_use]
    pub const fn field(offset: u32, what: &'static str) -> Self {
        PeerMisbehaved { fes: Fes::InvalidPduHeaderField, fei: offset, what }
    }

    /// Any other fatal error.
    #[must_use]
    pub const fn new(fes: Fes, what: &'static str) -> Self {
        PeerMisbehaved { fes, fei: 0, what }
    }
}

impl From<FieldError> for PeerMisbehaved {
    fn from(e: FieldError) -> Self {
        PeerMisbehaved::field(e.offset, "PDU common header")
    }
}

/// Why a queue pair cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QpairError {
    /// The peer broke the protocol.
    #[error(transparent)]
    Peer(#[from] PeerMisbehaved),
    /// The peer ended the connection with a TermReq: it blames us.
    #[error("peer ended the connection: fatal error status {fes:#x}, information {fei:#x}")]
    Terminated {
        /// Its fatal error status.
        fes: u16,
        /// Its fatal error information.
        fei: u32,
    },
}

/// A command that failed: answered with an NVMe status, the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{status}")]
pub struct CommandError {
    /// Status of the completion, Do Not Retry included.
    pub status: Status,
    /// DW0 of the completion (Connect says there which parameter is wrong).
    pub result: u32,
    /// Octet of the command at fault, for the error log; `None` when it is no field in particular.
    pub octet: Option<u8>,
}

impl CommandError {
    /// `status` with Do Not Retry: the same command would fail again.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        CommandError { status: status.dnr(), result: 0, octet: None }
    }

    /// The same, blaming the field at `octet` of the command.
    #[must_use]
    pub const fn at(status: Status, octet: u8) -> Self {
        CommandError { status: status.dnr(), result: 0, octet: Some(octet) }
    }

    /// Invalid Field in Command, blaming the field at `octet`.
    #[must_use]
    pub const fn field(octet: u8) -> Self {
        CommandError::at(Status::INVALID_FIELD, octet)
    }
}
