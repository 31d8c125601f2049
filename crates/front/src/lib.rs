//! Ways to show a remote namespace as a local block device.
//!
//! A front-end has its place in [`spec`] (how `--as` names it), implements [`attachment::Attachment`], and adds
//! what it leaves behind when it is killed to [`leftover`].
#![deny(unsafe_code)]

pub mod attachment;
pub mod disk;
pub mod fuse;
mod holders;
pub mod leftover;
pub mod nbd;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
pub mod spec;
pub mod ublk;
pub mod vhost_user;
mod writeback;
