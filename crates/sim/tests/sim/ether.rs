//! Seeds of lanes over Ethernet.

use crate::common::{assert_repeatable, sum_of, sum_of_seeds};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_sim::ends::ConnEnd;
use roadtrain_sim::ether::{run, run_changed};
use roadtrain_sim::plan::{Sabotage, SimFault, SimPlan};
use roadtrain_sim::runs::RunNetwork;

#[test]
fn every_seed_ends_well() {
    let Some(sum) = sum_of("drawn", RunNetwork::Ethernet, 200) else { return };
    // The runs exercised their purpose.
    sum.at_least([
        (sum.tally.succeeded, 30_000),
        (sum.made, 500),
        (sum.past.retries, 100),
        (sum.fates.lost, 1000),
        (sum.fates.dropped, 1000),
        (sum.fates.repeated, 1000),
        (sum.fates.damaged, 1000),
        (sum.foreign, 1000),
    ]);
}

/// Frames are sealed, and an attacker who knows the format alters, forges and repeats them. Without sealing one such
/// frame ends a lane, or tears a block.
fn forging(plan: &mut SimPlan) {
    (plan.authenticates, plan.ether.seals) = (true, true);
    let flood = SimFault::Flood { frames: 2000 };
    plan.faults.extend((1..10).map(|n| (Instant(n * 20_000_000), flood)));
    plan.faults.sort_by_key(|(at, _)| *at);
}

#[test]
fn seeds_with_sealed_frames_and_a_forger_end_well() {
    let Some(sum) = sum_of_seeds(25, |seed| run_changed(seed, forging)) else { return };
    sum.at_least([(sum.tally.succeeded, 1000), (sum.made, 20), (sum.refused, 1000)]);
}

/// Only recorded frames, repeated by an attacker, arrive from the target: hosts detect in time that it is silent. The
/// network's own faults have ended by then, so that no host has lost its controller for another reason.
#[test]
fn repeated_sealed_frames_hide_no_silence() {
    let silence = |plan: &mut SimPlan| {
        (plan.authenticates, plan.ether.seals, plan.hosts) = (true, true, 1);
        (plan.io_timeout, plan.pool_bytes) = (None, 32 << 20);
        (plan.keep_alive, plan.chaos) = (Duration::from_millis(100), Duration::from_millis(300));
        let echo = SimFault::Echo { to: ConnEnd::Host, time: Duration::from_millis(900) };
        plan.faults = vec![(Instant(400_000_000), echo)];
    };
    let Some(sum) = sum_of_seeds(20, |seed| run_changed(seed, silence)) else { return };
    assert!(sum.silent >= sum.seeds, "{sum:?}");
    sum.at_least([(sum.refused, 100)]);
}

/// Asserts that the checker reports `expected` with some seed.
fn assert_found(expected: &str, change: impl Fn(&mut SimPlan)) {
    let failures = (0..500).filter_map(|seed| run_changed(seed, &change).err());
    let found = failures.take(50).any(|failure| failure.what.contains(expected));
    assert!(found, "no seed reports: {expected}");
}

#[test]
fn a_forgotten_command_is_found() {
    assert_found("stuck", |plan| plan.sabotage = Some(Sabotage::DroppedResponse));
}

/// Commands of an old lane overwrite writes that followed their retries.
#[test]
fn a_new_lane_without_fence_is_found() {
    assert_found("which is none of", |plan| {
        plan.sabotage = Some(Sabotage::NoFence);
        plan.blocks = 16;
        plan.behaviour.slow_percent = 50;
        let stall = SimFault::StallDisk { time: Duration::from_millis(15) };
        let faults = [(0, stall), (2_000_000, SimFault::Leave(ConnEnd::Host))];
        let at = |round: u64, after| Instant(round * 20_000_000 + after);
        plan.faults = (1..8)
            .flat_map(|round| faults.map(|(after, fault)| (at(round, after), fault)))
            .collect();
    });
}

/// Without checksums of bodies damage goes undetected: with them the runs above find none.
#[test]
fn damage_without_check_sum_is_found() {
    assert_found("a block is torn or strange", |plan| {
        plan.ether.body_crc = false;
        let directions = plan.ether.links.iter_mut().flat_map(|link| &mut link.directions);
        directions.for_each(|direction| {
            (direction.damaged_ppm, direction.damages_bodies) = (50_000, true)
        });
    });
}

#[test]
fn a_failed_flush_is_reported_to_every_host_that_has_lost_something() {
    let Some(sum) = sum_of("losing", RunNetwork::Ethernet, 100) else { return };
    sum.at_least([(sum.tally.lost, 300), (sum.tally.succeeded, 5_000)]);
}

#[test]
fn a_seed_is_a_run() {
    assert_repeatable(3, run);
}
