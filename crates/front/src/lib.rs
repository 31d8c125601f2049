//! Ways to show a remote namespace as a local block device.
#![forbid(unsafe_code)]

pub mod nbd;
