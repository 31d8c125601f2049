//! The host: lanes on their reactors, and the control thread that connects them.

mod api;
mod blocking;
mod lane;
mod reactor;

pub use api::{Completion, Front, Interest, LaneId, Op, Request, Turn};
