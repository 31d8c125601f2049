//! A run: moments in order, both ends' turns, faults, and the judgement at the end.

use super::forger;
use super::host::{Host, Past};
use super::net::{Fates, Net};
use super::plan::{Fault, Plan};
use super::target::Target;
use crate::disk::SimDisk;
use crate::load::{Load, Tally};
use crate::network::End;
use crate::rng::Rng;
use crate::world::Failure;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::VecDeque;

/// Everything has completed that long after the last fault, or something is stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a host waits for the answer to its Query.
const QUERY: Duration = Duration::from_millis(2);
/// More moments than any run has.
const MOMENTS_MAX: u64 = 3_000_000;
/// More turns than any moment needs.
const TURNS_MAX: u32 = 1000;
/// Idle lanes are watched for so long.
const IDLE: Duration = Duration::from_secs(3);
/// Frames of an idle link of a lane in a second, both ways: questions and answers.
const IDLE_FRAMES: u64 = 8;

/// What a run went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Requests.
    pub tally: Tally,
    /// The host's past.
    pub past: Past,
    /// What has become of frames.
    pub fates: Fates,
    /// Moments at which something happened.
    pub moments: u64,
}

impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.tally += other.tally;
        self.past.lanes += other.past.lanes;
        self.past.retries += other.past.retries;
        self.past.foreign += other.past.foreign;
        self.fates += other.fates;
        self.moments += other.moments;
    }
}

/// What happens when a fault is over.
#[derive(Clone, Copy, Debug)]
enum Relief {
    Mend { link: u8, told: bool },
    Widen(End),
}

/// A run.
pub struct World {
    seed: u64,
    plan: Plan,
    now: Instant,
    calm_from: Instant,
    is_calm: bool,
    net: Net,
    host: Host,
    target: Target,
    load: Load,
    rng: Rng,
    faults: VecDeque<(Instant, Fault)>,
    reliefs: Vec<(Instant, Relief)>,
    stalled_until: [Instant; 2],
    /// Queries under way: lane, token, and when the answer comes.
    queries: Vec<(usize, u64, Instant)>,
    moments: u64,
}

fn duration(fault: &Fault) -> Duration {
    match *fault {
        Fault::Cut { time, .. }
        | Fault::Deaf { time, .. }
        | Fault::Stall { time, .. }
        | Fault::Narrow { time, .. }
        | Fault::Kill { time }
        | Fault::PowerLoss { time } => time,
        Fault::Move | Fault::Leave(_) => Duration::ZERO,
        Fault::Flood { .. } => Duration::from_millis(25),
    }
}

