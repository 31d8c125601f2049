//! Lanes over Ethernet: both real ends of `roadtrain_ether_proto` over simulated links. One seed is one run.
//!
//! Checks of a run, in addition to those of the crate's other runs on data and requests:
//! - every request completes exactly once, whatever links do to frames, and in bounded virtual time once they behave;
//! - the pages of a write stay as they are until it is done;
//! - a lane ends only when an end closes it, or the target is gone: no cut, flood or move does it;
//! - time always advances, and idle lanes are almost silent.
//!
//! Hosts and the target are those of the other runs ([`crate::host`], [`crate::target`]); the parts specific to lanes
//! over Ethernet are in [`host`], [`target`] and [`setup`]. Hosts' queries about lanes are sent over the links;
//! discovery of the target and joining are not simulated frame by frame.

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

use crate::plan::SimPlan;
use crate::summary::Summary;
use crate::world::RunFailure;
use setup::EtherNetwork;

/// Runs a seed.
///
/// # Errors
/// The first violation found; assertions of the state machines included.
pub fn run(seed: u64) -> Result<Summary, RunFailure> {
    run_changed(seed, |_| {})
}

/// Runs a seed after `change` has altered its plan.
///
/// # Errors
/// As [`run`].
pub fn run_changed(seed: u64, change: impl FnOnce(&mut SimPlan)) -> Result<Summary, RunFailure> {
    crate::run_over::<EtherNetwork>(seed, change)
}
