//! Hosts that take the namespace from one another by reservations while their connections are cut: nothing of a host that
//! was shut out is executed any more.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::scenario::{taking, taking_paths};
use roadtrain_sim::{ether, run_changed};

#[test]
fn nothing_of_a_preempted_host_is_executed() {
    let Some(sum) = sum_of_seeds(60, |seed| run_changed(seed, taking)) else { return };
    let held = sum.held;
    assert!(held.tenures > 200 && held.written > 500, "{sum:?}");
    assert!(held.writes > 1_000 && held.refused > 250, "{sum:?}");
}

#[test]
fn nothing_of_a_preempted_host_is_executed_over_ethernet() {
    let run = |seed| ether::run_changed(seed, taking);
    let Some(sum) = sum_of_seeds(30, run) else { return };
    let held = sum.held;
    assert!(held.tenures > 100 && held.refused > 100, "{sum:?}");
}

#[test]
fn nothing_that_lies_unread_of_a_preempted_host_is_executed() {
    let Some(sum) = sum_of_seeds(40, |seed| run_changed(seed, taking_paths)) else { return };
    let held = sum.held;
    assert!(held.tenures > 200 && held.written > 500, "{sum:?}");
    assert!(held.writes > 1_000 && held.refused > 250, "{sum:?}");
}

/// The judge finds a target that answers before what others have in its store has ended.
#[test]
fn a_target_that_does_not_wait_for_preempted_hosts_is_found() {
    let found = (0..40).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            taking(plan);
            plan.sabotage = Some(Sabotage::NoWait);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("has begun"), "{what}");
}
