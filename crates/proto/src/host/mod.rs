//! The host's end of a connection.

pub mod qpair;
pub(crate) mod slots;
