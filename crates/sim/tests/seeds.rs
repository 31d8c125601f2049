//! Hundreds of seeds; `SEED=n` runs one, `SEEDS=n` so many.

mod common;

use common::{assert_repeatable, sum_of_seeds};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_sim::plan::{Fault, Plan, Sabotage};
use roadtrain_sim::{run, run_changed};
use roadtrain_wire::status::Status;

#[test]
fn every_seed_ends_well() {
    let Some(sum) = sum_of_seeds(400, run) else { return };
    // The runs went through what they are for.
    assert!(sum.tally.succeeded > 50_000, "{sum:?}");
    assert!(sum.tally.failed > 100 && sum.past.surrenders > 10, "{sum:?}");
    assert!(sum.past.retries > 1000 && sum.past.associations > 1000, "{sum:?}");
    assert!(sum.past.events > 50 && sum.expired > 10, "{sum:?}");
}

/// The judge can say no: what it says about targets that do wrong.
fn first_failure(sabotage: Sabotage) -> String {
    first_failure_changed(sabotage, |_| {})
}

fn first_failure_changed(sabotage: Sabotage, change: impl Fn(&mut Plan)) -> String {
    let found = (0..500).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            plan.sabotage = Some(sabotage);
            plan.blocks = 16;
            plan.manners.slow_percent = 30;
            change(plan);
        };
        run_changed(seed, wrong).err()
    });
    found.expect("it goes wrong with some seed").what
}

/// Commands of a lost connection that still execute overwrite what came after their retries.
#[test]
fn a_target_without_fence_is_found() {
    let what = first_failure(Sabotage::NoFence);
    assert!(what.contains("which is none of"), "{what}");
}

#[test]
fn a_flush_that_does_nothing_is_found() {
    let what = first_failure(Sabotage::IdleFlush);
    assert!(what.contains("which is none of"), "{what}");
}

#[test]
fn ignored_fua_is_found() {
    let what = first_failure(Sabotage::IgnoredFua);
    assert!(what.contains("which is none of"), "{what}");
}

/// Storage whose flushes fail and lose what they were for, and hosts that share it.
fn losing(plan: &mut Plan) {
    plan.manners.losing_percent = 25;
    plan.hosts = 3;
    plan.blocks = 64;
    // A flush that is tried again after the target's process has died is not told of what that one was told.
    plan.faults.retain(|(_, fault)| !matches!(fault, Fault::Kill { .. }));
    for part in 1..8 {
        let time = Duration::from_millis(1);
        plan.faults.push((Instant(0) + plan.chaos * part / 8, Fault::PowerLoss { time }));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

#[test]
fn a_failed_flush_is_told_to_every_host_that_has_lost_something() {
    let Some(sum) = sum_of_seeds(200, |seed| run_changed(seed, losing)) else { return };
    assert!(sum.tally.lost > 1000 && sum.tally.succeeded > 10_000, "{sum:?}");
}

#[test]
fn a_failure_that_is_not_told_to_all_is_found() {
    let found = (0..200).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            losing(plan);
            plan.sabotage = Some(Sabotage::UntoldFailure);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

#[test]
fn a_forgotten_command_is_found() {
    let what = first_failure_changed(Sabotage::ForgottenCommand, |plan| plan.io_timeout = None);
    assert!(what.contains("stuck") || what.contains("nothing is due"), "{what}");
}

/// A command that is not answered is aborted, then submitted again over new connections.
#[test]
fn a_target_that_forgets_commands_is_survived() {
    let forgets = |plan: &mut Plan| plan.sabotage = Some(Sabotage::ForgottenCommand);
    let Some(sum) = sum_of_seeds(150, |seed| run_changed(seed, forgets)) else { return };
    assert!(sum.past.aborts > 500 && sum.tally.succeeded > 10_000, "{sum:?}");
}

/// For a third of the time the target says that it does no I/O: all requests wait for it.
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
        let refuse = |plan: &mut Plan| {
            let third = plan.chaos / 3;
            plan.refusals = vec![(Instant(0) + third..Instant(0) + third * 2, status)];
            (plan.controller_loss_timeout, plan.manners.failing_per_mille) = (None, 0);
            plan.faults.clear();
        };
        let Some(sum) = sum_of_seeds(20, |seed| run_changed(seed, refuse)) else { return };
        // The load takes none of these for an answer.
        assert!(sum.tally.repeated > 100, "{status}: {sum:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_repeatable(3, run);
}
