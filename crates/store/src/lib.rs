//! Stores of a namespace's blocks: in memory, nowhere, in a file, on a block device, or in any implementation of
//! [`Store`].
//!
//! ```text
//!   target's reactor
//!     | submit(op, buffer, token)            Completion { token, result, buffer }
//!     v                                              ^    exactly once, in any order
//!   Store --- answers at once (memory) --------------+
//!         --- by the reactor's ring (disks) ---------+--- Executor ---> reactor
//!         --- from another thread (Completions) -----+
//!         --- when a time has come (SSD) ------------+
//! ```
//!
//! A submitter need not know how a store completes an operation. An [`StoreExecutor`] keeps the operations in flight for one
//! reactor; a store accesses it only through [`StoreIo`], while it is called.
//!
//! | store | blocks | answers |
//! |---|---|---|
//! | [`MemoryStore`] | in memory that is gone with the process | at once; lends its memory ([`Store::in_place`]) |
//! | [`NullStore`] | nowhere | at once |
//! | [`DiskStore`] | in a file or on a block device | by the ring |
//! | `RbdStore` | in an image of a Ceph cluster | by librbd's threads |
//! | [`EmulatedBlockStore`] | in another store, whose blocks are larger: read-modify-write | as that one |
//! | [`RemoteBlocks`] | behind a protocol that the program brings | as that one |
//! | [`SsdStore`] | in another store, at the pace of an SSD | when the time has come |
//! | [`ReadOnlyStore`] | in another store, which it does not change | as that one |
//!
//! ```
//! use roadtrain_store::{StoreKind, StoreSpec, open};
//!
//! let kind = StoreKind::Memory { size: 1 << 20 };
//! let store = open(&StoreSpec { kind, lba_bytes: 4096, read_only: false })?;
//! assert_eq!(store.geometry().blocks, 256);
//! # Ok::<(), roadtrain_store::OpenError>(())
//! ```

mod allocation_queries;
mod block_access;
#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;
mod completion;
pub mod conformance;
mod differences;
mod disk;
mod due;
mod emulated;
mod executor;
mod extents;
mod geometry;
pub mod guest_completions;
mod identity;
mod in_place;
mod last_sync;
mod limits;
mod memory;
mod null;
mod open;
mod open_error;
mod placeholder_store;
#[cfg(feature = "rbd")]
mod rbd;
mod read_only;
mod remote;
mod resize;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
mod snapshots;
mod spec;
mod ssd;
mod store;
#[cfg(test)]
mod tests;
mod zeroes;

pub use completion::{StoreCompletion, StoreCompletions, StoreToken};
pub use differences::{DifferencesQuery, DifferentRange, DiskDifferences, file_differences};
pub use disk::DiskStore;
pub use emulated::EmulatedBlockStore;
pub use executor::{Delayed, RING_KIND, StoreContinuation, StoreExecutor, StoreIo};
pub use extents::{FileExtent, extents};
pub use geometry::StoreGeometry;
pub use in_place::InPlace;
pub use last_sync::LastSync;
pub use memory::MemoryStore;
pub use null::NullStore;
pub use open::{observe, open, open_for};
pub use open_error::OpenError;
#[cfg(feature = "rbd")]
pub use rbd::{
    NotifyHandler, NotifyReplies, ObjectError, ObjectMap, ObjectMapChange, ObjectWatch,
    RadosObject, RbdImage, RbdPassphrase, RbdStore, end_process,
};
pub use read_only::ReadOnlyStore;
pub use remote::{RemoteBlocks, RemoteContext, RemoteSource};
pub use resize::{BlockLocation, Resize, SizeWatcher};
pub use roadtrain_proto::block_limits::BlockLimits;
pub use roadtrain_proto::op::{ByteRange, StoreOperation};
pub use snapshots::{SnapshotError, Snapshots, StoreSnapshot};
pub use spec::{StoreKind, StoreSpec};
pub use ssd::SsdStore;
pub use store::{BlockIdentifiers, BlockOwnership, OwnCommands, Store};
