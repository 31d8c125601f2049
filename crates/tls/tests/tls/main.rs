//! Handshakes, records and sealed frames, in one test program.

#[path = "../../../../tests/lib/cases.rs"]
mod cases;
mod frames;
mod handshake;
mod recorded;
mod records;
