//! Faults of the target and its store, each with what it has to lead to.

#[expect(dead_code, reason = "shared")]
mod common;

use common::sum_of_seeds;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_sim::plan::{Fault, Plan, Sabotage};
use roadtrain_sim::run_changed;

/// `count` times the fault, each at its part of the time.
fn often(plan: &mut Plan, count: u32, fault: impl Fn(u32) -> Fault) {
    for part in 1..=count {
        plan.faults.push((Instant(0) + plan.chaos * part / (count + 1), fault(part)));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

/// The disk stands still, and meanwhile connections are lost: hosts are back while commands of their lost
/// connections are still on the disk.
fn lost_while_the_disk_stalls(plan: &mut Plan) {
    (plan.blocks, plan.manners.slow_percent) = (16, 30);
    plan.controller_loss_timeout = None;
    let stall = |part: u32| match part % 4 {
        1 => Fault::StallDisk { time: Duration::from_millis(25) },
        _ => Fault::Reset,
    };
    often(plan, 24, stall);
}

#[test]
fn nothing_overtakes_what_a_stalled_store_still_has() {
    let Some(sum) = sum_of_seeds(150, |seed| run_changed(seed, lost_while_the_disk_stalls)) else {
        return;
    };
    assert!(sum.tally.succeeded > 10_000 && sum.past.retries > 1_000, "{sum:?}");
    assert!(sum.fence.busy > 100, "hosts came back while the store had their commands: {sum:?}");
}

/// The judge sees what is wrong about a target that lets hosts in too early.
#[test]
fn a_target_that_does_not_wait_for_its_store_is_found() {
    let found = (0..300).find_map(|seed| {
        let wrong = |plan: &mut Plan| {
            lost_while_the_disk_stalls(plan);
            plan.sabotage = Some(Sabotage::NoDrain);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("it goes wrong with some seed").what;
    assert!(what.contains("which is none of"), "{what}");
}

/// Octets that nobody has read yet when the host is back are never executed.
#[test]
fn lanes_that_are_not_read_are_swept() {
    let stall = |plan: &mut Plan| {
        let stall = |part: u32| match part % 2 {
            1 => Fault::Stall { at_target: true, time: Duration::from_millis(30) },
            _ => Fault::Reset,
        };
        often(plan, 30, stall);
    };
    let Some(sum) = sum_of_seeds(150, |seed| run_changed(seed, stall)) else { return };
    assert!(sum.fence.swept > 50 && sum.tally.succeeded > 10_000, "{sum:?}");
}

/// The namespace in use changes its size all the time, and no request notices.
#[test]
fn a_namespace_is_resized_under_load() {
    let resize = |plan: &mut Plan| {
        plan.faults.clear();
        (plan.manners.failing_per_mille, plan.controller_loss_timeout) = (0, None);
        often(plan, 40, |part| if part % 5 == 0 { Fault::Namespace } else { Fault::Resize });
    };
    let Some(sum) = sum_of_seeds(100, |seed| run_changed(seed, resize)) else { return };
    assert!(sum.tally.succeeded > 10_000 && sum.past.events > 500, "{sum:?}");
}
