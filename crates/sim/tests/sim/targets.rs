//! Several targets over one disk: no fault of a target leads to an old write after a newer one.

use crate::cases::is_thorough;
use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::{SimScenario, drawn, failing_fast, moving, standing_still, sticking};
use std::ops::Range;

#[test]
fn hosts_of_several_targets_end_well() {
    let Some(sum) = sum_of("targets", RunNetwork::Tcp, 200) else { return };
    sum.at_least([
        (sum.target.expired, 100),
        (sum.past.moved, 200),
        (sum.past.surrenders, 50),
        (sum.past.detached, 20),
        (sum.tally.succeeded, 10_000),
    ]);
}

#[test]
fn a_write_that_a_target_claims_is_waited_for() {
    let Some(sum) = sum_of("sticking", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.past.fenced, 100), (sum.past.moved, 100)]);
}

#[test]
fn a_write_that_has_failed_is_not_executed_behind_a_newer_one() {
    let Some(sum) = sum_of("failing-fast", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.past.surrenders, 60), (sum.past.detached, 10), (sum.tally.failed, 60)]);
}

#[test]
fn another_target_at_the_address_proves_nothing() {
    let Some(sum) = sum_of("moving", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.past.associations, 100), (sum.tally.succeeded, 3_000)]);
}

#[test]
fn a_target_that_stood_still_executes_nothing_old() {
    let Some(sum) = sum_of("standing-still", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.target.expired, 60), (sum.past.moved, 200), (sum.tally.succeeded, 5_000)]);
}

/// A process writes, detaches without a response, and then the power fails.
#[test]
fn losses_of_a_process_are_not_reported_to_the_next_one() {
    run_changed(3_649_792_919, drawn).expect("no flush of the next process has to fail");
}

/// Without keep-alive, a process inherits a controller of a target that was killed: only its second path leads there.
#[test]
fn another_path_may_find_that_a_controller_has_ended_with_its_target() {
    run_changed(3_649_797_071, drawn).expect("the writes are tried again");
}

/// A detaching process connects no more, while a target has a write in its store for longer than the quiet time: the
/// next process has to wait for it.
#[test]
fn a_write_that_was_claimed_is_inherited_though_nothing_has_checked_it_since() {
    run_changed(1_001_789, drawn).expect("the old write does not come behind a newer one");
}

/// As above while the first path is busy with its own target: only the second one leads to the target that has the
/// write.
#[test]
fn an_inherited_write_waits_until_its_target_was_tried() {
    run_changed(81_000_079, failing_fast).expect("the old write does not come behind a newer one");
}

/// Rules with the scenario made for each, and a seed after which a run soon fails without the rule.
const RULES: [(Sabotage, SimScenario, u64); 4] = [
    (Sabotage::IgnoredClaim, sticking, 0),
    (Sabotage::OpenBlocks, failing_fast, 14),
    (Sabotage::OnePlace, moving, 147),
    (Sabotage::LateCheck, standing_still, 21),
];

/// Returns the first of these seeds that fails without the rule, and its failure.
fn first_failure(sabotage: Sabotage, scenario: SimScenario, seeds: Range<u64>) -> (u64, String) {
    let found = seeds.clone().find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            scenario(plan);
            plan.sabotage = Some(sabotage);
        };
        Some((seed, run_changed(seed, wrong).err()?.what))
    });
    found.unwrap_or_else(|| panic!("{sabotage:?} is not found in seeds {seeds:?}"))
}

#[test]
fn each_rule_is_missed_when_it_is_left_out() {
    for (sabotage, scenario, first) in RULES {
        let (seed, what) = first_failure(sabotage, scenario, first..first + 400);
        println!("{sabotage:?}: seed {seed}: {what}");
        assert!(what.contains("which is none of"), "{sabotage:?}: {what}");
    }
}

/// Drawn seeds find the same faults: some of them have several targets.
#[test]
fn drawn_seeds_miss_each_rule_that_is_left_out() {
    if !is_thorough() {
        return;
    }
    for (sabotage, ..) in RULES {
        let (seed, what) = first_failure(sabotage, drawn, 0..2_000);
        println!("{sabotage:?}: drawn seed {seed}: {what}");
        assert!(what.contains("which is none of"), "{sabotage:?}: {what}");
    }
}
