//! Interface of all front-ends' attachments.

use crate::bitmaps::DirtyBitmaps;
use crate::disk::{LiveDisk, NoNamespace};
use crate::system_resource::SystemResource;
use roadtrain_host_engine::{HostControlError, HostController};
use std::io;
use std::sync::Arc;

/// A namespace that is shown on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedDevice {
    /// NSID.
    pub nsid: u32,
    /// Names under which programs find it: paths, or a URI. The preferred one is first; never empty.
    pub names: Vec<String>,
}

/// The dirty bitmaps of an attachment with its disk.
#[derive(Clone, Debug)]
pub struct AttachedBitmaps {
    /// The bitmaps.
    pub bitmaps: Arc<DirtyBitmaps>,
    /// The disk.
    pub disk: Arc<LiveDisk>,
}

/// Namespaces of one controller that one front-end shows. Dropping it stops it.
pub trait Attachment: Send {
    /// Returns the devices that are shown now.
    fn devices(&self) -> Vec<AttachedDevice>;

    /// Returns the controller behind it.
    fn controller(&self) -> &HostController;

    /// Returns the resources that would stay if this process were killed now, in the order of their removal.
    fn resources(&self) -> Vec<SystemResource>;

    /// Returns the dirty bitmaps that it keeps, if any.
    fn bitmaps(&self) -> Option<AttachedBitmaps> {
        None
    }

    /// Ends the requests in flight, removes the devices, and shuts the controller down.
    fn stop(self: Box<Self>);
}

/// Cause of a failed attach.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The controller cannot be connected.
    #[error(transparent)]
    Host(#[from] HostControlError),
    /// The controller has no such namespace.
    #[error(transparent)]
    NoNamespace(#[from] NoNamespace),
    /// This machine does not allow the device.
    #[error("{what}: {source}")]
    Show {
        /// Action that failed.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
}
