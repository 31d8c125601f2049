//! Deterministic simulation of a host and a target: the real state machines of `roadtrain-proto` on a
//! simulated network, disk and clock. One seed is one run, the same everywhere.
//!
//! ```text
//!   load -> host's machines ==== network: splits, delays, resets ====> target's machines -> disk: loses power
//!    |                              one clock, one seed                                      |
//!    +--------------------------> history: requests and their results <----------------------+
//! ```
//!
//! ```
//! let summary = roadtrain_sim::run(7).expect("a seed that passes");
//! assert!(summary.steps > 0);
//! ```
//!
//! Checks of a run:
//! - data: each block is a register on which reads and writes are linearisable ([`history`]); acknowledged writes that
//!   were flushed, or written with FUA, survive a power loss;
//! - every request completes exactly once, and all of them complete in bounded virtual time once the network behaves;
//! - held work always has a wake-up: if no event is pending and requests are open, the run fails;
//! - counters that hosts increment by Compare and Write lose no increment and count none twice ([`counting`]), and no
//!   write comes between comparison and write;
//! - several targets may serve one disk: a write that has failed may be executed until its host has written the blocks
//!   again, and not after, over any path, and even if a target is paused;
//! - once a host has lost the namespace to another one by a reservation, none of its commands is executed any more
//!   ([`tenures`]);
//! - no slot leaks at either end, and the host ends up knowing the namespaces that the target has.
//!
//! The host retries requests that were in flight when its association was lost. That is safe only because the target
//! delays a new association until the commands of lost ones have ended (*the fence*, see [`target`]). Without it an old
//! write may come after a newer one, which the simulation finds (see [`plan::Sabotage`]). A power loss of the target
//! loses acknowledged writes that were not flushed. The write verifier reports that, and a flush that a host begins
//! later has to fail once.

mod commands;
pub mod connection;
pub mod counting;
pub mod diffie_hellman;
pub mod disk;
pub mod emulated_disk;
pub mod ends;
pub mod environment;
pub mod ether;
pub mod exclusion;
pub mod execution;
pub mod faults;
pub mod forger;
pub mod gateways;
pub mod history;
pub mod host;
pub mod lane;
pub mod link;
pub mod load;
mod marks_file;
pub mod network;
pub mod paths;
pub mod plan;
pub mod pool;
pub mod process;
pub mod reactor;
pub mod request;
pub mod rng;
pub mod runs;
pub mod scenario;
pub mod secure;
pub mod stores;
pub mod summary;
pub mod target;
mod target_config;
mod tcp;
pub mod tenures;
pub mod transport;
pub mod wire;
pub mod world;

use faults::Faults;
use network::Network;
use plan::SimPlan;
use std::panic::{AssertUnwindSafe, catch_unwind};
use summary::Summary;
use world::{RunFailure, SimRun};

/// Runs a seed.
///
/// # Errors
/// The first violation found; assertions of the state machines included.
pub fn run(seed: u64) -> Result<Summary, RunFailure> {
    run_changed(seed, scenario::drawn)
}

/// Runs a seed after `change` has altered its plan.
///
/// # Errors
/// As [`run`].
pub fn run_changed(seed: u64, change: impl FnOnce(&mut SimPlan)) -> Result<Summary, RunFailure> {
    run_over::<Network>(seed, change)
}

/// Runs a seed over a given network.
fn run_over<T: Faults>(
    seed: u64,
    change: impl FnOnce(&mut SimPlan),
) -> Result<Summary, RunFailure> {
    let result = catch_unwind(AssertUnwindSafe(|| SimRun::<T>::new(seed, change).run()));
    result.unwrap_or_else(|panic| Err(RunFailure::of_panic(seed, panic.as_ref())))
}
