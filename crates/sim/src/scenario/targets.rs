//! Several targets that serve one disk. One is paused, an address leads to another target, a write stays in the store
//! for longer than a keep-alive timeout, and hosts fail requests that may still be executed.

use super::reactors;
use crate::plan::{SimFault, SimPlan};
use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Keep-alive timeout of most runs, the shortest that a target supports.
const KEEP_ALIVE: Duration = Duration::from_millis(100);
/// Delay from a fault to the fault that depends on it.
const SOON: Duration = Duration::from_millis(3);
/// Inverse share of drawn seeds that have several targets.
const SHARE: u64 = 5;

/// A seed's plan as it was drawn: some have several targets, some several reactors.
pub fn drawn(plan: &mut SimPlan) {
    let mut dice = plan.dice.clone();
    if dice.below(SHARE) == 0 {
        targets(plan);
    }
    reactors::maybe(plan, &mut dice);
}

/// Longest durations of faults. A write that stays in the store for longer than the quiet time (three keep-alive
/// timeouts) is not covered if its target cannot be reached meanwhile: so only one of the two is long.
#[derive(Clone, Copy)]
struct EpisodeLimits {
    /// Time for which a write stays in the store.
    stick: Duration,
    /// Time for which a target cannot be reached, or is paused.
    absence: Duration,
}

const LONG_STICKS: EpisodeLimits =
    EpisodeLimits { stick: Duration::from_millis(900), absence: Duration::from_millis(60) };
const LONG_ABSENCES: EpisodeLimits =
    EpisodeLimits { stick: Duration::from_millis(100), absence: Duration::from_millis(900) };

/// All of the following scenarios, in any mixture.
pub fn targets(plan: &mut SimPlan) {
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
    let limits = dice.pick(&[LONG_STICKS, LONG_ABSENCES]);
    draw_episodes(plan, &mut dice, limits, &episodes);
}

/// A write stays in the store, and the path that it was sent over is lost. No other path may repeat it while the target
/// reports that it has it.
pub fn sticking(plan: &mut SimPlan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (1 + plan.depth as u8 % 2, 2);
    draw_episodes(plan, &mut dice, LONG_STICKS, &[stuck_write]);
}

/// All paths are lost, and requests fail long before the targets detect it. A write that has failed may be executed
/// until its blocks are written again, and not after.
pub fn failing_fast(plan: &mut SimPlan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (2, 2);
    if dice.chance(70) {
        plan.fast_io_fail_timeout = Some(dice.micros(2_000, 20_000));
    }
    let limits = dice.pick(&[LONG_STICKS, LONG_ABSENCES]);
    draw_episodes(plan, &mut dice, limits, &[all_paths, all_paths, detach]);
}

/// A host's only address leads to another target, while the first one is paused or has a write in its store.
pub fn moving(plan: &mut SimPlan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (2, 1);
    draw_episodes(plan, &mut dice, LONG_ABSENCES, &[reroute]);
}

/// Targets are paused, with received data, until their hosts have switched to other paths.
pub fn standing_still(plan: &mut SimPlan) {
    let Some(mut dice) = several(plan) else { return };
    (plan.targets, plan.paths) = (2, 2);
    draw_episodes(plan, &mut dice, LONG_ABSENCES, &[pause]);
}

/// Prepares a plan with several targets; `None` over Ethernet.
fn several(plan: &mut SimPlan) -> Option<SimRng> {
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
    (plan.keep_alive, plan.timeout) = (KEEP_ALIVE, KEEP_ALIVE / 2);
    plan.reconnect_delay = Duration::from_millis(dice.pick(&[1, 10]));
    // A host with several paths reads the ANA log: no other page is as long, and it has to fit a buffer.
    plan.pool_bytes = plan.pool_bytes.max(64 << 10);
    plan.faults.clear();
    Some(dice)
}

/// Plan in the making, from random numbers.
struct Draw<'a> {
    plan: &'a SimPlan,
    dice: &'a mut SimRng,
    limits: EpisodeLimits,
    faults: Vec<(Instant, SimFault)>,
}

