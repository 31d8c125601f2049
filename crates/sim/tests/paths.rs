//! Hosts with two paths: whatever becomes of one, nothing is executed twice with something in between.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::scenario::{late_write, losing, paths};

#[test]
fn hosts_with_two_paths_end_well() {
    let Some(sum) = sum_of_seeds(60, |seed| run_changed(seed, paths)) else { return };
    assert!(sum.past.moved > 500 && sum.past.released > 60, "{sum:?}");
    assert!(sum.past.fenced > 60 && sum.tally.succeeded > 5_000, "{sum:?}");
}

#[test]
fn a_late_write_of_a_lost_path_does_no_harm() {
    let Some(sum) = sum_of_seeds(40, |seed| run_changed(seed, late_write)) else { return };
    assert!(sum.past.moved > 200, "{sum:?}");
}

/// The judge finds a host that tries everything on another path at once.
#[test]
fn a_host_that_does_not_wait_for_its_lost_path_is_found() {
    let found = (0..100).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            late_write(plan);
            plan.sabotage = Some(Sabotage::EarlyMove);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// What a store loses is told to a host that writes and flushes by several paths.
#[test]
fn what_a_store_loses_is_told_over_several_paths() {
    let both = |plan: &mut Plan| {
        losing(plan);
        paths(plan);
    };
    let Some(sum) = sum_of_seeds(40, |seed| run_changed(seed, both)) else { return };
    assert!(sum.tally.lost > 10 && sum.past.moved > 100, "{sum:?}");
}
