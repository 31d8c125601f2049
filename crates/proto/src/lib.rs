//! The protocol without sockets, clock or threads: what both ends of NVMe/TCP and of storage on Ethernet decide.
//!
//! ```text
//!             host                                              target
//!   host::requests   what becomes of a request     target::session    what a connection may do
//!   host::qpair      commands out, answers in      target::qpair      commands in, answers out
//!   ether::host      the same, in frames           ether::target      the same, in frames
//!          policy    when to send: both ends       target::Target     subsystems, controllers, admin commands
//!
//!   received octets, the time --> a machine --> events; octets to send, with payload named, not copied
//! ```
//!
//! Every call takes the time that it needs ([`time::Instant`]), and payload never enters. So the same machines run
//! on io_uring in the product, over a simulated network in the simulation, and against each other here:
//!
//! ```
//! use roadtrain_proto::manifest::Manifest;
//! use roadtrain_proto::policy::PolicyConfig;
//! use roadtrain_proto::time::Instant;
//! use roadtrain_proto::{host, target};
//! use roadtrain_wire::pdu::Digests;
//!
//! let (now, policy, digests) = (Instant(0), PolicyConfig::auto(), Digests::default());
//! let mut host = host::qpair::Qpair::new(
//!     now,
//!     host::qpair::Config { digests, queue_entries: 32, in_capsule_bytes: 0, policy },
//! );
//! let mut target = target::qpair::Qpair::new(target::qpair::Config {
//!     digests,
//!     maxh2cdata: 4096,
//!     in_capsule_bytes_max: 8192,
//!     policy,
//! });
//!
//! // ICReq leaves the host, ICResp the target: the connection is initialised.
//! let mut sent = Manifest::default();
//! host.poll_tx(&mut sent);
//! target.poll_rx(now, &sent.octets(|_| &[]), &mut 0)?;
//! let mut answer = Manifest::default();
//! target.poll_tx(&mut answer);
//! host.poll_rx(now, &answer.octets(|_| &[]), &mut 0)?;
//! assert!(host.is_ready());
//! # Ok::<(), roadtrain_proto::error::QpairError>(())
//! ```
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
pub mod costs;
pub mod custody;
pub mod cut;
pub mod digest;
pub mod error;
pub mod framing;
pub mod manifest;
pub mod op;
pub mod policy;
pub mod recorder;
pub mod seal;
pub mod security;
pub mod slots;
pub mod spin;
pub mod time;
pub mod view;
