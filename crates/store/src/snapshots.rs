//! Snapshots of a store's blocks, where what keeps them has any.

use std::fmt::Debug;

/// The blocks as they were at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Octets that it has.
    pub bytes: u64,
    /// When it was made, in seconds since 1970; `None`: that is not known.
    pub created: Option<u64>,
    /// Cannot be removed.
    pub is_protected: bool,
}

/// Why something was not done with a snapshot, in words that say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// There is none of that name.
    #[error("there is no snapshot {0}")]
    Unknown(String),
    /// There is one of that name, or something else where a clone is to be.
    #[error("{0} is there already")]
    Exists(String),
    /// Something depends on it, or forbids it.
    #[error("{0}")]
    Refused(String),
    /// What keeps the blocks has failed.
    #[error("{0}")]
    Failed(String),
}

/// What can be done about snapshots. Each call waits for what keeps the blocks.
pub trait Snapshots: Debug + Send + Sync {
    /// All that there are, oldest first.
    ///
    /// # Errors
    /// They are not known.
    fn list(&self) -> Result<Vec<Snapshot>, SnapshotError>;

    /// Makes one of the blocks as they are: what was answered before this is called is in it.
    ///
    /// # Errors
    /// There is one of that name, or it failed.
    fn create(&self, name: &str) -> Result<(), SnapshotError>;

    /// Removes one.
    ///
    /// # Errors
    /// It is protected, or something depends on it.
    fn remove(&self, name: &str) -> Result<(), SnapshotError>;

    /// Has it stay until it is not protected any more.
    ///
    /// # Errors
    /// There is none, or it failed.
    fn protect(&self, name: &str) -> Result<(), SnapshotError>;

    /// It may be removed.
    ///
    /// # Errors
    /// A clone depends on it.
    fn unprotect(&self, name: &str) -> Result<(), SnapshotError>;

    /// Makes a disk of its own that begins as the snapshot is, at `to`, in the words of what keeps the blocks.
    ///
    /// # Errors
    /// Something is there, or the snapshot has to be protected before.
    fn clone_to(&self, name: &str, to: &str) -> Result<(), SnapshotError>;

    /// Makes the blocks what they were. What comes meanwhile is refused; `check` is called from then on, and an error of it
    /// ends all: somebody uses them.
    ///
    /// # Errors
    /// There is none, somebody uses the blocks, or it failed, perhaps in the middle: then do it again.
    fn roll_back(
        &self,
        name: &str,
        check: &dyn Fn() -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError>;
}
