//! Several targets over one disk: whatever becomes of one, nothing old comes behind what is newer.

use crate::common::sum_of;
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::Lanes;
use roadtrain_sim::scenario::standing_still;

#[test]
fn a_target_that_stood_still_executes_nothing_old() {
    let Some(sum) = sum_of("standing-still", Lanes::Tcp, 60) else { return };
    sum.at_least([(sum.expired, 60), (sum.past.moved, 200), (sum.tally.succeeded, 5_000)]);
}

/// The judge finds a target that executes what it has received before it checks keep-alive timers.
#[test]
fn a_target_that_checks_its_timers_too_late_is_found() {
    let found = (0..300).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            standing_still(plan);
            plan.sabotage = Some(Sabotage::LateCheck);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}
