//! Errors of operations on stores and volumes.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why an operation failed. A failed operation has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// Missing volume.
    #[error("there is no volume {0}")]
    NotFound(String),
    /// Name of another volume.
    #[error("there is a volume named {0} already")]
    Taken(String),
    /// Too little free space.
    #[error("it needs {needed} clusters of 4 MiB, and {free} are free")]
    NoSpace {
        /// Clusters that the operation needs.
        needed: u64,
        /// Clusters that are free.
        free: u64,
    },
    /// Object in use: a later attempt may succeed.
    #[error("{0}")]
    Busy(String),
    /// Impossible request.
    #[error("{0}")]
    Invalid(String),
    /// Read-only object: a snapshot, or a volume that was made read-only.
    #[error("{0} is read-only: it stays as it is")]
    ReadOnly(String),
    /// Failure of the file system.
    #[error("{}: cannot {action} it: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Failed action, as a verb.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl VolumeError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> VolumeError {
        VolumeError::Io { path: path.into(), action, source }
    }

    /// Returns the matching errno, as a positive number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            VolumeError::NotFound(_) => Errno::NODEV,
            VolumeError::Taken(_) => Errno::EXIST,
            VolumeError::NoSpace { .. } => Errno::NOSPC,
            VolumeError::Busy(_) => Errno::BUSY,
            VolumeError::Invalid(_) => Errno::INVAL,
            VolumeError::ReadOnly(_) => Errno::PERM,
            VolumeError::Io { source, .. } => return source.raw_os_error().unwrap_or(5),
        };
        errno.raw_os_error()
    }
}
