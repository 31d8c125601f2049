//! An NBD server for one namespace: qemu-img, nbdcopy, fio and nbd-client use it unmodified.
//!
//! ```text
//! socket -> connection -> session   octets -> checked requests; handshake      (no socket inside)
//!               |
//!               v
//!          disk::Jobs               requests -> whole blocks -> the lane       (inline, one reactor)
//!               |
//!               v
//!            replies -> socket      replies and their buffers, one gather send
//! ```
//!
//! | file | purpose |
//! |---|---|
//! | `session` | the protocol of a connection, without its socket |
//! | `export` | what is exported |
//! | `block_status` | which blocks are allocated, as the target says |
//! | `translate` | NBD's terms and the disk's |
//! | `reply_queue` | what is to be sent |
//! | `connection` | a client: receive, begin, reply, send; back-pressure |
//! | `server` | the reactor's front: all clients of a lane |
//! | `answers` | what other threads tell a server |
//! | `strays` | writes of clients that are gone, which those that come wait for |
//! | `endpoint`, `listener`, `address` | where clients knock |
//! | `tls`, `securing` | keys and certificates; clients whose handshake of TLS is under way |
//! | `attach` | all of it: a controller's lanes, each with its server |

mod address;
mod answers;
mod attach;
mod block_status;
mod connection;
mod endpoint;
mod export;
mod listener;
mod owner;
mod reply_queue;
mod securing;
mod server;
mod session;
mod strays;
mod tls;
mod translate;

pub use address::{AddressError, NBD_PORT, NbdAddress};
pub use attach::{NbdAttachment, NbdConfig};
pub use endpoint::Endpoint;
pub use export::{Export, ExportInfo};
pub use listener::Clients;
pub(crate) use listener::Listener;
pub use reply_queue::ReplyQueue;
pub use server::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, NbdServer};
pub use session::{Close, Event, PeerMisbehaved, Session};
pub use tls::NbdTls;
