//! Protocol logic that both ends of NVMe/TCP and of storage on Ethernet share, without sockets, clock or threads.
//!
//! ```text
//!   roadtrain_host_proto                            roadtrain_target_proto
//!     requests   requests in flight, retries          session   rights of a connection
//!     qpair      commands out, responses in           qpair     commands in, responses out
//!     association  a controller's connections         Target    subsystems, controllers, admin commands
//!   roadtrain_ether_proto
//!     host_queue   the host's queue pair in frames    target_queue   the target's
//!
//!   here: policy (when to send), framing, security, wait, recorder
//!
//!   received bytes, the time --> a machine --> events; bytes to send, with payload named, not copied
//! ```
//!
//! Every call takes the time that it needs ([`time::Instant`]), and payload never enters. So the same machines run on
//! io_uring in the product, over a simulated network in the simulation, and against each other in tests.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field or variant whose name and type say what it is has no comment"
)]

pub mod block_limits;
pub mod caravan;
#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;
mod counters;
pub mod cut;
pub mod digest;
pub mod error;
pub mod framing;
pub mod manifest;
pub mod op;
pub mod ownership;
pub mod policy;
pub mod read_modify_write;
pub mod recorder;
pub mod seal;
pub mod security;
pub mod slots;
pub mod source;
pub mod time;
pub mod view;
pub mod wait;
