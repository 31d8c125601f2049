//! Why something was not done to a store or a volume.

use std::io;
use std::path::{Path, PathBuf};

/// Why something was not done. Nothing of it was, then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// There is no such volume.
    #[error("there is no volume {0}")]
    NotFound(String),
    /// Another volume has that name.
    #[error("there is a volume named {0} already")]
    Taken(String),
    /// It needs more than what is free.
    #[error("it needs {needed} clusters of 4 MiB, and {free} are free")]
    NoSpace {
        /// Clusters that it would take.
        needed: u64,
        /// Clusters that are free.
        free: u64,
    },
    /// Not now.
    #[error("{0}")]
    Busy(String),
    /// Not ever.
    #[error("{0}")]
    Invalid(String),
    /// A snapshot, or a volume that was made read-only.
    #[error("{0} is read-only: it stays as it is")]
    ReadOnly(String),
    /// The file system does not.
    #[error("{}: cannot {action} it: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl VolumeError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> VolumeError {
        VolumeError::Io { path: path.into(), action, source }
    }

    /// The number that the system has for that, not negated.
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
