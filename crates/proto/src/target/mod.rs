//! The target's end: queue pairs, controllers, subsystems, discovery.

pub mod io;
pub mod qpair;
