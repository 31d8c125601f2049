//! Lanes straight on Ethernet (docs/reference/ethernet.md): what TCP does for a connection, done for frames over
//! several links.
//!
//! | layer | type |
//! |---|---|
//! | a lane's part of one link: numbers, acknowledgement, loss, congestion | [`channel::Channel`] |
//! | a lane's channels: which link a frame takes | [`links::Links`] |
//! | a lane's requests and their data, at either end | [`host::Qpair`], [`target::Qpair`] |
//! | where frames are written | [`frame_writer::FrameWriter`] |
//! | whether the target still has a lane, at its host | [`liveness::Liveness`] |
//! | what ends a host's earlier lanes before it makes others | [`fence::Fence`] |
//! | what only the lane's other end can have made | [`seal::Seal`] |
//! | what a target says about lanes that are not there | [`setup::Inquiry`] |

pub mod asking;
pub mod channel;
mod cut;
mod damq;
mod end;
pub mod fence;
pub mod frame_writer;
pub mod host;
pub mod links;
pub mod liveness;
mod pack;
mod rejected;
pub mod seal;
pub mod setup;
pub mod target;

pub use end::{End, OpenFrame};
pub use pack::{Item, Packing};
pub use rejected::{Broken, Rejected};
