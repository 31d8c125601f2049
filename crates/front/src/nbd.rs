//! An NBD server for one namespace: qemu-img, nbdcopy, fio and nbd-client use it unmodified.
//!
//! ```text
//! socket -> connection -> session   bytes  -> checked requests; handshake      (no socket inside)
//!               |
//!               v
//!          disk::DiskJobs           requests -> whole blocks -> the lane       (inline, one reactor)
//!               |
//!               v
//!            replies -> socket      replies and their buffers, one gather send
//! ```
//!
//! | file | purpose |
//! |---|---|
//! | `session` | the protocol of a connection, without its socket |
//! | `export` | a disk under a name |
//! | `block_status` | allocated blocks, as the target reports them |
//! | `translate` | requests and errors: NBD <-> disk |
//! | `reply_queue` | replies to be sent |
//! | `connection` | a client: receive, begin, reply, send; back-pressure |
//! | `server` | the reactor's front: all clients of a lane |
//! | `watched_mailbox` | messages of other threads to a server |
//! | `orphan_writes` | writes of clients that are gone, which new clients wait for |
//! | `endpoint`, `listener`, `address` | listening socket and its address |
//! | `tls`, `securing` | keys and certificates; clients in a TLS handshake |
//! | `attach` | all of it: a controller's lanes, each with its server |

mod address;
mod attach;
mod block_status;
mod connection;
mod connection_id;
mod endpoint;
mod export;
mod listener;
mod orphan_writes;
mod reply_queue;
mod securing;
mod server;
mod session;
mod tls;
mod translate;
mod watched_mailbox;

pub use address::{AddressError, NBD_PORT, NbdAddress};
pub use attach::{NbdAttachment, NbdConfig};
pub use endpoint::NbdEndpoint;
pub use export::{ExportInfo, NbdExport};
pub(crate) use listener::FrontListener;
pub use listener::NbdClients;
pub use reply_queue::ReplyQueue;
pub use server::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, NbdServer};
pub use session::{NbdCloseReason, NbdEvent, NbdSession, NbdViolation};
pub use tls::NbdTls;
