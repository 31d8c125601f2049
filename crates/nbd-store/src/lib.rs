//! Exports of NBD servers as stores: what nbdkit and qemu-nbd give.
//!
//! ```text
//!   reactors of the target --> NbdStore::submit
//!                                 |  queue
//!                                 v
//!                 thread of the store: NbdClient ----- connections -----> server
//!                                 |
//!            completions <--------+  by the mailboxes of the reactors
//! ```
//!
//! A [`NbdSource`] is everything that is needed to connect. Its store, [`NbdStore`], has one thread with all of its
//! connections. NBD is a bridge to formats, not the fast path: one thread keeps the rules for lost connections simple.
//!
//! The machines below the line decide, and know no socket and no clock.
//!
//! | module | what |
//! |---|---|
//! | `source`, `address`, `settings` | the source of a store: address, export, options |
//! | `store` | the store: its properties, submissions, the last flush |
//! | `worker` | the thread: sockets, time, completions |
//! | `link`, `stream` | connections: sockets, TLS, the handshake's bytes |
//! |---|---|
//! | `handshake`, `terms` | the handshake, and what the server offers |
//! | `client` | operations over connections; what is sent again after a loss, and in which order |
//! | `operation` | one operation as requests |
//! | `replies` | replies of one connection |
//! | `durability` | the report of writes that a lost server may have lost |

mod address;
mod client;
mod durability;
mod handshake;
mod link;
mod operation;
mod queue;
mod replies;
mod server_error;
mod settings;
mod source;
mod store;
mod stream;
mod terms;
mod worker;

pub use address::NbdServerAddress;
pub use handshake::{NbdClientHandshake, NbdHandshakeStep};
pub use link::NbdTlsFiles;
pub use replies::{NbdClientRequest, NbdReplies, NbdReplyEvent};
pub use server_error::NbdServerError;
pub use settings::NbdStoreSettings;
pub use source::NbdSource;
pub use store::NbdStore;
pub use terms::NbdTerms;
