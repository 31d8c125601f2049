//! Write Uncorrectable: blocks are marked and written again while targets die, their saves fail, and paths are lost.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::marking;

#[test]
fn what_is_marked_cannot_be_read_until_it_is_written() {
    let Some(sum) = sum_of("marking", RunNetwork::Tcp, 200) else { return };
    sum.at_least([(sum.tally.unreadable, 4_000), (sum.tally.succeeded, 10_000)]);
}

#[test]
fn marks_hold_over_two_paths() {
    let Some(sum) = sum_of("marking-paths", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.tally.unreadable, 1_000), (sum.tally.succeeded, 5_000)]);
}

/// The checker finds a target that responds before the mark is on stable storage.
#[test]
fn a_mark_that_was_not_saved_is_found() {
    let found = (0..50).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            marking(plan);
            plan.sabotage = Some(Sabotage::EarlyMark);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}
