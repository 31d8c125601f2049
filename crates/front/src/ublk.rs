//! A namespace as a kernel block device, `/dev/ublkbN`, served from user space (Linux 6.0, `ublk_drv`).
//!
//! ```text
//! /dev/ublkbN -> driver -> reactor's ring -> tags -> request -> DiskJobs -> the lane (inline, one reactor)
//!                             ^                         |
//!                             +--- commit: the buffer is back, which the driver knows
//! ```
//!
//! Each of the device's queues belongs to one reactor. The driver copies a write's data into the buffer of its tag
//! before it hands the tag over. It copies a read's data out of the buffer when the tag is committed. That very buffer
//! goes through the lane.
//!
//! | file | purpose |
//! |---|---|
//! | `abi` | the driver's structs and numbers |
//! | `control_ring`, `control` | the control device: commands on devices |
//! | `device` | a device is made, taken over, deleted |
//! | `params` | a disk's parameters for the driver |
//! | `descriptors` | the tags' requests, written by the driver |
//! | `tags` | a queue: owner and buffer of each tag |
//! | `request` | a tag's request -> a disk request |
//! | `server` | the reactor's front: its queues |
//! | `pending` | the reactor's front before there are queues |
//! | `shared` | state that queues and attachment share |
//! | `follow` | changes of the namespace's size |
//! | `end` | removal of a device |
//! | `attach` | all of it: [`UblkAttachment`] |

mod abi;
mod attach;
mod control;
mod control_ring;
mod descriptors;
mod device;
mod end;
mod follow;
mod params;
mod pending;
mod request;
mod server;
mod shared;
mod tags;

pub use attach::{QUEUE_DEPTH, UblkAttachment, UblkConfig};
pub use device::remove;
