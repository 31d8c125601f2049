//! Lanes over Ethernet: the real two ends of `roadtrain_ether_proto` over simulated links. One seed is one
//! run.
//!
//! What a run checks, beside what the crate's other runs check of data and of requests:
//! - every request completes exactly once, whatever links do to frames, and in bounded virtual time once
//!   they behave;
//! - the pages of a write stay as they are until it is done;
//! - a lane ends only when somebody ends it, or the target is gone: no cut, flood or move does it;
//! - no moment goes on for ever, and idle lanes are almost silent.
//!
//! Hosts and the target are those of the other runs ([`crate::host`], [`crate::target`]); what is different about
//! lanes over Ethernet is in [`host`], [`target`] and [`setup`]. What hosts ask about lanes goes over the
//! links; that a host finds its target and joins is by word of mouth.

mod cipher;
mod faults;
pub mod flow;
mod forger;
pub mod host;
pub mod net;
pub mod packet;
pub mod plan;
pub mod settings;
pub mod setup;
pub mod target;
pub mod tcp;
mod transport;

use crate::plan::Plan;
use crate::summary::Summary;
use crate::world::Failure;
use setup::Ether;

/// The run of a seed.
///
/// # Errors
/// What may not be; assertions of the state machines included.
pub fn run(seed: u64) -> Result<Summary, Failure> {
    run_changed(seed, |_| {})
}

/// The run of a seed whose plan `change` departs from.
///
/// # Errors
/// As [`run`].
pub fn run_changed(seed: u64, change: impl FnOnce(&mut Plan)) -> Result<Summary, Failure> {
    crate::run_over::<Ether>(seed, change)
}
