//! What every front-end's attachment can do, whatever it shows a namespace as.

use crate::disk::NoNamespace;
use crate::system_resource::SystemResource;
use roadtrain_host_engine::{Controller, HostError};
use std::io;

/// A namespace that is shown on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The namespace.
    pub nsid: u32,
    /// Under which names programs find it: paths, or a URI. The one to use first; never empty.
    pub names: Vec<String>,
}

/// Namespaces of one controller that are shown by one front-end. Dropping it stops it.
pub trait Attachment: Send {
    /// What is shown now.
    fn devices(&self) -> Vec<Device>;

    /// The controller behind it.
    fn controller(&self) -> &Controller;

    /// What would stay behind if this process were killed now, in the order in which it is to be removed.
    fn resources(&self) -> Vec<SystemResource>;

    /// Ends what is under way, takes the devices away, shuts the controller down.
    fn stop(self: Box<Self>);
}

/// Why a namespace cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The controller cannot be connected.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The controller has no such namespace.
    #[error(transparent)]
    NoNamespace(#[from] NoNamespace),
    /// This machine does not let it be shown.
    #[error("{what}: {source}")]
    Show {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}
