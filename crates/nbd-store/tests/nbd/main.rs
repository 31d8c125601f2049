//! Tests of the store over servers of NBD.

mod conformance;
mod harness;
#[path = "../../../../tests/lib/skipped.rs"]
mod skipped;
