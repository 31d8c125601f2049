//! Stores of volumes: a folder with a file of each volume and `store.json`, or files of memory.
//!
//! ```text
//!   create, snapshot, clone, inflate, resize, rename, delete        any thread
//!      |  name and space are reserved            (lock)
//!      |  the file is made, filled, synced       (no lock: a copy holds up no other)
//!      v  store.json has it, then it is there    (lock)
//!   store.json --- what is not in it goes at the next start
//! ```
//!
//! What an operation has answered is on stable storage, and what it has not finished leaves nothing: a volume's
//! entry in `store.json` comes last when it is made and goes first when it is deleted.
//!
//! | module | what |
//! |---|---|
//! | `store` | a store: opening it, who may do what at the same time |
//! | `operations` | what is done to volumes |
//! | `store/background` | what follows an answer: files go, inflated volumes get their space |
//! | `figures` | what volumes hold, each shared octet once |
//! | `home` | the files: each change of them is a step that tests can stop at |

mod contents;
mod copy;
mod error;
mod figures;
mod gate;
mod home;
mod operations;
mod store;
#[cfg(test)]
mod tests;
mod uuid;

pub use contents::{CLUSTER_BYTES, Volume, clusters};
pub use copy::Progress;
pub use error::VolumeError;
pub use operations::{Deletion, Destruction};
pub use store::{Store, StoreInfo, VolumeInfo};
pub use uuid::Uuid;
