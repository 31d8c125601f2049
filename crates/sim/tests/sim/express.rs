//! Express connections beside bulk: opened and closed all the time, in whatever happens to the others.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::scenario::{
    Scenario, fence, forgetting, half_open, killing, late_write, lost_resets, mixing, paths,
    replaced, stalling, unread,
};
use roadtrain_sim::world::Summary;

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

/// A scenario with two paths, whose lanes open and close express connections all the time.
fn on_paths(scenario: Scenario) -> impl Fn(&mut Plan) {
    move |plan| {
        scenario(plan);
        mixing(plan);
    }
}

/// Paths stall, are cut and return while each path's lanes have express connections.
#[test]
fn express_connections_of_paths_end_well() {
    let scenarios: [(Scenario, u64); 3] = [(paths, 100), (late_write, 60), (fence, 60)];
    for (scenario, seeds) in scenarios {
        let run = |seed| run_changed(seed, on_paths(scenario));
        let Some(Summary { past, .. }) = sum_of_seeds(seeds, run) else { return };
        assert!(past.expressed > 2_000 && past.expresses > 200, "{past:?}");
        // Connections were lost that had something, and requests have moved.
        assert!(past.express_lost > 50 && past.moved > 500, "{past:?}");
    }
}

/// The judge finds a host that tries at once on another path what a lost express connection had.
#[test]
fn what_a_lost_express_connection_had_is_not_tried_early() {
    for scenario in [late_write as Scenario, fence] {
        let found = (0..300).find_map(|seed| {
            let wrong = |plan: &mut Plan| {
                on_paths(scenario)(plan);
                plan.sabotage = Some(Sabotage::EarlyExpress);
            };
            run_changed(seed, wrong).err()
        });
        let what = found.expect("it goes wrong with some seed").what;
        assert!(what.contains("which is none of"), "{what}");
    }
}
