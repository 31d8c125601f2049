//! Several targets that serve one disk: one stands still, an address leads to another one than before, a write stays in
//! the store for longer than a keep-alive timeout, and hosts fail requests that may still be executed.

use crate::plan::{Fault, Plan};
use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// The keep-alive timeout of most runs, which is the shortest that a target knows.
const KEEP_ALIVE: Duration = Duration::from_millis(100);
/// From a fault to what makes it matter.
const SOON: Duration = Duration::from_millis(3);
/// One of so many drawn seeds has several targets.
const SHARE: u64 = 5;

/// A seed's plan as it was drawn: some have several targets.
pub fn drawn(plan: &mut Plan) {
    if plan.dice.clone().below(SHARE) == 0 {
        targets(plan);
    }
}

/// All of what follows, in any mixture.
pub fn targets(plan: &mut Plan) {
    let Some(mut dice) = several(plan) else { return };
    plan.targets = dice.pick(&[2, 2, 3]);
    plan.paths = dice.pick(&[1, 2, 2, 3]);
    if dice.chance(40) {
        plan.fast_io_fail_timeout = Some(dice.micros(5_000, 60_000));
    }
    if dice.chance(20) {
        plan.controller_loss_timeout = Some(dice.micros(0, 100_000));
    }
    if dice.chance(10) {
        plan.keep_alive = Duration::ZERO;
    }
    let episodes: [Episode; 6] = [stuck_write, pause, reroute, all_paths, deaths, detach];
    draw_episodes(plan, &mut dice, &episodes);
}

/// A write stays in the store, and the path that it was sent over is lost: no other path may try it while the target says
/// that it has it.
pub fn sticking(plan: &mut Plan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (1 + plan.depth as u8 % 2, 2);
    draw_episodes(plan, &mut dice, &[stuck_write]);
}

/// All paths are lost, and requests fail long before the targets know: until its blocks are written again a write that has
/// failed may be executed, and not after.
pub fn failing_fast(plan: &mut Plan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (2, 2);
    plan.fast_io_fail_timeout = dice.chance(70).then(|| dice.clone().micros(2_000, 20_000));
    draw_episodes(plan, &mut dice, &[all_paths, all_paths, detach]);
}

/// A host's one address leads to another target than before, while the first one stands still or has a write in its store.
pub fn moving(plan: &mut Plan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (2, 1);
    draw_episodes(plan, &mut dice, &[reroute]);
}

/// Targets stand still, with what they have received, until their hosts have gone on elsewhere.
pub fn standing_still(plan: &mut Plan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (2, 2);
    draw_episodes(plan, &mut dice, &[pause]);
}

/// What all have in common; `None` over Ethernet.
fn several(plan: &mut Plan) -> Option<Rng> {
    if !plan.ether.links.is_empty() {
        return None;
    }
    let mut dice = plan.dice.fork();
    let chaos = Duration::from_millis(dice.between(600, 1500));
    // As many requests as before.
    plan.pause = plan.pause.mul_f64(chaos.as_secs_f64() / plan.chaos.as_secs_f64());
    plan.chaos = chaos;
    (plan.hosts, plan.lanes, plan.blocks) = (plan.hosts.min(2), plan.lanes.min(2), 16);
    (plan.express, plan.controller_loss_timeout) = (None, None);
    plan.keep_alive = KEEP_ALIVE;
    plan.reconnect_delay = Duration::from_millis(dice.pick(&[1, 10]));
    // Who has several paths reads the ANA log: no other page is as long, and it has to fit a buffer.
    plan.pool_bytes = plan.pool_bytes.max(64 << 10);
    plan.faults.clear();
    Some(dice)
}

/// What happens together, from a moment on.
type Episode = fn(&Plan, &mut Rng, Instant, &mut Vec<(Instant, Fault)>);

fn draw_episodes(plan: &mut Plan, dice: &mut Rng, episodes: &[Episode]) {
    let mut faults = Vec::new();
    for _ in 0..dice.between(2, 5) {
        let at = dice.moment(plan.chaos * 3 / 4);
        dice.pick(episodes)(plan, dice, at, &mut faults);
    }
    faults.sort_by_key(|(at, _)| *at);
    plan.faults = faults;
}

fn any_path(plan: &Plan, dice: &mut Rng) -> u8 {
    dice.below((plan.hosts * plan.paths).into()) as u8
}

/// A path is lost, and cannot be connected again for a while.
fn lose(dice: &mut Rng, path: u8, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    let time = dice.micros(0, dice.clone().pick(&[10_000, 100_000, 600_000]));
    faults.push((at, Fault::Isolate { path, time }));
}

fn stuck_write(plan: &Plan, dice: &mut Rng, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    faults.push((at, Fault::Stick { time: dice.micros(100_000, 900_000) }));
    let (path, later) = (any_path(plan, dice), dice.micros(1_000, 20_000));
    lose(dice, path, at + later, faults);
}

fn pause(plan: &Plan, dice: &mut Rng, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    let target = dice.below(plan.targets.into()) as u8;
    let time = dice.micros(10_000, dice.clone().pick(&[100_000, 300_000, 900_000]));
    faults.push((at, Fault::Pause { target, time }));
    if dice.chance(30) {
        let path = any_path(plan, dice);
        lose(dice, path, at + SOON, faults);
    }
}

fn reroute(plan: &Plan, dice: &mut Rng, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    if plan.keep_alive.is_zero() {
        return; // nobody would ever say that what the first target has will not be executed
    }
    let (path, target) = (any_path(plan, dice), dice.below(plan.targets.into()) as u8);
    match dice.below(3) {
        0 => stuck_write(plan, dice, at, faults),
        1 => pause(plan, dice, at, faults),
        _ => faults.push((at, Fault::Silence { path, time: dice.micros(5_000, 200_000) })),
    }
    faults.push((at + SOON, Fault::Reroute { path, target }));
    lose(dice, path, at + SOON, faults);
}

fn all_paths(plan: &Plan, dice: &mut Rng, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    match dice.below(3) {
        0 => faults.push((at, Fault::Stick { time: dice.micros(20_000, 400_000) })),
        1 => pause(plan, dice, at, faults),
        _ => {
            let path = any_path(plan, dice);
            faults.push((at, Fault::Silence { path, time: dice.micros(5_000, 200_000) }));
        }
    }
    for path in 0..plan.hosts * plan.paths {
        lose(dice, path, at + SOON, faults);
    }
}

fn detach(plan: &Plan, dice: &mut Rng, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    if dice.chance(50) {
        stuck_write(plan, dice, at, faults);
    } else {
        all_paths(plan, dice, at, faults);
    }
    let (host, time) = (dice.below(plan.hosts.into()) as u8, dice.micros(0, 100_000));
    // One that detaches already does not hear of it.
    if !faults.iter().any(|(_, fault)| matches!(fault, Fault::Detach { .. })) {
        faults.push((at + dice.micros(3_000, 60_000), Fault::Detach { host, time }));
    }
}

fn deaths(plan: &Plan, dice: &mut Rng, at: Instant, faults: &mut Vec<(Instant, Fault)>) {
    let (target, time) = (dice.below(plan.targets.into()) as u8, dice.micros(0, 30_000));
    let death =
        if dice.chance(60) { Fault::Kill { target, time } } else { Fault::PowerLoss { time } };
    faults.push((at, death));
}
