//! Tests of the store over servers of NBD.

mod conformance;
mod harness;
