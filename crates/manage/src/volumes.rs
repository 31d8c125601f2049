//! Stores of volumes: a folder with a file of each volume and `store.json`, or files of memory.
//!
//! ```text
//!   create, snapshot, clone, inflate, resize, rename, delete        any thread
//!      |  name and space are reserved            (lock)
//!      |  the file is created, filled, synced    (no lock: a copy blocks no other)
//!      v  store.json has it: the volume exists   (lock)
//!   store.json --- the next start removes files that it does not name
//! ```
//!
//! A finished operation is on stable storage, and an unfinished one leaves nothing: a volume's entry in `store.json` is
//! added last when it is created and removed first when it is deleted.
//!
//! | module | what |
//! |---|---|
//! | `store` | a store: opening it, and coordinating concurrent operations |
//! | `operations` | operations on volumes |
//! | `differences` | differences between snapshots |
//! | `store/background` | background work: removing files, allocating space of inflated volumes |
//! | `volume_space` | space of volumes, each shared byte counted once |
//! | `store_files` | the files: each change is a step that tests can intercept |

mod contents;
mod copy;
mod differences;
mod error;
mod operations;
mod step_hook;
mod store;
mod store_files;
#[cfg(test)]
mod tests;
mod uuid;
mod volume_space;

pub use contents::{CLUSTER_BYTES, Volume, clusters};
pub use copy::CopyProgress;
pub use error::VolumeError;
pub use operations::{Deletion, Destruction};
pub use store::{StoreInfo, VolumeInfo, VolumeStore};
pub use uuid::Uuid;
