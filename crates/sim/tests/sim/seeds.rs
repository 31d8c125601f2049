//! Seeds of scenarios over TCP, and targets with deliberate faults.

use crate::common::{assert_repeatable, sum_of, sum_of_seeds};
use roadtrain_proto::time::Instant;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::runs::{RunNetwork, Runs};
use roadtrain_sim::scenario::{authenticating, killing, losing, losing_in_turn};
use roadtrain_sim::{run, run_changed};
use roadtrain_wire::status::Status;

#[test]
fn every_seed_ends_well() {
    let Some(sum) = sum_of("drawn", RunNetwork::Tcp, 1000) else { return };
    // The runs exercised their purpose.
    sum.at_least([
        (sum.tally.succeeded, 50_000),
        (sum.tally.failed, 100),
        (sum.past.surrenders, 10),
        (sum.past.retries, 1000),
        (sum.past.associations, 1000),
        (sum.past.events, 50),
        (sum.target.expired, 10),
        (sum.past.kills, 300),
    ]);
}

/// Returns the checker's report on a target with a deliberate fault.
fn first_failure(sabotage: Sabotage) -> String {
    first_failure_changed(sabotage, |_| {})
}

fn first_failure_changed(sabotage: Sabotage, change: impl Fn(&mut SimPlan)) -> String {
    let found = (0..500).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            plan.sabotage = Some(sabotage);
            plan.blocks = 16;
            plan.behaviour.slow_percent = 30;
            change(plan);
        };
        run_changed(seed, wrong).err()
    });
    found.expect("it goes wrong with some seed").what
}

/// Commands of a lost connection that still execute overwrite writes that followed their retries.
#[test]
fn a_target_without_fence_is_found() {
    let what = first_failure(Sabotage::NoFence);
    assert!(what.contains("which is none of"), "{what}");
}

/// Such hosts cannot be distinguished, so a target refuses them.
#[test]
fn hosts_without_an_identifier_are_not_connected() {
    let what = first_failure(Sabotage::NoHostId);
    assert!(what.contains("stuck") && what.contains("0 lanes attached"), "{what}");
}

#[test]
fn a_flush_that_does_nothing_is_found() {
    let what = first_failure(Sabotage::IdleFlush);
    assert!(what.contains("which is none of"), "{what}");
}

#[test]
fn a_torn_block_is_found() {
    let what = first_failure(Sabotage::TornBlock);
    assert!(what.contains("torn"), "{what}");
}

#[test]
fn ignored_fua_is_found() {
    let what = first_failure(Sabotage::IgnoredFua);
    assert!(what.contains("which is none of"), "{what}");
}

#[test]
fn a_failed_flush_is_reported_to_every_host_that_has_lost_something() {
    let Some(sum) = sum_of("losing", RunNetwork::Tcp, 200) else { return };
    sum.at_least([(sum.tally.lost, 1000), (sum.tally.succeeded, 10_000)]);
}

#[test]
fn a_failed_flush_is_reported_though_connections_are_lost() {
    let Some(sum) = sum_of("losing-in-turn", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.tally.lost, 500), (sum.past.retries, 500)]);
}

/// Two flushes of a host that has lost writes of two failures, of which one was reported: the disk does not carry the
/// first flush out, and the second one must not succeed.
#[test]
fn a_reported_failure_does_not_hide_the_next_one() {
    run_changed(45, losing_in_turn).expect("the second failure is reported");
}

/// The target without a keep-alive timer has no other event when a command that is to be aborted has ended already.
#[test]
fn an_abort_is_answered_though_nothing_else_is_due() {
    run_changed(3_649_793_288, losing_in_turn).expect("the Abort is answered");
}

