//! The part that all fronts share: a namespace as a disk that takes requests for any range of bytes.
//!
//! ```text
//! front's request -> LiveDisk::check -> DiskJobs -> plan, guard -> whole blocks -> the lane   (inline, one reactor)
//! ```
//!
//! | file | purpose |
//! |---|---|
//! | `info` | properties of the namespace: [`DiskInfo`] |
//! | `live` | the namespace while it is served, with its changes: [`LiveDisk`] |
//! | `watch` | follows the namespace's changes |
//! | `poller` | a thread that runs a check periodically |
//! | `request` | a front's requests |
//! | `plan` | a range of bytes as pieces of whole blocks |
//! | `guard` | keeps read-modify-write apart from other writes |
//! | `jobs` | requests in flight on the lane |
//! | `fault` | causes of failed requests, with their errno |
//! | `idle_front` | the front of a reactor that has nothing to serve |
//!
//! **A front with memory of its own** (a socket, a guest's memory, `/dev/fuse`) passes requests to `DiskJobs::start`.
//! It copies a Write's payload in with `DiskJobs::fill` (or piece by piece, see `DiskJobs::payload`) and a Read's data
//! out with `DiskJobs::remove`. **A front whose requests have a [`Buffer`](roadtrain_system::buffer::Buffer) that the
//! kernel fills and reads** passes those for which `DiskJobs::is_whole` holds to `DiskJobs::start_with`: that very
//! buffer goes to the lane and comes back.

mod fault;
mod guard;
#[cfg(test)]
pub(crate) mod harness;
mod idle_front;
mod info;
mod jobs;
mod live;
mod plan;
mod poller;
mod request;
mod watch;

pub(crate) use fault::DiskFault;
pub(crate) use idle_front::IdleFront;
#[cfg(test)]
pub(crate) use info::test_info;
pub use info::{DiskInfo, NoNamespace};
pub(crate) use jobs::{DiskJobs, JobKey, PartKey, Started, tag_of};
pub use live::LiveDisk;
pub(crate) use poller::Poller;
pub(crate) use request::{DiskOp, DiskRequest};
pub(crate) use watch::NamespaceWatch;
