//! Hosts count with Compare and Write while their connections are cut: no increment is lost or counted twice.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::counting;

#[test]
fn no_increment_is_lost_and_none_is_counted_twice() {
    let Some(sum) = sum_of("counting", RunNetwork::Tcp, 60) else { return };
    let counted = sum.counted;
    sum.at_least([(counted.done, 2_000), (counted.refused, 200)]);
    assert!(counted.unknown > counted.resolved, "{sum:?}");
    sum.at_least([(counted.resolved, 20)]);
}

#[test]
fn hosts_with_two_paths_count_right() {
    let Some(sum) = sum_of("counting-paths", RunNetwork::Tcp, 40) else { return };
    let counted = sum.counted;
    sum.at_least([(counted.done, 1_000), (counted.unknown, 20)]);
}

/// The checker finds a target that does not exclude other commands between comparison and write.
#[test]
fn a_target_that_is_not_alone_with_the_blocks_is_found() {
    let found = (0..20).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            counting(plan);
            plan.sabotage = Some(Sabotage::NotAlone);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("is lost") || what.contains("accounted for"), "{what}");
}
