//! Storage straight on Ethernet, without TCP and IP (docs/reference/ethernet.md).
//!
//! | module | purpose |
//! |---|---|
//! | [`port`] | a reactor's socket at an interface: frames out, frames in |
//! | [`carrier`] | notifications of interfaces that come and go |
//! | `sealing` | the cipher of sealed frames, the buffer for opened ones, and the log of dropped ones |

pub mod carrier;
pub mod port;
mod sealing;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;

pub use sealing::{FrameSeal, RefusalLog, opening, seals};
