//! Hosts with two paths: no fault of a path leads to a second execution after another write.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::{fence, late_write, losing_paths};
use std::time::Duration;

#[test]
fn hosts_with_two_paths_end_well() {
    let Some(sum) = sum_of("paths", RunNetwork::Tcp, 60) else { return };
    sum.at_least([
        (sum.past.moved, 500),
        (sum.past.released, 60),
        (sum.past.fenced, 60),
        (sum.tally.succeeded, 5_000),
    ]);
}

#[test]
fn a_late_write_of_a_lost_path_does_no_harm() {
    let Some(sum) = sum_of("late-write", RunNetwork::Tcp, 40) else { return };
    sum.at_least([(sum.past.moved, 200)]);
}

/// The checker finds a host that repeats everything on another path at once.
#[test]
fn a_host_that_does_not_wait_for_its_lost_path_is_found() {
    let found = (0..100).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            late_write(plan);
            plan.sabotage = Some(Sabotage::EarlyMove);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// Requests of a path that cannot be reached for 60 ms continue over the other one much sooner.
#[test]
fn another_path_has_the_lost_controller_ended() {
    let Some(sum) = sum_of("fence", RunNetwork::Tcp, 40) else { return };
    println!("longest pause of what a lost path had: {:?}", sum.past.longest_hold);
    sum.at_least([(sum.past.helped, 200), (sum.past.moved, 200)]);
    assert!(sum.past.longest_hold < Duration::from_millis(30), "{sum:?}");
}

/// Without the fence, or with a fence that is only pretended, old data follows new data.
#[test]
fn without_the_fence_old_writes_come_behind_new_ones() {
    for sabotage in [Sabotage::EarlyMove, Sabotage::NoReset] {
        let found = (0..100).find_map(|seed| {
            let wrong = |plan: &mut SimPlan| {
                fence(plan);
                plan.sabotage = Some(sabotage);
            };
            run_changed(seed, wrong).err()
        });
        let what = found.unwrap_or_else(|| panic!("{sabotage:?} is not found")).what;
        assert!(what.contains("which is none of"), "{sabotage:?}: {what}");
    }
}

/// Losses of a store are reported to a host that writes and flushes by several paths.
#[test]
fn losses_of_a_store_are_reported_over_several_paths() {
    let Some(sum) = sum_of("losing-paths", RunNetwork::Tcp, 40) else { return };
    sum.at_least([(sum.tally.lost, 10), (sum.past.moved, 100)]);
}

/// One path misses several power losses, and is the first one that is connected after the last.
#[test]
fn a_path_reports_the_lost_writes_of_another_one() {
    run_changed(1000, losing_paths).expect("a flush fails");
}
