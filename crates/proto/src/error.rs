//! Errors by blame.

use roadtrain_wire::pdu::{Fes, FieldError};
use roadtrain_wire::status::Status;
use thiserror::Error;

/// The peer broke the protocol: this end sends a TermReq PDU and closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("peer misbehaved: {what} ({fes:?}, {fei:#x})")]
pub struct TermReqError {
    /// Fatal error status for the TermReq.
    pub fes: Fes,
    /// Fatal error information: field offset or digest.
    pub fei: u32,
    /// Description for the log.
    pub what: &'static str,
}

impl TermReqError {
    /// A wrong header field at byte `offset`.
    #[must_use]
    pub const fn field(offset: u32, what: &'static str) -> Self {
        TermReqError { fes: Fes::InvalidPduHeaderField, fei: offset, what }
    }

    /// Any other fatal error.
    #[must_use]
    pub const fn new(fes: Fes, what: &'static str) -> Self {
        TermReqError { fes, fei: 0, what }
    }
}

impl From<FieldError> for TermReqError {
    fn from(e: FieldError) -> Self {
        TermReqError::field(e.offset, "PDU common header")
    }
}

/// Reason why a queue pair ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QpairError {
    /// The peer broke the protocol.
    #[error(transparent)]
    Peer(#[from] TermReqError),
    /// The peer ended the connection with a TermReq: it blames this end.
    #[error("peer ended the connection: fatal error status {fes:#x}, information {fei:#x}")]
    Terminated {
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
}

/// A failed command: completed with an NVMe status, the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{status}")]
pub struct CommandError {
    /// Status of the completion, Do Not Retry included.
    pub status: Status,
    /// DW0 of the completion (Connect returns the offset of the wrong parameter there).
    pub result: u32,
    /// Byte of the command at fault, for the error log; `None` when no field in particular is wrong.
    pub byte: Option<u8>,
}

impl CommandError {
    /// `status` with Do Not Retry: the same command would fail again.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        CommandError { status: status.dnr(), result: 0, byte: None }
    }

    /// `status` with Do Not Retry, for the field at `byte` of the command.
    #[must_use]
    pub const fn at(status: Status, byte: u8) -> Self {
        CommandError { status: status.dnr(), result: 0, byte: Some(byte) }
    }

    /// Invalid Field in Command, for the field at `byte`.
    #[must_use]
    pub const fn field(byte: u8) -> Self {
        CommandError::at(Status::INVALID_FIELD, byte)
    }
}
