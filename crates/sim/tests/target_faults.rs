//! Faults of the target and its store, each with what it has to lead to.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::scenario::{resizing, stalling, unread};

#[test]
fn nothing_overtakes_what_a_stalled_store_still_has() {
    let Some(sum) = sum_of_seeds(150, |seed| run_changed(seed, stalling)) else {
        return;
    };
    assert!(sum.tally.succeeded > 10_000 && sum.past.retries > 1_000, "{sum:?}");
    assert!(sum.fence.busy > 100, "hosts came back while the store had their commands: {sum:?}");
}

/// The judge sees what is wrong about a target that lets hosts in too early.
#[test]
fn a_target_that_does_not_wait_for_its_store_is_found() {
    let found = (0..300).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            stalling(plan);
            plan.sabotage = Some(Sabotage::NoDrain);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// Octets that nobody has read yet when the host is back are never executed.
#[test]
fn lanes_that_are_not_read_are_swept() {
    let Some(sum) = sum_of_seeds(150, |seed| run_changed(seed, unread)) else { return };
    assert!(sum.fence.swept > 50 && sum.tally.succeeded > 10_000, "{sum:?}");
}

/// The namespace in use changes its size all the time, and no request notices.
#[test]
fn a_namespace_is_resized_under_load() {
    let Some(sum) = sum_of_seeds(100, |seed| run_changed(seed, resizing)) else { return };
    assert!(sum.tally.succeeded > 10_000 && sum.past.events > 500, "{sum:?}");
}

/// The last change of a run puts a namespace in the place of another one: it appears when hosts have had their time to
/// notice that the old one went.
#[test]
fn a_namespace_that_takes_the_place_of_another_appears() {
    run_changed(2134, resizing).expect("it appears in the end");
}
