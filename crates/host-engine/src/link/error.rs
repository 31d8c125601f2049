//! Reasons for the end of a connection to the target.

use roadtrain_proto::error::QpairError;
use roadtrain_wire::ether::setup::LeaveReason;
use roadtrain_wire::status::Status;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Reason for the end of a connection.
#[derive(Debug, Error)]
pub enum LinkError {
    /// Socket error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Closed by the peer.
    #[error("connection closed by the target")]
    Closed,
    /// TLS handshake failed.
    #[error("TLS handshake: {0}")]
    Tls(roadtrain_tls::TlsError),
    /// Closed by the target during the TLS handshake.
    #[error(
        "TLS handshake: the target closed the connection: it has no TLS, or no key for this host"
    )]
    TlsClosed,
    /// Closed by the target before the NVMe/TCP initialisation.
    #[error("the target closed the connection at once: it may require TLS (--tls)")]
    PlainClosed,
    /// Protocol violation.
    #[error(transparent)]
    Qpair(#[from] QpairError),
    /// No port at an interface.
    #[error("interface {interface}: {source}")]
    Port {
        /// Name of the interface.
        interface: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The target's name cannot be resolved.
    #[error(transparent)]
    Name(io::Error),
    /// None of the name's addresses can be connected.
    #[error("{0}")]
    Nowhere(String),
    /// No target offers the subsystem.
    #[error("no target there offers this subsystem")]
    NoTarget,
    /// The target refuses the lane.
    #[error("lane refused: {0}")]
    Refused(Status),
    /// Invalid data from the target.
    #[error("{0}")]
    Nonsense(&'static str),
    /// The target does not end earlier lanes of this host.
    #[error("the target does not end this host's earlier lanes")]
    EarlierLanesRemain,
    /// A record of the target violates the frame protocol.
    #[error("lane ended here: {0}")]
    Broken(String),
    /// The target has ended the lane.
    #[error("lane ended by the target: {hint}", hint = left_hint(*.0))]
    Left(LeaveReason),
    /// A command neither completed nor ended by its Abort.
    #[error("no answer to a command for {0:.0?}, though it was to be aborted")]
    Unanswered(Duration),
    /// The keys have reached their usage limit.
    #[error("the keys that seal its frames are used up")]
    KeysUsedUp,
    /// The cipher library failed.
    #[error("frames cannot be sealed: AES-GCM")]
    Cipher,
    /// Nothing was received for too long.
    #[error("the target is silent")]
    Silent,
    /// None of the lane's links leads to the target's current addresses.
    #[error("the target is there, but at another address than those that links lead to")]
    Moved,
    /// One of the lane's links takes only smaller frames than before.
    #[error("an interface takes smaller frames than its link (was an MTU changed?)")]
    Shrunk,
}

impl LinkError {
    /// True if a target that ends a handshake like this may know the key by another identity.
    pub(crate) fn may_know_another_identity(&self) -> bool {
        match self {
            LinkError::Tls(error) => error.may_know_another(),
            LinkError::TlsClosed => true,
            _ => false,
        }
    }
}

fn left_hint(reason: LeaveReason) -> &'static str {
    match reason {
        LeaveReason::UnknownToken => "it does not know it (was it restarted?)",
        LeaveReason::Done => "as requested",
        LeaveReason::Shutdown => "it stops",
        LeaveReason::Broken => "it reports a protocol violation",
    }
}
