//! Why a target does not start.

use roadtrain_target_proto::ConfigError;
use std::io;
use thiserror::Error;

/// Why a target does not start, or does not take a new configuration.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "fields are what the message names")]
pub enum ServerError {
    /// An interface.
    #[error("cannot listen on interface {interface}: {source}")]
    Interface { interface: String, source: io::Error },
    /// What hosts have written may be lost.
    #[error("namespace {nsid} of {nqn}: what was written last may be lost: {source}")]
    Unsaved { nqn: String, nsid: u32, source: io::Error },
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This machine has no resources left.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}
