//! Express connections beside bulk: opened and closed all the time, in whatever happens to the others.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::scenario::{
    Scenario, forgetting, half_open, killing, lost_resets, mixing, replaced, stalling, unread,
};

#[test]
fn lanes_with_express_connections_end_well() {
    let Some(sum) = sum_of_seeds(60, |seed| run_changed(seed, mixing)) else { return };
    assert!(sum.past.expressed > 2_000 && sum.past.expresses > 60, "{sum:?}");
    assert!(sum.past.retries > 100 && sum.tally.succeeded > 5_000, "{sum:?}");
}

#[test]
fn express_connections_are_as_safe_as_lanes() {
    let scenarios: [Scenario; 7] =
        [stalling, unread, killing, half_open, lost_resets, forgetting, replaced];
    for scenario in scenarios {
        let both = |plan: &mut Plan| {
            scenario(plan);
            mixing(plan);
        };
        let Some(sum) = sum_of_seeds(10, |seed| run_changed(seed, both)) else { return };
        assert!(sum.past.expressed > 20, "{sum:?}");
    }
}

/// The judge sees what is wrong about a target that lets hosts in too early, with express connections, too.
#[test]
fn a_target_that_does_not_wait_is_found_beside_express_connections() {
    let found = (0..300).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            stalling(plan);
            mixing(plan);
            plan.sabotage = Some(Sabotage::NoDrain);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}
