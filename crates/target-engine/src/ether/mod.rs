//! Lanes over Ethernet at the target: what comes before a lane is there, and what a lane needs besides its queue
//! pair (docs/reference/ethernet.md).
//!
//! | file | purpose |
//! |---|---|
//! | `config` | which interfaces |
//! | `ports` | a reactor's ports, and which lane a frame is for |
//! | `listener` | socket number 0: answers hosts that search for a target, passes on hosts that want a lane |
//! | `request` | what a host asks of the reactor of its lane |
//! | `bucket` | how often strangers are answered |
//! | `damq` | the memory that a host places its data in |
//! | `drops` | what was dropped, by reason |

#[cfg(test)]
mod back;
mod bucket;
mod config;
pub(super) mod damq;
mod drops;
pub(super) mod listener;
pub(super) mod ports;
mod request;
#[cfg(test)]
mod tests;

pub(super) use bucket::Bucket;
pub use config::EtherConfig;
pub(super) use config::{EtherParts, EtherPorts};
pub use drops::{Drop, Drops};
pub(super) use ports::Reply;
pub(super) use request::{JoinRequest, QueryRequest, Request};
pub(super) use roadtrain_ether_port::port::Port;
