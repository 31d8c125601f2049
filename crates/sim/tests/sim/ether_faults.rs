//! Faults of the runs over TCP, with lanes over Ethernet. Each run exercised its purpose.

use crate::common::{sum_of, sum_of_seeds};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_sim::ether::run_changed;
use roadtrain_sim::plan::{Sabotage, SimFault, SimPlan};
use roadtrain_sim::runs::{RunNetwork, Runs};
use roadtrain_sim::scenario::{SimScenario, stalling};

/// Asserts that with some seed the checker finds a read of old data.
fn assert_found(sabotage: Sabotage, scenario: SimScenario) {
    let wrong = |plan: &mut SimPlan| {
        scenario(plan);
        plan.sabotage = Some(sabotage);
    };
    let failures = (0..500).filter_map(|seed| run_changed(seed, wrong).err());
    let found = failures.take(50).any(|failure| failure.what.contains("which is none of"));
    assert!(found, "no seed finds {sabotage:?}");
}

/// Successors of killed hosts are admitted when the target has queried the hosts of their lanes.
#[test]
fn what_a_killed_host_has_sent_does_not_come_behind_its_successor() {
    let Some(sum) = sum_of("killing", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([
        (sum.past.kills, 300),
        (sum.tally.succeeded, 5_000),
        (sum.target.queried, 100),
        (sum.target.unconfirmed, 100),
    ]);
}

/// Hosts die while the store has their commands, without a notice that their lanes have ended.
fn killing_at_the_store(plan: &mut SimPlan) {
    (plan.hosts, plan.blocks, plan.behaviour.slow_percent) = (3, 16, 50);
    let stall = SimFault::StallDisk { time: Duration::from_millis(15) };
    let kill = |host| SimFault::KillHost { host, time: Duration::from_micros(100) };
    let at = |round: u8, after| Instant(u64::from(round) * 20_000_000 + after);
    let round = |round| [(at(round, 0), stall), (at(round, 2_000_000), kill(round % 3))];
    plan.faults = (1..8).flat_map(round).collect();
}

#[test]
fn commands_of_killed_hosts_are_waited_for() {
    let Some(sum) = sum_of_seeds(60, |seed| run_changed(seed, killing_at_the_store)) else {
        return;
    };
    sum.at_least([(sum.target.unconfirmed, 100), (sum.tally.succeeded, 5_000)]);
}

#[test]
fn a_target_that_does_not_query_hosts_is_found() {
    assert_found(Sabotage::NoFence, killing_at_the_store);
}

#[test]
fn commands_that_are_not_answered_are_aborted() {
    let Some(sum) = sum_of("forgetting", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.aborts, 100), (sum.tally.succeeded, 5_000)]);
}

#[test]
fn pauses_as_long_as_the_keep_alive_timeout_are_survived() {
    let Some(sum) = sum_of("pausing", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.target.expired, 1), (sum.past.retries, 100)]);
}

#[test]
fn silence_on_all_links_is_survived() {
    let Some(sum) = sum_of("half-open", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.target.expired, 10), (sum.tally.succeeded, 1_000)]);
}

#[test]
fn ends_reported_to_only_one_end_are_survived() {
    let Some(sum) = sum_of("lost-resets", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.retries, 100)]);
}

#[test]
fn what_a_lost_controller_has_not_read_is_never_executed() {
    let Some(sum) = sum_of("unheard", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.fenced, 100), (sum.tally.succeeded, 3_000)]);
}

#[test]
fn what_a_lost_controller_has_in_its_store_is_waited_for() {
    let Some(sum) = sum_of("unheard-stalling", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.fenced, 100), (sum.tally.succeeded, 3_000)]);
}

#[test]
fn nothing_overtakes_what_a_stalled_store_still_has() {
    let Some(sum) = sum_of("stalling", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.retries, 100), (sum.past.fenced, 100)]);
}

#[test]
fn a_target_that_does_not_wait_for_its_store_is_found() {
    assert_found(Sabotage::NoDrain, stalling);
}

#[test]
fn buffers_that_are_few_are_waited_for() {
    let Some(sum) = sum_of("starving", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.target.starved, 1000), (sum.tally.succeeded, 3_000)]);
}

#[test]
fn a_namespace_is_resized_under_load() {
    let Some(sum) = sum_of("resizing", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.events, 300), (sum.tally.succeeded, 5_000)]);
}

#[test]
fn requests_do_not_go_to_another_namespace() {
    let Some(sum) = sum_of("replaced", RunNetwork::Ethernet, 60) else { return };
    sum.at_least([(sum.past.events, 100), (sum.tally.succeeded, 1_000)]);
}

/// Most lanes at the end are orphaned: they send more than idle ones.
#[test]
fn lanes_that_their_host_has_left_may_send() {
    Runs::of("stalling", RunNetwork::Ethernet).unwrap().run(4_191_139_324).unwrap();
}
