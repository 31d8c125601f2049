//! Whether an end with nothing to do looks again or sleeps, where nobody has said which.
//!
//! | file | purpose |
//! |---|---|
//! | `adaptive` | each wait's decision, from what the others say |
//! | `budget` | what spinning may still cost, beside what it has saved |
//! | `trials` | whether spinning saves CPU time, by doing both |
//! | `contention` | whether other threads want the core |
//!
//! What a sleep costs, which bounds every spin, is a figure of [`costs`](crate::costs). No clock and no thread: it is
//! told the time, and what was counted.

mod adaptive;
mod budget;
mod contention;
mod reading;
mod trials;

pub use adaptive::{Adaptive, Learnt};
pub use reading::Reading;