/// Faults that belong together, from a given time on.
type Episode = fn(&mut Draw<'_>, Instant);

fn draw_episodes(
    plan: &mut SimPlan,
    dice: &mut SimRng,
    limits: EpisodeLimits,
    episodes: &[Episode],
) {
    let mut draw = Draw { plan, dice, limits, faults: Vec::new() };
    for _ in 0..draw.dice.between(2, 5) {
        let at = draw.dice.moment(draw.plan.chaos * 3 / 4);
        draw.dice.pick(episodes)(&mut draw, at);
    }
    let mut faults = draw.faults;
    faults.sort_by_key(|(at, _)| *at);
    plan.faults = faults;
}

impl Draw<'_> {
    fn any_path(&mut self) -> u8 {
        self.dice.below((self.plan.hosts * self.plan.paths).into()) as u8
    }

    fn any_target(&mut self) -> u8 {
        self.dice.below(self.plan.targets.into()) as u8
    }

    /// Returns a random duration.
    fn time(&mut self, most: Duration) -> Duration {
        let most = most.as_micros() as u64;
        let most = self.dice.pick(&[most / 10, most / 3, most]);
        self.dice.micros(0, most)
    }

    /// Makes the next write stay in the store.
    fn stick(&mut self, at: Instant) {
        let time = self.time(self.limits.stick);
        self.faults.push((at, SimFault::Stick { time }));
    }

    /// Loses a path, which cannot reconnect for a while.
    fn lose(&mut self, path: u8, at: Instant) {
        let time = self.time(self.limits.absence);
        self.faults.push((at, SimFault::Isolate { path, time }));
    }

    /// Leaves the data of a path unread at the target for a while.
    fn silence(&mut self, path: u8, at: Instant) {
        let time = self.time(self.limits.absence.min(KEEP_ALIVE * 2));
        self.faults.push((at, SimFault::Silence { path, time }));
    }

    fn pause(&mut self, at: Instant) {
        let (target, time) = (self.any_target(), self.time(self.limits.absence));
        self.faults.push((at, SimFault::Pause { target, time }));
    }
}

fn stuck_write(draw: &mut Draw<'_>, at: Instant) {
    draw.stick(at);
    let (path, later) = (draw.any_path(), draw.dice.micros(1_000, 20_000));
    draw.lose(path, at + later);
}

fn pause(draw: &mut Draw<'_>, at: Instant) {
    draw.pause(at);
    if draw.dice.chance(30) {
        let path = draw.any_path();
        draw.lose(path, at + SOON);
    }
}

fn reroute(draw: &mut Draw<'_>, at: Instant) {
    // The first target cannot be reached any more: without a timer, or with a long write in its store, nothing would
    // end.
    if draw.plan.keep_alive.is_zero() || draw.limits.stick > KEEP_ALIVE {
        return;
    }
    let (path, target) = (draw.any_path(), draw.any_target());
    match draw.dice.below(3) {
        0 => draw.stick(at),
        1 => draw.pause(at),
        _ => draw.silence(path, at),
    }
    draw.faults.push((at + SOON, SimFault::Reroute { path, target }));
    draw.lose(path, at + SOON);
}

fn all_paths(draw: &mut Draw<'_>, at: Instant) {
    let path = draw.any_path();
    match draw.dice.below(3) {
        0 => draw.stick(at),
        1 => draw.pause(at),
        _ => draw.silence(path, at),
    }
    for path in 0..draw.plan.hosts * draw.plan.paths {
        draw.lose(path, at + SOON);
    }
}

fn detach(draw: &mut Draw<'_>, at: Instant) {
    // A host that is detaching ignores another detach.
    if draw.faults.iter().any(|(_, fault)| matches!(fault, SimFault::Detach { .. })) {
        return;
    }
    let episode: Episode = draw.dice.pick(&[stuck_write as Episode, all_paths]);
    episode(draw, at);
    let host = draw.dice.below(draw.plan.hosts.into()) as u8;
    let (later, time) = (draw.dice.micros(3_000, 60_000), draw.dice.micros(0, 100_000));
    draw.faults.push((at + later, SimFault::Detach { host, time }));
}

fn deaths(draw: &mut Draw<'_>, at: Instant) {
    let (target, time) = (draw.any_target(), draw.dice.micros(0, 30_000));
    // The machine restarts with another identity, and its targets replace none of the old ones: without a timer nothing
    // would end.
    let is_power_loss = draw.dice.chance(40) && !draw.plan.keep_alive.is_zero();
    let death =
        if is_power_loss { SimFault::PowerLoss { time } } else { SimFault::Kill { target, time } };
    draw.faults.push((at, death));
}
