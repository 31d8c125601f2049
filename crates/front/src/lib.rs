//! Front-ends: show a remote namespace as a local block device.
//!
//! ```text
//!   programs     kernel (ublk, FUSE)     virtual machine (vhost-user)     NBD clients
//!                        |                          |                         |
//!                    ublk, fuse                vhost_user                    nbd
//!                        +--------------------------+-------------------------+
//!                                       disk: any range of bytes
//!                                           |  whole blocks, in pool buffers
//!                                       a lane of the same reactor (roadtrain-host-engine)
//! ```
//!
//! Each front-end is listed in [`spec`] (its name in `--as`), implements [`attachment::Attachment`], and adds the
//! resources that a killed process leaves to [`system_resource`].
//!
//! ```no_run
//! use roadtrain_host_engine::HostConfig;
//! use roadtrain_front::attachment::Attachment;
//! use roadtrain_front::nbd::{NbdAttachment, NbdConfig};
//! use std::net::SocketAddr;
//!
//! let target: SocketAddr = "192.0.2.7:4420".parse()?;
//! let host_nqn = "nqn.2025-01.io.example:host";
//! let config = HostConfig::new(target, "nqn.2025-01.io.example:disk", host_nqn, [7; 16]);
//! let nbd = NbdConfig::new(1, "nbd:unix:/run/disk.sock".parse()?);
//! let attachment = Box::new(NbdAttachment::start(config, &nbd)?);
//! println!("{}", attachment.devices()[0].names[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod attachment;
pub mod bitmaps;
#[cfg(test)]
#[path = "../../../tests/lib/cases.rs"]
mod cases;
pub mod disk;
pub mod fuse;
mod holders;
pub mod nbd;
mod reclaim;
#[cfg(test)]
#[path = "../../../tests/lib/skipped.rs"]
mod skipped;
pub mod spec;
pub mod system_resource;
pub mod ublk;
pub mod vhost_user;
mod writeback;
