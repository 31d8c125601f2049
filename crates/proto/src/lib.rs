//! State machines without sockets, clock or threads: queue pairs, controllers, discovery and the
//! batching policies. Every call takes the time it needs; payload never enters.
#![forbid(unsafe_code)]

pub mod caravan;
pub mod error;
pub mod ether;
pub mod framing;
pub mod host;
pub mod manifest;
pub mod policy;
pub mod target;
pub mod time;
mod view;
