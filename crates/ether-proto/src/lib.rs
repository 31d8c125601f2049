//! Lanes straight on Ethernet (docs/reference/ethernet.md): what TCP does for a connection, done for frames over
//! several links. docs/internals/ethernet.md says how the engines use it.
//!
//! | layer | type |
//! |---|---|
//! | a lane's part of one link: numbers, acknowledgement, loss, congestion | [`channel::Channel`] |
//! | a lane's channels: which link a frame takes | [`links::Links`] |
//! | a lane's requests and their data, at either end | [`host_queue::Qpair`], [`target_queue::Qpair`] |
//! | where frames are written | [`frame_writer::FrameWriter`] |
//! | whether the target still has a lane, at its host | [`liveness::Liveness`] |
//! | what ends a host's earlier lanes before it makes others | [`fence::Fence`] |
//! | what only the lane's other end can have made | [`roadtrain_proto::seal::Seal`] |
//! | what a target says about lanes that are not there | [`setup::Inquiry`] |
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field or variant whose name and type say what it is has no comment"
)]

#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;

pub mod asking;
pub mod channel;
mod cut;
mod damq;
mod end;
pub mod fence;
pub mod frame_writer;
pub mod host_queue;
pub mod links;
pub mod liveness;
mod pack;
mod rejected;
pub mod setup;
pub mod target_queue;

pub use end::{End, OpenFrame};
pub use pack::{Item, Packing};
pub use rejected::{Broken, Rejected};
