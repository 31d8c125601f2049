//! Ways to show a remote namespace as a local block device.
#![deny(unsafe_code)]

pub mod nbd;
