//! Planners: each takes what exists and returns the next step. They do no I/O and keep nothing, so a driver that was
//! killed between two steps continues from what it finds.

pub(crate) mod publication;
pub(crate) mod stage;
pub(crate) mod volume;
