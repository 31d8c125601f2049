//! Tests of the store over servers of NBD.

mod conformance;
mod harness;
mod restart;
#[path = "../../../../tests/lib/skipped.rs"]
mod skipped;
