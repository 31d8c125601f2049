//! Why a target does not start.

use roadtrain_proto::target::ConfigError;
use std::io;
use thiserror::Error;

/// Why a target does not start, or does not take a new configuration.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An interface.
    #[error("cannot listen on interface {interface}: {source}")]
    Interface {
        /// Which.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// What hosts have written may be lost.
    #[error("namespace {nsid} of {nqn}: what was written last may be lost: {source}")]
    Unsaved {
        /// Of which subsystem.
        nqn: String,
        /// Which namespace.
        nsid: u32,
        /// Why.
        source: io::Error,
    },
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This machine has no resources left.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}
