//! System interface of reactors and stores.
//!
//! | module | what |
//! |---|---|
//! | [`ring`] | an io_uring that never loses an entry |
//! | [`memory`] | memory from huge pages, on the NUMA nodes that are set for a thread |
//! | [`buffer`] | page-aligned buffers, and the pools that they come from |
//! | [`mailbox`] | the only crossing between threads: a queue that wakes a reactor's ring |
//! | [`guest`] | reactors that run on another reactor's thread |
//! | [`keyring`] | keys that the kernel keeps |
//! | [`slab`] | slots by index, used again and again |
//! | [`platform`] | cores, NUMA nodes, network interfaces, and the placement of threads |
//! | [`clock`], [`random`], [`machine`] | the time, unpredictable numbers, an ID of this machine |
//!
//! ```text
//!   other threads --mailbox--> +---------------- a reactor's thread ----------------+
//!                              |  ring: waits for sockets, files, timers, mailboxes |
//!   sockets, files <---------> |  pool: buffers <- chunks <- huge pages of its node |
//!                              +----------------------------------------------------+
//! ```
//!
//! ```
//! use roadtrain_system::buffer::Buffer;
//!
//! let buffer = Buffer::alloc(8192); // page-aligned, as direct I/O wants it
//! assert_eq!(buffer.len(), 8192);
//! assert_eq!(buffer.as_ptr() as usize % 4096, 0);
//! ```
//!
//! This crate does not know queues, commands or connections.

pub mod buffer;
pub mod clock;
pub mod guest;
pub mod keyring;
pub mod machine;
pub mod mailbox;
pub mod memory;
pub mod platform;
pub mod random;
pub mod ring;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
pub mod slab;
