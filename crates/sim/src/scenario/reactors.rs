//! Targets of several reactors, which take their messages late, whose threads wait for a core, and between which lanes
//! move all the time.

use crate::plan::{Fault, Plan, Reactors};
use crate::rng::Rng;

/// One of so many drawn seeds has several reactors.
const SHARE: u64 = 3;

/// Draws several reactors for some seeds.
pub(super) fn maybe(plan: &mut Plan, dice: &mut Rng) {
    if dice.below(SHARE) == 0 {
        several(plan, dice);
    }
}

/// Any other scenario, at targets of several reactors.
pub fn reactors(plan: &mut Plan) {
    let mut dice = plan.dice.clone().fork();
    let others: Vec<_> = super::ALL.iter().filter(|(name, _)| *name != "reactors").collect();
    let (_, scenario) = others[dice.below(others.len() as u64) as usize];
    scenario(plan);
    several(plan, &mut dice);
}

fn several(plan: &mut Plan, dice: &mut Rng) {
    let (count, inbox_delay_us) = (dice.between(2, 4) as usize, dice.pick(&[0, 20, 200, 2_000]));
    let moves = dice.pick(&[0, 200, 2_000, 20_000]);
    // Lanes over Ethernet share the port of their reactor, and stay.
    let moves = if plan.ether.links.is_empty() { moves } else { 0 };
    plan.reactors = Reactors { count, inbox_delay_us, moves };
    if dice.chance(50) {
        lend_memory(plan);
    }
}

/// The storage is memory that is lent, where that is possible. It loses nothing without a flush, and does not outlive a
/// power loss.
fn lend_memory(plan: &mut Plan) {
    let is_possible = plan.ether.links.is_empty()
        && plan.targets == 1
        && (plan.counters, plan.marks_percent, plan.manners.losing_percent) == (0, 0, 0);
    if is_possible {
        plan.lends_memory = true;
        plan.faults.retain(|(_, fault)| !matches!(fault, Fault::PowerLoss { .. }));
    }
}
