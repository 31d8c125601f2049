//! The host's end of a connection.

pub mod overdue;
pub mod qpair;
pub mod requests;
pub mod retry;
pub(crate) mod slots;
