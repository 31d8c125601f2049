//! Errors by blame.

use roadtrain_wire::pdu::{Fes, FieldError};
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
