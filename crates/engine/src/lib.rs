//! One io_uring reactor per core: lanes, buffers, storage backends.

pub mod buffer;
pub mod memory;
pub mod ring;
pub mod tuning;
