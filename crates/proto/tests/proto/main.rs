//! The state machines of both ends, in one test program: `cargo test -p roadtrain-proto --test proto control::`.

mod association;
#[path = "../../../wire/tests/wire/recorded/capture.rs"]
mod capture;
#[path = "../../../../tests/lib/cases.rs"]
mod cases;
mod classes;
mod common;
mod control;
mod custody;
mod ether;
mod exclusion;
mod fused;
mod hostile;
mod lane;
mod model;
mod moves;
mod mutations;
mod pair;
mod policies;
mod requests;
mod reservations;
mod scripts;
mod security;
mod transitions;
mod whole_blocks;
