//! Write Uncorrectable: blocks are marked and written again while targets die, their saves fail, and paths are lost.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::scenario::{marking, marking_paths};

#[test]
fn what_is_marked_cannot_be_read_until_it_is_written() {
    let Some(sum) = sum_of_seeds(200, |seed| run_changed(seed, marking)) else { return };
    assert!(sum.tally.unreadable > 4_000 && sum.tally.succeeded > 10_000, "{sum:?}");
}

#[test]
fn marks_hold_over_two_paths() {
    let Some(sum) = sum_of_seeds(60, |seed| run_changed(seed, marking_paths)) else { return };
    assert!(sum.tally.unreadable > 1_000 && sum.tally.succeeded > 5_000, "{sum:?}");
}

/// The judge finds a target that answers before the mark is on stable storage.
#[test]
fn a_mark_that_was_not_saved_is_found() {
    let found = (0..50).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            marking(plan);
            plan.sabotage = Some(Sabotage::EarlyMark);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}
