//! Snapshots of a store's blocks, if its storage supports them.

use crate::{DifferencesQuery, DiskDifferences};
use std::fmt::Debug;

/// The blocks at some point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSnapshot {
    /// Name of the snapshot.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Creation time in seconds since 1970; `None` if it is unknown.
    pub created: Option<u64>,
    /// True if it cannot be removed.
    pub is_protected: bool,
}

/// Error of a snapshot operation, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// No snapshot of that name exists.
    #[error("there is no snapshot {0}")]
    Unknown(String),
    /// A snapshot of that name exists, or the target of a clone.
    #[error("{0} exists already")]
    Exists(String),
    /// A dependent or a rule forbids it.
    #[error("{0}")]
    Refused(String),
    /// The storage has failed.
    #[error("{0}")]
    Failed(String),
}

/// Operations on snapshots. Each call waits for the storage.
pub trait Snapshots: Debug + Send + Sync {
    /// Returns all snapshots, oldest first.
    ///
    /// # Errors
    /// Fails if they are not known.
    fn list(&self) -> Result<Vec<StoreSnapshot>, SnapshotError>;

    /// Makes a snapshot of the current blocks: all writes completed before the call are in it.
    ///
    /// # Errors
    /// Fails if the name exists, or if the storage fails.
    fn create(&self, name: &str) -> Result<(), SnapshotError>;

    /// Removes a snapshot.
    ///
    /// # Errors
    /// Fails if it is protected, or if a clone depends on it.
    fn remove(&self, name: &str) -> Result<(), SnapshotError>;

    /// Protects a snapshot against removal.
    ///
    /// # Errors
    /// Fails if it does not exist, or if the storage fails.
    fn protect(&self, name: &str) -> Result<(), SnapshotError>;

    /// Removes the protection of a snapshot.
    ///
    /// # Errors
    /// Fails if a clone depends on it.
    fn unprotect(&self, name: &str) -> Result<(), SnapshotError>;

    /// Makes a disk of its own at `to`, a name in the storage's terms, that begins with the content of the snapshot.
    ///
    /// # Errors
    /// Fails if the target exists, or if the snapshot has to be protected before.
    fn clone_to(&self, name: &str, to: &str) -> Result<(), SnapshotError>;

    /// Restores the blocks of a snapshot. Commands are refused meanwhile; `check` is called from then on, and its error
    /// ends the call: the blocks have a user.
    ///
    /// # Errors
    /// Fails if it does not exist, if the blocks have users, or if the storage fails, perhaps in the middle: a retry is
    /// needed then.
    fn roll_back(
        &self,
        name: &str,
        check: &dyn Fn() -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError>;

    /// Returns the ranges in which snapshot `to`, or the present blocks without it, may differ from snapshot `from`.
    ///
    /// # Errors
    /// Fails if a snapshot does not exist, if `from` is not older than `to`, or if the storage fails.
    fn differences(
        &self,
        from: &str,
        to: Option<&str>,
        query: DifferencesQuery,
    ) -> Result<DiskDifferences, SnapshotError>;
}