#[test]
fn a_failure_that_is_not_reported_to_all_is_found() {
    let found = (0..200).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            losing(plan);
            plan.sabotage = Some(Sabotage::UnreportedFailure);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

#[test]
fn a_forgotten_command_is_found() {
    let what = first_failure_changed(Sabotage::DroppedResponse, |plan| plan.io_timeout = None);
    assert!(what.contains("stuck") || what.contains("nothing is due"), "{what}");
}

/// A command without a response is aborted, then submitted again over new connections.
#[test]
fn a_target_that_forgets_commands_is_survived() {
    let Some(sum) = sum_of("forgetting", RunNetwork::Tcp, 150) else { return };
    sum.at_least([(sum.past.aborts, 500), (sum.tally.succeeded, 10_000)]);
}

/// For a third of the time the target refuses I/O: all requests wait for it.
#[test]
fn a_namespace_that_cannot_be_reached_is_waited_for() {
    let refusals = [
        Status::NAMESPACE_NOT_READY,
        Status::NAMESPACE_NOT_READY.retry_after(1),
        Status::ANA_INACCESSIBLE,
        Status::ANA_TRANSITION.retry_after(3),
        Status::ANA_PERSISTENT_LOSS,
        Status::INTERNAL_PATH_ERROR,
    ];
    for status in refusals {
        let refuse = |plan: &mut SimPlan| {
            let third = plan.chaos / 3;
            plan.refusals = vec![(Instant(0) + third..Instant(0) + third * 2, status)];
            (plan.controller_loss_timeout, plan.behaviour.failing_per_mille) = (None, 0);
            plan.faults.clear();
        };
        let Some(sum) = sum_of_seeds(20, |seed| run_changed(seed, refuse)) else { continue };
        // The load accepts none of these as a response.
        sum.at_least([(sum.tally.repeated, 100)]);
    }
}

#[test]
fn what_a_killed_host_has_sent_does_not_come_behind_its_successor() {
    let Some(sum) = sum_of("killing", RunNetwork::Tcp, 150) else { return };
    assert_eq!(sum.past.kills, sum.seeds * 9, "{sum:?}");
    sum.at_least([(sum.tally.succeeded, 10_000)]);
}

#[test]
fn what_comes_behind_a_successor_is_found() {
    let found = (0..500).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            killing(plan);
            plan.behaviour.slow_percent = 50;
            plan.sabotage = Some(Sabotage::NoFence);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// Connections of a few hosts need many times the available buffers; some fall silent and keep theirs.
#[test]
fn buffers_that_are_few_are_waited_for() {
    let Some(sum) = sum_of("starving", RunNetwork::Tcp, 40) else { return };
    sum.at_least([
        (sum.target.starved, 10_000),
        (sum.target.overdue, 5),
        (sum.tally.succeeded, 10_000),
    ]);
}

/// Connections fall silent one after the other, without any notice of an end.
#[test]
fn half_open_connections_are_survived() {
    let Some(sum) = sum_of("half-open", RunNetwork::Tcp, 150) else { return };
    sum.at_least([
        (sum.past.fenced, 100),
        (sum.past.associations, 300),
        (sum.tally.succeeded, 10_000),
    ]);
}

#[test]
fn resets_reported_to_only_one_end_are_survived() {
    let Some(sum) = sum_of("lost-resets", RunNetwork::Tcp, 100) else { return };
    sum.at_least([(sum.past.associations, 300), (sum.tally.succeeded, 10_000)]);
}

/// The target serves another namespace when it restarts: no request that meant the first one reaches it.
#[test]
fn requests_do_not_go_to_another_namespace() {
    let Some(sum) = sum_of("replaced", RunNetwork::Tcp, 150) else { return };
    sum.at_least([(sum.past.associations, 500), (sum.tally.succeeded, 10_000)]);
}

/// All arrivals are held for about the keep-alive timeout, or half of it: some associations survive, some end, at
/// either end first.
#[test]
fn pauses_as_long_as_the_keep_alive_timeout_are_survived() {
    let Some(sum) = sum_of("pausing", RunNetwork::Tcp, 60) else { return };
    sum.at_least([(sum.target.expired, 10), (sum.tally.succeeded, 5_000)]);
}

/// A path whose old writes have ended continues requests that have waited for them, without any other event.
#[test]
fn what_waited_for_old_writes_goes_on_at_once() {
    Runs::of("drawn", RunNetwork::Tcp).unwrap().run(3_871_591_641).unwrap();
}

/// Its commands were on the disk when it was paused, and hosts have switched to other paths meanwhile.
#[test]
fn a_target_that_stood_still_begins_no_further_part_of_a_command() {
    Runs::of("drawn", RunNetwork::Tcp).unwrap().run(1_800_392_663).unwrap();
}

#[test]
fn a_seed_is_a_run() {
    assert_repeatable(3, run);
}

/// Hosts and target authenticate each other on every queue, in spite of lost connections.
#[test]
fn runs_with_authentication_end_well() {
    let Some(sum) = sum_of("authenticating", RunNetwork::Tcp, 200) else { return };
    sum.at_least([(sum.tally.succeeded, 5_000), (sum.past.associations, 200)]);
}

/// The controller is gone when the host has authenticated: the target refuses the queue.
#[test]
fn a_queue_that_is_refused_after_the_proof_ends() {
    run_changed(2_610_079_260, authenticating).expect("requests are tried again");
}
