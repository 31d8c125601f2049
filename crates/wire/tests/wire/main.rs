//! Formats against recordings, second opinions and arbitrary bytes, in one test program.

mod ether;
mod properties;
mod recorded;
