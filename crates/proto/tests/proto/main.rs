//! Tests of the shared protocol logic in one test program: `cargo test -p roadtrain-proto --test proto security::`.

#[allow(dead_code, reason = "other test programs use the rest")]
#[path = "../../../wire/tests/wire/recorded/capture.rs"]
mod capture;
mod ownership;
mod security;
