//! Lanes over Ethernet at the target: lane setup, and the parts of a lane besides its queue pair
//! (docs/reference/ethernet.md).
//!
//! | file | purpose |
//! |---|---|
//! | `config` | interfaces |
//! | `ports` | ports of a reactor, and the lane of each frame |
//! | `listener` | socket number 0: discovery, and requests for lanes |
//! | `request` | requests of a host to the reactor of its lane |
//! | `bucket` | rate limit for replies to unknown hosts |
//! | `damq` | memory where a host places its data |
//! | `drops` | counters of dropped frames by reason |

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
pub(super) use ports::ReplyFrame;
pub(super) use request::{JoinRequest, LaneSetupRequest, QueryRequest};
pub(super) use roadtrain_ether_port::port::Port;
