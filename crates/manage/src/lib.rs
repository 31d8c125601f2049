//! Management of running targets and attachments with existing tools. Nothing here is on the data path: it has threads
//! of its own, and reads what reactors have stored.
#![deny(unsafe_code)]

pub mod bursts;
pub mod http;
pub mod metrics;
pub mod model;
pub mod rpc;
pub mod volumes;

#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
