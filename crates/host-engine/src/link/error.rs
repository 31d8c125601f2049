//! Why a connection to the target is over.

use roadtrain_proto::error::QpairError;
use roadtrain_wire::ether::setup::Reason;
use roadtrain_wire::status::Status;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why a connection is over.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed it.
    #[error("connection closed by the target")]
    Closed,
    /// The handshake of TLS has failed.
    #[error("TLS handshake: {0}")]
    Tls(roadtrain_tls::Error),
    /// The target has ended the connection in the handshake of TLS.
    #[error(
        "TLS handshake: the target closed the connection: it has no TLS, or no key for this host"
    )]
    TlsClosed,
    /// The target has ended the connection before it was one of NVMe/TCP.
    #[error("the target closed the connection at once: it may require TLS (--tls)")]
    PlainClosed,
    /// The protocol was broken.
    #[error(transparent)]
    Qpair(#[from] QpairError),
    /// No port at an interface.
    #[error("interface {interface}: {source}")]
    Port {
        /// Which.
        interface: String,
        /// Why not.
        source: io::Error,
    },
    /// What the target's name stands for is not known.
    #[error(transparent)]
    Name(io::Error),
    /// None of a name's addresses leads anywhere.
    #[error("{0}")]
    Nowhere(String),
    /// Nobody answers who offers the subsystem.
    #[error("nobody there offers this subsystem")]
    Nobody,
    /// The target makes no lane.
    #[error("lane refused: {0}")]
    Refused(Status),
    /// What a target says cannot be.
    #[error("{0}")]
    Nonsense(&'static str),
    /// The target still holds lanes of before.
    #[error("the target does not give up this host's earlier lanes")]
    Clinging,
    /// A record of the target breaks the protocol of frames.
    #[error("lane ended here: {0}")]
    Broken(String),
    /// The target has ended the lane.
    #[error("lane ended by the target: {hint}", hint = left_hint(*.0))]
    Left(Reason),
    /// A command was neither answered nor ended by its abort.
    #[error("no answer to a command for {0:.0?}, though it was to be aborted")]
    Unanswered(Duration),
    /// So much has been sealed that other keys are needed.
    #[error("the keys that seal its frames are used up")]
    KeysUsedUp,
    /// The library that seals frames has failed.
    #[error("frames cannot be sealed: AES-GCM")]
    Cipher,
    /// Nothing has come for too long.
    #[error("the target is silent")]
    Silent,
    /// None of a lane's links leads to where the target is.
    #[error("the target is there, but at another address than those that links lead to")]
    Moved,
    /// One of a lane's links takes only smaller frames than it did.
    #[error("an interface takes smaller frames than its link (was an MTU changed?)")]
    Shrunk,
}

impl LinkError {
    /// Returns true if a target that ends a handshake like this may know the key by another identity.
    pub(crate) fn may_know_another_identity(&self) -> bool {
        match self {
            LinkError::Tls(error) => error.may_know_another(),
            LinkError::TlsClosed => true,
            _ => false,
        }
    }
}

fn left_hint(reason: Reason) -> &'static str {
    match reason {
        Reason::UnknownToken => "it does not know it (was it restarted?)",
        Reason::Done => "as asked",
        Reason::Shutdown => "it stops",
        Reason::Broken => "it says that the protocol was broken",
    }
}
