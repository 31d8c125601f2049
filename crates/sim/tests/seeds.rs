//! Hundreds of seeds; `SEED=n` runs one, `SEEDS=n` so many.

mod common;

use common::{assert_repeatable, sum_of_seeds};
use roadtrain_sim::plan::{Plan, Sabotage};
use roadtrain_sim::{run, run_changed};

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
    let found = (0..500).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            plan.sabotage = Some(sabotage);
            plan.blocks = 16;
            plan.manners.slow_percent = 30;
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

#[test]
fn a_forgotten_command_is_found() {
    let what = first_failure(Sabotage::ForgottenCommand);
    assert!(what.contains("stuck") || what.contains("nothing is due"), "{what}");
}

#[test]
fn a_seed_is_a_run() {
    assert_repeatable(3, run);
}
