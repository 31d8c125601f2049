//! A run: moments in order, both ends' turns, faults, and the judgement at the end.

use super::forger;
use super::net::Fates;
use super::plan::{Fault, Plan};
use super::setup::Ether;
use crate::disk::SimDisk;
use crate::host::{Host, Past};
use crate::load::{Load, Tally};
use crate::network::End;
use crate::rng::Rng;
use crate::target::Target;
use crate::world::{Failure, load};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::VecDeque;

/// Everything has completed that long after the last fault, or something is stuck.
const PATIENCE: Duration = Duration::from_secs(7);
/// More moments than any run has.
const MOMENTS_MAX: u64 = 3_000_000;
/// Lanes that the target has at most: those that it does not know to be over, too.
const LANES_MAX: usize = 60;
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
    /// Lanes that were made.
    pub made: u64,
    /// Octets that were no frame, or of no lane.
    pub foreign: u64,
    /// What has become of frames.
    pub fates: Fates,
    /// Moments at which something happened.
    pub moments: u64,
}

impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.tally += other.tally;
        self.past += other.past;
        self.made += other.made;
        self.foreign += other.foreign;
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
    network: Ether,
    hosts: Vec<Host<Ether>>,
    target: Target<Ether>,
    load: Load,
    rng: Rng,
    faults: VecDeque<(Instant, Fault)>,
    reliefs: Vec<(Instant, Relief)>,
    stalled_until: [Instant; 2],
    moments: u64,
}

