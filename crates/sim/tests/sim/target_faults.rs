//! Faults of the target and its store, with their expected effects.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::{
    SimScenario, power_loss, resizing, stalling, unheard, unheard_stalling,
};

#[test]
fn nothing_overtakes_what_a_stalled_store_still_has() {
    let Some(sum) = sum_of("stalling", RunNetwork::Tcp, 150) else {
        return;
    };
    sum.at_least([
        (sum.tally.succeeded, 10_000),
        (sum.past.retries, 1_000),
        (sum.target.busy, 100),
    ]);
}

/// The checker finds a target that admits hosts too early.
#[test]
fn a_target_that_does_not_wait_for_its_store_is_found() {
    let found = (0..300).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            stalling(plan);
            plan.sabotage = Some(Sabotage::NoDrain);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// Bytes that are unread when the host is back are never executed.
#[test]
fn stale_unread_lanes_are_closed() {
    let Some(sum) = sum_of("unread", RunNetwork::Tcp, 150) else { return };
    sum.at_least([(sum.target.stale_closed, 50), (sum.tally.succeeded, 10_000)]);
}

/// Hosts lose their connections while the target does not read them and is not notified. It closes them because the
/// hosts name the controllers that they have lost.
#[test]
fn what_a_lost_controller_has_not_read_is_never_executed() {
    let Some(sum) = sum_of("unheard", RunNetwork::Tcp, 100) else { return };
    sum.at_least([(sum.past.fenced, 200), (sum.tally.succeeded, 10_000)]);
}

#[test]
fn what_a_lost_controller_has_in_its_store_is_waited_for() {
    let Some(sum) = sum_of("unheard-stalling", RunNetwork::Tcp, 100) else { return };
    sum.at_least([(sum.past.fenced, 200), (sum.tally.succeeded, 10_000)]);
}

/// The checker finds a target that only pretends to have ended other controllers, or that does not wait for their
/// commands.
#[test]
fn a_target_that_does_not_end_lost_controllers_is_found() {
    for (scenario, sabotage) in [
        (unheard as SimScenario, Sabotage::NoReset),
        (unheard_stalling, Sabotage::NoReset),
        (unheard_stalling, Sabotage::NoDrain),
    ] {
        let wrong = |plan: &mut SimPlan| {
            scenario(plan);
            plan.sabotage = Some(sabotage);
        };
        let found = (0..300).find_map(|seed| run_changed(seed, wrong).err());
        let what = found.expect("it goes wrong with some seed").what;
        assert!(what.contains("which is none of"), "{sabotage:?}: {what}");
    }
}

/// In two runs one connection was swallowed, and the reset of another one was not reported to the target, which did not
/// read for a while either.
#[test]
fn resets_that_were_lost_while_the_target_did_not_read_are_survived() {
    for seed in [3_002_263, 3_010_194] {
        run_changed(seed, |_| {}).expect("nothing old comes behind what is new");
    }
}

/// The namespace in use changes its size all the time, which no request notices.
#[test]
fn a_namespace_is_resized_under_load() {
    let Some(sum) = sum_of("resizing", RunNetwork::Tcp, 100) else { return };
    sum.at_least([(sum.tally.succeeded, 10_000), (sum.past.events, 500)]);
}

/// The last change of a run replaces a namespace by another one: it appears when hosts have had time to notice the
/// removal of the old one.
#[test]
fn a_namespace_that_takes_the_place_of_another_appears() {
    run_changed(2134, resizing).expect("it appears in the end");
}

#[test]
fn a_flush_fails_once_after_a_power_loss_that_took_acknowledged_writes() {
    let Some(sum) = sum_of("power-loss", RunNetwork::Tcp, 100) else { return };
    sum.at_least([(sum.past.writes_lost, 300), (sum.tally.lost, 200)]);
}

/// The checker finds a target that does not report its power losses.
#[test]
fn a_power_loss_that_no_flush_reports_is_found() {
    let found = (0..100).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            power_loss(plan);
            plan.sabotage = Some(Sabotage::SameVerifier);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("the power took acknowledged writes"), "{what}");
}
