//! A namespace as a kernel block device, `/dev/ublkbN`, served from user space (Linux 6.0, `ublk_drv`).
//!
//! ```text
//! /dev/ublkbN -> driver -> reactor's ring -> tags -> request -> Jobs -> the lane     (inline, one reactor)
//!                             ^                         |
//!                             +--- commit: the buffer is back, which the driver knows
//! ```
//!
//! Each of the device's queues belongs to one reactor. The driver copies a write's data into the buffer of its
//! tag before it hands the tag over, and a read's out of it when the tag is committed; that very buffer goes
//! through the lane.
//!
//! | file | purpose |
//! |---|---|
//! | `abi` | the driver's structs and numbers |
//! | `control_ring`, `control` | the control device: commands on devices |
//! | `device` | a device is made, taken over, deleted |
//! | `params` | what the system is told of a disk |
//! | `descriptors` | what the driver writes of requests |
//! | `tags` | a queue: whose each tag is, and its buffer |
//! | `request` | the system's request -> a disk's |
//! | `server` | the reactor's front: its queues |
//! | `pending` | the reactor's front before there are queues |
//! | `shared` | what queues and attachment tell each other |
//! | `follow` | changes of the namespace's size |
//! | `end` | a device is taken away |
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
