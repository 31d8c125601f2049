//! One io_uring reactor per core: lanes, buffers, storage backends.

pub mod tuning;
