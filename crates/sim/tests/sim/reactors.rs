//! Targets of several reactors: late messages, threads that wait for a core, lanes that move, memory that is lent.

use crate::common::sum_of;
use roadtrain_sim::plan::{ReactorsPlan, Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::{SimScenario, lost_resets, taking};

#[test]
fn lanes_move_and_messages_are_late() {
    let Some(sum) = sum_of("reactors", RunNetwork::Tcp, 100) else { return };
    sum.at_least([
        (sum.target.moved, 20_000),
        (sum.past.retries, 1_000),
        (sum.tally.succeeded, 20_000),
    ]);
}

#[test]
fn messages_for_lanes_over_ethernet_are_late() {
    let Some(sum) = sum_of("reactors", RunNetwork::Ethernet, 30) else { return };
    sum.at_least([(sum.past.retries, 300), (sum.tally.succeeded, 5_000)]);
}

/// Returns the failure of the first seed that fails with this fault of the target.
fn first_failure(sabotage: Sabotage, scenario: SimScenario) -> String {
    let wrong = |plan: &mut SimPlan| {
        scenario(plan);
        plan.reactors = ReactorsPlan { count: 3, inbox_delay_us: 500, moves: 2_000 };
        plan.sabotage = Some(sabotage);
    };
    let found = (0..500).find_map(|seed| run_changed(seed, wrong).err());
    found.expect("it goes wrong with some seed").what
}

#[test]
fn an_event_that_does_not_follow_its_lane_is_found() {
    let what = first_failure(Sabotage::LostEvents, lost_resets);
    assert!(what.contains("stuck"), "{what}");
}

#[test]
fn a_reservation_that_waits_for_one_reactor_is_found() {
    let what = first_failure(Sabotage::OneReactor, taking);
    assert!(what.contains("has begun"), "{what}");
}
