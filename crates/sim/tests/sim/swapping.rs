//! Hosts replace blocks by Compare and Write while others write them: no write comes between comparison and write.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::swapping;

#[test]
fn nothing_comes_between_comparison_and_write() {
    let Some(sum) = sum_of("swapping", RunNetwork::Tcp, 60) else { return };
    sum.at_least([
        (sum.tally.swapped, 1_000),
        (sum.tally.refused, 1_000),
        (sum.target.moved, 1_000),
    ]);
}

/// The checker finds targets that let others write in between: with buffers, and into memory that is lent.
#[test]
fn writes_that_come_between_are_found() {
    for sabotage in [Sabotage::NotAlone, Sabotage::OpenPlaces] {
        let found = (0..400).find_map(|seed| {
            let wrong = |plan: &mut SimPlan| {
                swapping(plan);
                plan.sabotage = Some(sabotage);
            };
            run_changed(seed, wrong).err()
        });
        let what = found.unwrap_or_else(|| panic!("{sabotage:?} is not found")).what;
        assert!(what.contains("block"), "{sabotage:?}: {what}");
    }
}
