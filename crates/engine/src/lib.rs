//! One io_uring reactor per core: lanes, buffers, storage backends.

pub mod backend;
pub mod buffer;
pub mod clock;
mod connection;
mod digest;
pub mod ether;
mod gather;
pub mod host;
pub mod mailbox;
pub mod memory;
pub mod platform;
pub mod pulse;
mod random;
pub mod ring;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
pub mod spin;
pub mod stats;
pub mod target;
pub mod tuning;
