//! Lanes directly on Ethernet (docs/reference/ethernet.md): the services of a TCP connection, for frames over several
//! links. docs/internals/ethernet.md describes how the engines use this crate.
//!
//! | layer | type |
//! |---|---|
//! | a lane's state on one link: sequence numbers, acknowledgement, loss, congestion | [`channel::LaneChannel`] |
//! | a lane's channels and the choice of a link for each frame | [`links::LaneLinks`] |
//! | a lane's requests and their data, at either end | [`host_queue::EtherHostQpair`], [`target_queue::EtherTargetQpair`] |
//! | the sink of outgoing frames | [`frame_writer::FrameWriter`] |
//! | the host's check that the target still has a lane | [`liveness::Liveness`] |
//! | the end of a host's earlier lanes before it creates others | [`fence::Fence`] |
//! | authentication and encryption of a lane's frames | [`roadtrain_proto::seal::Seal`] |
//! | the target's replies about lanes that do not exist | [`setup::Inquiry`] |
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field or variant whose name and type say what it is has no comment"
)]

#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;

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
pub mod query_timer;
mod rejected;
pub mod setup;
pub mod target_queue;

pub use end::{LaneEnd, OpenFrame};
pub use pack::{Item, Packing};
pub use rejected::{BrokenRecord, Rejected};
