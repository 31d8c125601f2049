//! The host's end of a connection.

pub mod qpair;
mod slots;
