//! The steps of which operations consist, and who may stop at each of them: tests do.

use std::io;

/// A change of the file system, by one system call or by a row of alike ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A volume's file is made.
    Create,
    /// It gets a size without space.
    Size,
    /// It gets space.
    Allocate,
    /// It gets another one's extents.
    Share,
    /// It gets another one's octets.
    Copy,
    /// It gets extents of its own.
    Unshare,
    /// A volume's file is brought to stable storage.
    SyncFile,
    /// The folder's entries are brought to stable storage.
    SyncFolder,
    /// The new `store.json` is written beside the old one, and brought to stable storage.
    Write,
    /// It takes the old one's place.
    Rename,
    /// A file is removed.
    Remove,
}

/// Passed before each step.
pub(crate) trait Gate: Send + Sync {
    /// # Errors
    /// The step is not to be done, and fails in this way.
    fn pass(&self, step: Step) -> io::Result<()>;
}

/// Lets all pass.
pub(crate) struct Open;

impl Gate for Open {
    fn pass(&self, _: Step) -> io::Result<()> {
        Ok(())
    }
}
