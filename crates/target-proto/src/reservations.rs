//! Reservations of a namespace that several hosts share (NVMe Base 2.1, section 8.1.24).
//!
//! - [`ReservationState`] has the rules: the registrants and the reservation of a namespace, which commands change. It is the
//!   persistent part.
//! - `NamespaceReservations` is the same at a running target: commands execute one after the other. A change is saved before it
//!   takes effect, and its command completes once no forbidden command is executing.
//! - [`HostAccess`] is the value that a lane checks for each command: one load shows that nothing is forbidden.
//! - `ReservationNotices` are the Reservation Notifications that a controller's host has not read.
//!
//! ```text
//! command -> turn -> rules -> saved -> in force -> fenced -> completed
//!              |       |        |          |          |
//!              |       refused  |          |          lanes have ended forbidden commands
//!              |                |          accesses change, notices are raised
//!              others wait      if it persists: a file, by the owner of the stores
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

pub use access::HostAccess;
pub use command::ReservationCommand;
pub use group::CommandGroup;
pub use image::parse as parse_image;
pub use pending::PendingReservations;
pub use state::{
    HostId, REGISTRANTS_MAX, Registrant, Reservation, ReservationEffects, ReservationState,
};

pub(super) use control::data_bytes;
pub(super) use notices::ReservationNotices;
pub(super) use turns::{NamespaceReservations, ReservationOrigin};
