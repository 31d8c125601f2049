//! A vhost-user-blk backend: a virtual machine's disk. QEMU and other monitors connect unmodified.
//!
//! ```text
//! frontend's socket -> control, session -> orders -> server     (a thread of its own; the `vhost` crate)
//!                                                      |
//! guest's memory -> ring -> chain -> request -> disk::DiskJobs  (inline, on the lanes' reactors)
//! ```
//!
//! The frontend shares the guest's memory, sets the addresses of the virtqueues in it, and takes no part in I/O: the
//! guest kicks an eventfd that the reactor watches, and the reactor signals another one.
//!
//! | file | purpose |
//! |---|---|
//! | `attach` | all of it: a controller's reactors with their servers, and the control thread |
//! | `control` | waits for frontends and for changes of the namespace |
//! | `session` | a frontend's messages |
//! | `channel` | notifications to a frontend |
//! | `config_space` | the guest's view of its disk |
//! | `orders` | orders of the control thread to a server |
//! | `server`, `slot` | a reactor's queues |
//! | `ring` | a virtqueue |
//! | `inflight` | record of the requests in flight for a successor |
//! | `chain` | a descriptor chain, checked |
//! | `request` | the request of a chain, checked |
//! | `memory` | the guest's memory |

mod attach;
mod chain;
mod channel;
mod config_space;
mod control;
#[cfg(test)]
mod guest;
mod inflight;
mod lost_memory;
mod memory;
mod orders;
mod request;
mod ring;
mod server;
mod session;
mod slot;

pub(crate) use attach::is_directory;
pub use attach::{VhostUserAttachment, VhostUserConfig};
#[cfg(test)]
pub(crate) use memory::map_file;
