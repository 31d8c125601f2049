//! One io_uring reactor per core: lanes, buffers, storage backends.

mod connection;
mod digest;
pub mod ether;
mod gather;
pub mod host;
pub mod platform;
pub mod pulse;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
pub mod spin;
pub mod stats;
mod stream;
pub mod target;
pub mod tuning;

/// Where blocks are kept.
pub use roadtrain_store as backend;
pub use roadtrain_system::{buffer, clock, mailbox, memory, ring};
use roadtrain_system::{machine, random};