impl World {
    /// The world of a seed; `change` may depart from its plan.
    #[must_use]
    pub fn new(seed: u64, change: impl FnOnce(&mut Plan)) -> Self {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::new(&mut rng);
        change(&mut plan);
        let disk = SimDisk::new(plan.blocks, plan.disk, rng.fork());
        let last = plan.faults.iter().map(|(at, fault)| *at + duration(fault)).max();
        let ways: Vec<_> = plan.links.iter().map(|link| link.ways).collect();
        World {
            seed,
            now: Instant(0),
            calm_from: last.unwrap_or_default().max(Instant(0) + plan.chaos),
            is_calm: false,
            net: Net::new(&ways, plan.ring_frames, rng.fork()),
            host: Host::new(&plan, rng.fork()),
            target: Target::new(&plan, disk, rng.fork()),
            load: Load::new(plan.blocks, rng.fork()),
            faults: plan.faults.iter().copied().collect(),
            reliefs: Vec::new(),
            stalled_until: [Instant(0); 2],
            queries: Vec::new(),
            moments: 0,
            rng,
            plan,
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// The first thing that may not be.
    pub fn run(mut self) -> Result<Summary, Failure> {
        let outcome = self.live().and_then(|()| self.judge()).and_then(|()| self.idle());
        match outcome {
            Ok(()) => Ok(Summary {
                tally: self.load.tally,
                past: self.host.past,
                fates: self.net.fates,
                moments: self.moments,
            }),
            Err(what) => Err(Failure { seed: self.seed, at: self.now, what }),
        }
    }

    fn live(&mut self) -> Result<(), String> {
        while !self.is_over() {
            let next = self.next_at();
            let next = next.ok_or_else(|| format!("nothing is due any more: {}", self.state()))?;
            self.step(next)?;
            if self.now > self.calm_from + PATIENCE {
                return Err(format!("stuck: {}", self.state()));
            }
        }
        Ok(())
    }

    /// When an end has something to do, but not before it may.
    fn next_at(&self) -> Option<Instant> {
        let [host, target] = [End::Host, End::Target].map(|end| self.net.next_at(end));
        let queries = self.queries.iter().map(|(.., at)| *at);
        let host = host.into_iter().chain(self.host.next_at(self.now)).chain(queries).min();
        let target = target.into_iter().chain(self.target.next_at()).min();
        let [host_from, target_from] = self.stalled_until;
        let ends = [host.map(|at| at.max(host_from)), target.map(|at| at.max(target_from))];
        let fault = self.faults.front().map(|(at, _)| *at);
        let reliefs = self.reliefs.iter().map(|(at, _)| *at);
        let calm = (!self.is_calm).then_some(self.calm_from);
        ends.into_iter().flatten().chain(fault).chain(reliefs).chain(calm).min()
    }

    /// The next moment: again, while something is due at once.
    fn step(&mut self, next: Instant) -> Result<(), String> {
        self.now = self.now.max(next);
        for _ in 0..TURNS_MAX {
            self.moments += 1;
            if self.moments > MOMENTS_MAX {
                return Err("it goes round in circles".into());
            }
            self.turn()?;
            if self.next_at().is_none_or(|at| at > self.now) {
                return Ok(());
            }
        }
        Err(format!("a moment does not end: {}", self.state()))
    }

    fn turn(&mut self) -> Result<(), String> {
        let now = self.now;
        self.strike();
        self.relieve();
        if now >= self.stalled_until[1] {
            self.target.turn(now, &mut self.net);
        }
        if now >= self.stalled_until[0] {
            self.host.turn(now, &mut self.net, &mut self.load)?;
            self.query();
            self.join();
        }
        Ok(())
    }

    /// Set-up by word of mouth, while a link is there.
    fn join(&mut self) {
        let has_carrier = (0..self.net.links()).any(|link| self.net.has_carrier(link));
        while let Some((number, old, proposal)) = self.host.wants_lane(self.now) {
            if !has_carrier {
                continue;
            }
            if let Some(joined) = self.target.join(self.now, old, &proposal) {
                self.host.attach(self.now, number, &proposal, &joined);
            }
        }
    }

    /// Lanes whose token the target does not know any more.
    fn query(&mut self) {
        let now = self.now;
        let doubts = self.host.doubts();
        self.queries.retain(|&(number, token, at)| {
            let is_due = at <= now && doubts.contains(&(number, token));
            if is_due && self.target.knows(token) == Some(false) {
                self.host.detach(now, number);
            }
            at > now
        });
        for (number, token) in doubts {
            if !self.queries.iter().any(|&(_, asked, _)| asked == token) {
                self.queries.push((number, token, now + QUERY));
            }
        }
    }

    fn strike(&mut self) {
        let now = self.now;
        while let Some((_, fault)) = self.faults.pop_front_if(|(at, _)| *at <= now) {
            let over = now + duration(&fault);
            match fault {
                Fault::Cut { link, told, sticks, .. } => {
                    self.net.cut(link, sticks);
                    if told {
                        self.host.set_carrier(now, link, false);
                        self.target.set_carrier(now, link, false);
                    }
                    self.reliefs.push((over, Relief::Mend { link, told }));
                }
                Fault::Deaf { link, to, .. } => self.net.deafen(link, to, over),
                Fault::Stall { end, .. } => {
                    let until = &mut self.stalled_until[usize::from(end == End::Target)];
                    *until = over.max(*until);
                }
                Fault::Move => self.host.change_socket_numbers(),
                Fault::Narrow { end, credits, .. } => {
                    self.set_credits(end, credits);
                    self.reliefs.push((over, Relief::Widen(end)));
                }
                Fault::Leave(End::Host) => self.host.leave(now, &mut self.net),
                Fault::Leave(End::Target) => self.target.leave(),
                Fault::Kill { .. } => self.target.crash(now, false, over),
                Fault::PowerLoss { .. } => {
                    self.target.crash(now, true, over);
                    self.load.history.lose_power();
                }
                Fault::Flood { frames } => {
                    forger::flood(now, frames, &mut self.net, &mut self.rng);
                }
            }
        }
    }

    fn set_credits(&mut self, end: End, credits: u16) {
        match end {
            End::Host => self.host.set_credits(self.now, credits),
            End::Target => self.target.set_credits(self.now, credits),
        }
    }

    fn relieve(&mut self) {
        let now = self.now;
        for (_, relief) in self.reliefs.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            match relief {
                Relief::Mend { link, told } => {
                    self.net.mend(now, link);
                    if told {
                        self.host.set_carrier(now, link, true);
                        self.target.set_carrier(now, link, true);
                    }
                }
                Relief::Widen(end) => self.set_credits(end, u16::MAX),
            }
        }
        if !self.is_calm && now >= self.calm_from {
            self.is_calm = true;
            self.net.behave(now);
        }
    }

    fn state(&self) -> String {
        let (commands, kept, tasks) = self.target.held();
        format!(
            "{} requests open; {}; target: {commands} commands, {kept} kept, {tasks} tasks, {}; due at \
             {:?}, {:?}",
            self.load.open(),
            self.host.state(),
            self.target.state(),
            self.host.next_at(self.now),
            self.target.next_at(),
        )
    }

    /// All requests have completed, and the target knows that.
    fn is_over(&self) -> bool {
        self.is_calm && self.load.open() == 0 && self.target.held() == (0, 0, 0)
    }

    fn judge(&self) -> Result<(), String> {
        if self.host.held() != (0, 0) {
            return Err(format!("the host keeps something: {}", self.state()));
        }
        let tally = self.load.tally;
        if tally.submitted != tally.succeeded + tally.failed {
            return Err(format!("requests do not add up: {tally:?}"));
        }
        let ends = |fault: &Fault| {
            matches!(fault, Fault::Leave(_) | Fault::Kill { .. } | Fault::PowerLoss { .. })
        };
        let is_provoked = self.plan.faults.iter().any(|(_, fault)| ends(fault));
        if !is_provoked && self.host.past.lanes > self.plan.lanes as u64 {
            return Err(format!("a lane has ended for no reason: {}", self.state()));
        }
        Ok(())
    }

    /// Idle lanes are almost silent.
    fn idle(&mut self) -> Result<(), String> {
        // What is still under way, and suspect links that are asked until they are back.
        self.pass(Duration::from_secs(1))?;
        let sent = self.net.fates.sent;
        self.pass(IDLE)?;
        let (sent, links) = (self.net.fates.sent - sent, u64::from(self.net.links()));
        let allowed = IDLE_FRAMES * IDLE.as_secs() * links * self.plan.lanes as u64;
        if sent > allowed {
            return Err(format!(
                "idle lanes sent {sent} frames, more than {allowed}: {}",
                self.state()
            ));
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        while let Some(next) = self.next_at().filter(|&at| at < end) {
            self.step(next)?;
        }
        self.now = end;
        Ok(())
    }
}
