//! The host's end: queue pairs, the requests of a lane, and the association that connects them.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field or variant whose name and type say what it is has no comment"
)]

#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;

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
pub mod write_verifier;
