//! Storage straight on Ethernet, without TCP and IP (docs/reference/ethernet.md).
//!
//! | module | purpose |
//! |---|---|
//! | [`port`] | a reactor's socket at an interface: frames out, frames in |
//! | [`carrier`] | when interfaces come and go |

pub mod carrier;
pub mod port;
