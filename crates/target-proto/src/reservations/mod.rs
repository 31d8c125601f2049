//! Reservations: who may read and write a namespace that several hosts share (NVMe Base 2.1, section 8.1.24).
//!
//! - [`State`] has the rules: it is what a namespace knows of registrants and of its reservation, and a command makes
//!   another one of it. It is what persists.
//! - `Reservations` is a namespace at a running target: commands take turns, a change is saved before it is in
//!   force, and answered when nothing is executed any more that it forbids.
//! - [`Access`] is what a lane looks at for each command: one load says that nothing is forbidden.
//! - `Notices` are the Reservation Notifications that a controller's host has not read.
//!
//! ```text
//! command -> turn -> rules -> saved -> in force -> fenced -> answered
//!              |       |        |          |          |
//!              |       refused  |          |          lanes have ended what is forbidden now
//!              |                |          accesses change, notices are given
//!              others wait      if it persists: a file, by somebody else
//! ```

mod access;
mod command;
mod control;
mod group;
mod image;
mod notices;
mod pending;
mod report;
mod state;
mod turns;

pub use access::Access;
pub use command::Command;
pub use group::Group;
pub use image::parse as parse_image;
pub use pending::Pending;
pub use state::{Change, HostId, REGISTRANTS_MAX, Registrant, Reservation, State};

pub(super) use control::data_bytes;
pub(super) use notices::Notices;
pub(super) use turns::{Asker, Reservations};