fn duration(fault: &Fault) -> Duration {
    match *fault {
        Fault::Cut { time, .. }
        | Fault::Deaf { time, .. }
        | Fault::Stall { time, .. }
        | Fault::Narrow { time, .. }
        | Fault::Kill { time }
        | Fault::StallDisk { time }
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
        let disk = SimDisk::new(plan.base.blocks, plan.base.manners, rng.fork());
        let last = plan.faults.iter().map(|(at, fault)| *at + duration(fault)).max();
        World {
            seed,
            now: Instant(0),
            calm_from: last.unwrap_or_default().max(Instant(0) + plan.base.chaos),
            is_calm: false,
            network: Ether::new(&plan, rng.fork()),
            hosts: (0..plan.base.hosts)
                .map(|number| Host::new(Instant(0), &plan.base, number, rng.fork()))
                .collect(),
            target: Target::new(&plan.base, disk, rng.fork()),
            load: load(&plan.base, rng.fork()),
            faults: plan.faults.iter().copied().collect(),
            reliefs: Vec::new(),
            stalled_until: [Instant(0); 2],
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
                past: self.hosts.iter().map(|host| host.past).sum(),
                made: self.network.made,
                foreign: self.network.foreign,
                fates: self.network.net.fates,
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
    fn next_at(&mut self) -> Option<Instant> {
        let [host, target] = [End::Host, End::Target].map(|end| self.network.next_at(end));
        let hosts = self.hosts.iter_mut().filter_map(|host| host.next_at(self.now));
        let host = host.into_iter().chain(hosts).min();
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
            self.network.sort(now, End::Target);
            self.target.turn(now, &mut self.network);
            self.target.check()?;
        }
        if now >= self.stalled_until[0] {
            self.network.sort(now, End::Host);
            for host in &mut self.hosts {
                host.turn(now, &mut self.network, &mut self.load)?;
            }
        }
        self.check_bounds()
    }

    /// Lanes of all hosts, admin queues too.
    fn lanes(&self) -> u64 {
        (self.plan.base.lanes as u64 + 1) * u64::from(self.plan.base.hosts)
    }

    /// Nothing grows without bounds, whatever happens.
    fn check_bounds(&self) -> Result<(), String> {
        let (open, lanes) = (self.load.open(), self.target.held().1);
        if open > self.lanes() as usize * self.plan.base.depth || lanes > LANES_MAX {
            return Err(format!("{open} requests, {lanes} lanes: {}", self.state()));
        }
        Ok(())
    }

    fn strike(&mut self) {
        let now = self.now;
        while let Some((_, fault)) = self.faults.pop_front_if(|(at, _)| *at <= now) {
            let over = now + duration(&fault);
            match fault {
                Fault::Cut { link, told, sticks, .. } => {
                    self.network.net.cut(link, sticks);
                    if told {
                        self.set_carrier(link, false);
                    }
                    self.reliefs.push((over, Relief::Mend { link, told }));
                }
                Fault::Deaf { link, to, .. } => self.network.net.deafen(link, to, over),
                Fault::Stall { end, .. } => {
                    let until = &mut self.stalled_until[usize::from(end == End::Target)];
                    *until = over.max(*until);
                }
                Fault::Move => {
                    for link in self.hosts.iter_mut().flat_map(Host::links) {
                        let number = self.network.change_socket_number(link.id);
                        let qpair = link.qpair.iter_mut();
                        qpair.for_each(|qpair| qpair.end.links.set_socket_number(number));
                    }
                }
                Fault::Narrow { end, credits, .. } => {
                    self.set_credits(end, credits);
                    self.reliefs.push((over, Relief::Widen(end)));
                }
                Fault::Leave(End::Host) => self.network.end_any(now),
                Fault::Leave(End::Target) => self.target.close_any(now, &mut self.network),
                Fault::Kill { .. } => {
                    self.target.crash(now, &mut self.network, false, over);
                    self.network.silence(over);
                }
                Fault::PowerLoss { .. } => {
                    self.target.crash(now, &mut self.network, true, over);
                    self.network.silence(over);
                    self.load.history.lose_power();
                }
                Fault::StallDisk { .. } => self.target.stores.disk.stall(now, over),
                Fault::Flood { frames } => {
                    forger::flood(now, frames, &mut self.network.net, &mut self.rng);
                }
            }
        }
    }

    fn set_credits(&mut self, end: End, credits: u16) {
        let now = self.now;
        match end {
            End::Host => {
                let qpairs = self
                    .hosts
                    .iter_mut()
                    .flat_map(Host::links)
                    .filter_map(|link| link.qpair.as_mut());
                qpairs.for_each(|qpair| qpair.end.links.set_credits(now, credits));
            }
            End::Target => {
                let ends = self.target.ends();
                ends.for_each(|end| end.qpair.end.links.set_credits(now, credits));
            }
        }
    }

    /// Both ends are told that a link's carrier has come or gone.
    fn set_carrier(&mut self, link: u8, has_carrier: bool) {
        let now = self.now;
        let qpairs =
            self.hosts.iter_mut().flat_map(Host::links).filter_map(|link| link.qpair.as_mut());
        qpairs.for_each(|qpair| qpair.end.links.set_carrier(now, link, has_carrier));
        let ends = self.target.ends();
        ends.for_each(|end| end.qpair.end.links.set_carrier(now, link, has_carrier));
    }

    fn relieve(&mut self) {
        let now = self.now;
        for (_, relief) in self.reliefs.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            match relief {
                Relief::Mend { link, told } => {
                    self.network.net.mend(now, link);
                    if told {
                        self.set_carrier(link, true);
                    }
                }
                Relief::Widen(end) => self.set_credits(end, u16::MAX),
            }
        }
        if !self.is_calm && now >= self.calm_from {
            self.is_calm = true;
            self.network.net.behave(now);
        }
    }

    fn state(&self) -> String {
        let (commands, connections, tasks) = self.target.held();
        format!(
            "{} requests open; {}; target: {commands} commands, {connections} lanes, {tasks} tasks",
            self.load.open(),
            self.hosts.iter().map(Host::state).collect::<Vec<_>>().join("; "),
        )
    }

    /// All requests have completed, and every host knows what the target has.
    fn is_over(&self) -> bool {
        self.is_calm
            && self.load.open() == 0
            && self.hosts.iter().all(|host| host.is_settled(&self.target.namespaces()))
            && matches!(self.target.held(), (0, _, 0))
    }

    fn judge(&self) -> Result<(), String> {
        if self.hosts.iter().any(|host| host.held() != (0, 0)) {
            return Err(format!("a host keeps something: {}", self.state()));
        }
        let tally = self.load.tally;
        if tally.submitted != tally.succeeded + tally.failed {
            return Err(format!("requests do not add up: {tally:?}"));
        }
        let ends = |fault: &Fault| {
            matches!(fault, Fault::Leave(_) | Fault::Kill { .. } | Fault::PowerLoss { .. })
        };
        let is_provoked = self.plan.faults.iter().any(|(_, fault)| ends(fault));
        if !is_provoked && self.network.made > self.lanes() {
            return Err(format!("a lane has ended for no reason: {}", self.state()));
        }
        Ok(())
    }

    /// Idle lanes are almost silent.
    fn idle(&mut self) -> Result<(), String> {
        // What is still under way, and suspect links that are asked until they are back.
        self.pass(Duration::from_secs(1))?;
        let sent = self.network.net.fates.sent;
        self.pass(IDLE)?;
        let net = &self.network.net;
        let (sent, links) = (net.fates.sent - sent, u64::from(net.links()));
        // Lanes that their hosts have left and that the target does not know to be over ask, too.
        let lanes = self.lanes().max(self.target.held().1 as u64);
        let allowed = IDLE_FRAMES * IDLE.as_secs() * links * lanes;
        if sent > allowed {
            return Err(format!(
                "idle lanes sent {sent} frames, more than {allowed}: {}",
                self.state()
            ));
        }
        let network = &self.network;
        match self.target.buffered(|conn| network.has_host(conn)) {
            0 => Ok(()),
            kept => Err(format!("the target keeps {kept} octets that the host has")),
        }
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
