//! The host's end: queue pairs, the requests of a lane, and the association that connects them.

pub mod allocation;
pub mod association;
mod authenticate;
pub mod bringup;
pub mod discovered;
pub mod express;
pub mod old_commands;
pub mod overdue;
pub mod paths;
pub mod pins;
pub mod procedure;
pub mod qpair;
pub mod requests;
pub mod retry;
pub(crate) mod slots;
pub mod write_verifier;
