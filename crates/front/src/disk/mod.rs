//! What all fronts share: a namespace as a disk that takes requests for any range of octets.
//!
//! ```text
//! front's request -> Disk::check -> Jobs -> plan, guard -> whole blocks -> the lane   (inline, one reactor)
//! ```
//!
//! | file | purpose |
//! |---|---|
//! | `info` | what the namespace is like: [`DiskInfo`] |
//! | `live` | the same while it is served, with its changes: [`Disk`] |
//! | `watch` | follows the namespace's changes |
//! | `poller` | a thread that looks from time to time |
//! | `request` | what a front asks for, and whether that can be |
//! | `plan` | a range of octets as pieces of whole blocks |
//! | `guard` | keeps read-modify-write apart from other writes |
//! | `jobs` | requests on their way through the lane |
//! | `fault` | why a request failed, and its errno |
//! | `nothing` | the front of a reactor that has nothing to serve |
//!
//! **A front with memory of its own** (a socket, a guest's memory, `/dev/fuse`) gives requests to
//! `Jobs::start`, copies a Write's payload in with `Jobs::fill` (or piece by piece, see
//! `Jobs::payload`) and a Read's data out with `Jobs::remove`. **A front whose requests have a
//! [`Buffer`](roadtrain_system::buffer::Buffer) that the kernel fills and reads** gives those for which
//! `Jobs::is_whole` holds to `Jobs::start_with`: that very buffer goes to the lane and comes back.

mod fault;
mod guard;
#[cfg(test)]
pub(crate) mod harness;
mod info;
mod jobs;
mod live;
mod nothing;
mod plan;
mod poller;
mod request;
mod watch;

pub(crate) use fault::Fault;
#[cfg(test)]
pub(crate) use info::test_info;
pub use info::{DiskInfo, NoNamespace};
pub(crate) use jobs::{JobKey, Jobs, PartKey, Started, tag_of};
pub use live::Disk;
pub(crate) use nothing::Nothing;
pub(crate) use poller::Poller;
pub(crate) use request::{DiskOp, DiskRequest};
pub(crate) use watch::Watch;
