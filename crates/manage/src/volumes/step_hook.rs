//! Steps of operations on files, and a hook before each step, for tests.

use std::io;

/// A change of the file system, by one system call or by several of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFileStep {
    /// Creates a volume's file.
    Create,
    /// Sets its size without allocating space.
    Size,
    /// Allocates its space.
    Allocate,
    /// Shares the extents of another file.
    Share,
    /// Copies the bytes of another file.
    Copy,
    /// Replaces shared extents by its own.
    Unshare,
    /// Syncs a volume's file.
    SyncFile,
    /// Syncs the folder's entries.
    SyncFolder,
    /// Writes the new `store.json` next to the old one, and syncs it.
    Write,
    /// Renames it over the old one.
    Rename,
    /// Removes a file.
    Remove,
}

/// Hook that runs before each step.
pub(crate) trait StoreStepHook: Send + Sync {
    /// # Errors
    /// The step must not run, and fails with this error.
    fn pass(&self, step: StoreFileStep) -> io::Result<()>;
}

/// Hook that lets every step run.
pub(crate) struct NoStepHook;

impl StoreStepHook for NoStepHook {
    fn pass(&self, _: StoreFileStep) -> io::Result<()> {
        Ok(())
    }
}
