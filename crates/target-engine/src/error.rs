//! Errors of a target that does not start.

use roadtrain_target_proto::ConfigError;
use std::io;
use thiserror::Error;

/// Reason why a target does not start or refuses a new configuration.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "fields are what the message names")]
pub enum ServerError {
    /// Failure of an interface.
    #[error("cannot listen on interface {interface}: {source}")]
    Interface { interface: String, source: io::Error },
    /// Failed flush: the last writes of hosts may be lost.
    #[error("namespace {nsid} of {nqn}: what was written last may be lost: {source}")]
    Unsaved { nqn: String, nsid: u32, source: io::Error },
    /// Invalid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Exhausted or unavailable system resource.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}
