//! Lanes over Ethernet: the real two ends of `roadtrain_proto::ether` over simulated links. One seed is one
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

pub mod flow;
mod forger;
pub mod host;
pub mod net;
pub mod plan;
pub mod setup;
pub mod target;
pub mod tcp;
pub mod world;

use crate::world::Failure;
use core::time::Duration;
use plan::{Fault, Plan};
use roadtrain_proto::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Summary, World};

/// Storage whose flushes fail and lose what they were for, and power losses that show it.
pub fn losing(plan: &mut Plan) {
    (plan.base.hosts, plan.base.blocks, plan.base.manners.losing_percent) = (3, 64, 25);
    // As with the scenario of that name over TCP.
    plan.faults.retain(|(_, fault)| !matches!(fault, Fault::Kill { .. }));
    let at = |part| Instant(0) + plan.base.chaos * part / 8;
    let loss = Fault::PowerLoss { time: Duration::from_millis(1) };
    plan.faults.extend((1..8).map(|part| (at(part), loss)));
    plan.faults.sort_by_key(|(at, _)| *at);
}

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
    let result = catch_unwind(AssertUnwindSafe(|| World::new(seed, change).run()));
    result.unwrap_or_else(|panic| Err(Failure::of_panic(seed, panic.as_ref())))
}
