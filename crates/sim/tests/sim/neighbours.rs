//! Hosts write logical blocks of 512 bytes on a disk of physical blocks of 4,096: no neighbour is lost.

use crate::common::sum_of;
use roadtrain_sim::plan::{Sabotage, SimPlan};
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::neighbours;

#[test]
fn neighbours_in_a_physical_block_are_kept() {
    let Some(sum) = sum_of("neighbours", RunNetwork::Tcp, 100) else { return };
    sum.at_least([(sum.tally.succeeded, 10_000), (sum.tally.swapped, 200)]);
}

#[test]
fn neighbours_are_kept_over_ethernet() {
    let Some(sum) = sum_of("neighbours", RunNetwork::Ethernet, 20) else { return };
    sum.at_least([(sum.tally.succeeded, 2_000)]);
}

/// The checker finds a target whose read-modify-writes are not alone.
#[test]
fn lost_neighbours_are_found() {
    let found = (0..100).find_map(|seed| {
        let wrong = |plan: &mut SimPlan| {
            neighbours(plan);
            plan.sabotage = Some(Sabotage::SharedBlocks);
        };
        run_changed(seed, wrong).err()
    });
    let what = found.expect("a lost neighbour is found").what;
    assert!(what.contains("block"), "{what}");
}
