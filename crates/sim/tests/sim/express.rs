//! Express connections next to bulk: opened and closed all the time, under all faults of other connections.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::{RunNetwork, Runs};
use roadtrain_sim::scenario::{drawn, mixing, stalling};
use std::iter;

#[test]
fn lanes_with_express_connections_end_well() {
    let Some(sum) = sum_of("mixing", RunNetwork::Tcp, 60) else { return };
    sum.at_least([
        (sum.past.expressed, 2_000),
        (sum.past.expresses, 60),
        (sum.past.retries, 100),
        (sum.tally.succeeded, 5_000),
    ]);
}

#[test]
fn express_connections_are_as_safe_as_lanes() {
    for scenario in
        ["stalling", "unread", "killing", "half-open", "lost-resets", "forgetting", "replaced"]
    {
        let Some(sum) = sum_of(scenario, RunNetwork::Mixing, 10) else { continue };
        sum.at_least([(sum.past.expressed, 20)]);
    }
}

/// The checker finds a target that admits hosts too early, with express connections as well.
#[test]
fn a_target_that_does_not_wait_is_found_beside_express_connections() {
    let found = (0..300).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            stalling(plan);
            mixing(plan);
            plan.sabotage = Some(Sabotage::NoDrain);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// Paths stall, are cut and return while each path's lanes have express connections.
#[test]
fn express_connections_of_paths_end_well() {
    for (scenario, seeds) in [("paths", 60), ("late-write", 30), ("fence", 30)] {
        let Some(sum) = sum_of(scenario, RunNetwork::Mixing, seeds) else { continue };
        let past = sum.past;
        sum.at_least([(past.expressed, 1_000), (past.expresses, 100)]);
        // Connections were lost with requests in flight, and requests have moved.
        sum.at_least([(past.express_lost, 25), (past.moved, 250)]);
    }
}

/// The path that wrote is away when the power fails, and the other one is connected for the first time afterwards.
#[test]
fn a_path_without_a_past_reports_a_power_failure() {
    Runs::of("paths", RunNetwork::Mixing).unwrap().run(3_640_426_714).unwrap();
}

/// The checker finds a host that repeats requests of a lost express connection on another path at once.
#[test]
fn what_a_lost_express_connection_had_is_not_tried_early() {
    // Seeds that showed it are tried first: seconds instead of a minute.
    let found = iter::once(25).chain(0..300).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            drawn(plan);
            mixing(plan);
            plan.sabotage = Some(Sabotage::EarlyExpress);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}
