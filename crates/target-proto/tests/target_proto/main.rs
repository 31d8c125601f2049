//! The target's state machines, in one test program: `cargo test -p roadtrain-target-proto --test target_proto control::`.

#[path = "../../../wire/tests/wire/recorded/capture.rs"]
mod capture;
#[path = "../../../../tests/lib/cases.rs"]
mod cases;
mod control;
mod exclusion;
mod reservations;
