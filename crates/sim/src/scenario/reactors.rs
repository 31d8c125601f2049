//! Targets of several reactors: messages are taken late, threads wait for a core, and lanes move between reactors all
//! the time.

use crate::disk::BLOCK_BYTES;
use crate::plan::{ReactorsPlan, SimFault, SimPlan};
use crate::rng::SimRng;
use core::time::Duration;

/// Inverse share of drawn seeds that have several reactors.
const SHARE: u64 = 3;

/// Draws several reactors for some seeds.
pub(super) fn maybe(plan: &mut SimPlan, dice: &mut SimRng) {
    if dice.below(SHARE) == 0 {
        several(plan, dice);
    }
}

/// Any other scenario, with targets of several reactors.
pub fn reactors(plan: &mut SimPlan) {
    let mut dice = plan.dice.clone().fork();
    let is_other = |(name, _): &&(&str, _)| !["reactors", "swapping"].contains(name);
    let others: Vec<_> = super::ALL.iter().filter(is_other).collect();
    let (_, scenario) = others[dice.below(others.len() as u64) as usize];
    scenario(plan);
    several(plan, &mut dice);
}

/// Three hosts replace blocks by Compare and Write while they write, zero and discard them in other ways, at a target
/// of one or several reactors. Their connections are cut, and the storage is stalled.
pub fn swapping(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    (plan.hosts, plan.blocks, plan.swaps_percent) = (3, 8, 30);
    plan.queue_entries = plan.queue_entries.max(8); // a pair has two
    plan.host.queue_entries = plan.queue_entries;
    let mut dice = plan.dice.clone().fork();
    if dice.chance(75) {
        several(plan, &mut dice);
    }
    // Data of most writes goes to the memory, in pieces.
    if plan.lends_memory {
        plan.host.digests.data = false;
        plan.faults.retain(|(_, fault)| !matches!(fault, SimFault::Corrupt));
    }
    plan.host.in_capsule_bytes = 0;
    super::also(plan, 12, |part| match part % 3 {
        0 => SimFault::StallDisk { time: Duration::from_millis(3) },
        1 => SimFault::Pause { target: 0, time: Duration::from_millis(5) },
        _ => SimFault::Reset,
    });
}

fn several(plan: &mut SimPlan, dice: &mut SimRng) {
    let (count, inbox_delay_us) = (dice.between(2, 4) as usize, dice.pick(&[0, 20, 200, 2_000]));
    let moves = dice.pick(&[0, 200, 2_000, 20_000]);
    // Lanes over Ethernet share the port of their reactor, and stay.
    let moves = if plan.ether.links.is_empty() { moves } else { 0 };
    plan.reactors = ReactorsPlan { count, inbox_delay_us, moves };
    if dice.chance(50) {
        lend_memory(plan);
    }
}

/// Makes the storage lend its memory, if that is possible. Such storage loses nothing without a flush, and does not
/// outlive a power loss.
fn lend_memory(plan: &mut SimPlan) {
    let is_possible = plan.ether.links.is_empty()
        && plan.targets == 1
        && plan.physical_bytes == BLOCK_BYTES
        && (plan.counters, plan.marks_percent, plan.behaviour.losing_percent) == (0, 0, 0);
    if is_possible {
        plan.lends_memory = true;
        plan.faults.retain(|(_, fault)| !matches!(fault, SimFault::PowerLoss { .. }));
    }
}
