//! Hosts that count with Compare and Write while their connections are cut: no increment is lost, and none is counted
//! twice.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::scenario::{counting, counting_paths};

#[test]
fn no_increment_is_lost_and_none_is_counted_twice() {
    let Some(sum) = sum_of_seeds(60, |seed| run_changed(seed, counting)) else { return };
    let counted = sum.counted;
    assert!(counted.done > 2_000 && counted.refused > 200, "{sum:?}");
    assert!(counted.resolved > 20 && counted.unknown > counted.resolved, "{sum:?}");
}

#[test]
fn hosts_with_two_paths_count_right() {
    let Some(sum) = sum_of_seeds(40, |seed| run_changed(seed, counting_paths)) else { return };
    let counted = sum.counted;
    assert!(counted.done > 1_000 && counted.unknown > 20, "{sum:?}");
}

/// The judge finds a target that compares and writes, and lets others do so in between.
#[test]
fn a_target_that_is_not_alone_with_the_blocks_is_found() {
    let found = (0..20).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            counting(plan);
            plan.sabotage = Some(Sabotage::NotAlone);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("is lost") || what.contains("accounted for"), "{what}");
}
