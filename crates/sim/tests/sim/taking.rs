//! Hosts take the namespace from one another by reservations while their connections are cut: no command of a preempted
//! host is executed any more.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::taking;

#[test]
fn nothing_of_a_preempted_host_is_executed() {
    let Some(sum) = sum_of("taking", RunNetwork::Tcp, 60) else { return };
    let held = sum.held;
    sum.at_least([
        (held.tenures, 200),
        (held.written, 500),
        (held.writes, 1_000),
        (held.refused, 250),
    ]);
}

#[test]
fn nothing_of_a_preempted_host_is_executed_over_ethernet() {
    let Some(sum) = sum_of("taking", RunNetwork::Ethernet, 30) else { return };
    let held = sum.held;
    sum.at_least([(held.tenures, 60), (held.refused, 60)]);
}

#[test]
fn nothing_that_lies_unread_of_a_preempted_host_is_executed() {
    let Some(sum) = sum_of("taking-paths", RunNetwork::Tcp, 40) else { return };
    let held = sum.held;
    sum.at_least([
        (held.tenures, 200),
        (held.written, 500),
        (held.writes, 1_000),
        (held.refused, 250),
    ]);
}

/// The checker finds a target that responds before others' commands in its store have ended.
#[test]
fn a_target_that_does_not_wait_for_preempted_hosts_is_found() {
    let found = (0..40).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            taking(plan);
            plan.sabotage = Some(Sabotage::NoWait);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("has begun"), "{what}");
}
