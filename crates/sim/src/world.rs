//! The simulation itself: moments in order, both ends' turns, faults, and the judgement at the end.

use crate::disk::SimDisk;
use crate::host::{Host, Past};
use crate::load::{Load, Tally};
use crate::network::{End, Network};
use crate::plan::{Fault, Plan};
use crate::rng::Rng;
use crate::target::{Fence, Target};
use core::any::Any;
use core::fmt;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::VecDeque;

/// Everything has completed that long after the last fault, or something is stuck. A namespace that takes the place of
/// another one appears after 5 s.
const PATIENCE: Duration = Duration::from_secs(7);
/// More moments than any run has.
const MOMENTS_MAX: u64 = 3_000_000;

/// Connections of a host that the target has at most: those that it does not know to be dead, too.
const CONNECTIONS_MAX: usize = 60;

/// What went wrong in a run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// When.
    pub at: Instant,
    /// What.
    pub what: String,
}

impl Failure {
    /// The run has panicked.
    #[must_use]
    pub fn of_panic(seed: u64, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let what = format!("panic: {}", text.unwrap_or("of an unknown kind"));
        Failure { seed, at: Instant(0), what }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.at.0 / 1000;
        write!(
            f,
            "seed {} fails after {us} us: {} (replay: SEED={})",
            self.seed, self.what, self.seed
        )
    }
}

/// What a run went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Requests.
    pub tally: Tally,
    /// The host's past.
    pub past: Past,
    /// Queues that the target closed because it heard nothing of the host.
    pub expired: u64,
    /// What connections of lost associations meant for Connects.
    pub fence: Fence,
    /// Turns at whose end connections waited for buffers.
    pub starved: u64,
    /// Connections that the target ended as they kept buffers that others waited for.
    pub overdue: u64,
    /// Moments at which something happened.
    pub moments: u64,
}

impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Summary) {
        self.tally += other.tally;
        self.past += other.past;
        self.expired += other.expired;
        self.fence += other.fence;
        self.starved += other.starved;
        self.overdue += other.overdue;
        self.moments += other.moments;
    }
}

/// The load of a run.
pub(crate) fn load(plan: &Plan, rng: Rng) -> Load {
    let mut load = Load::new(plan.blocks, rng);
    if plan.manners.losing_percent > 0 {
        load.history.expect_losses();
    }
    load
}

/// A run.
pub struct World {
    seed: u64,
    now: Instant,
    calm_from: Instant,
    network: Network,
    target: Target<Network>,
    hosts: Vec<Host<Network>>,
    load: Load,
    /// Requests that hosts have under way at most.
    requests_max: usize,
    faults: VecDeque<(Instant, Fault)>,
    moments: u64,
}

impl World {
    /// The world of a seed; `change` may depart from its plan.
    #[must_use]
    pub fn new(seed: u64, change: impl FnOnce(&mut Plan)) -> Self {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::new(&mut rng);
        change(&mut plan);
        let disk = SimDisk::new(plan.blocks, plan.manners, rng.fork());
        let longest = |fault: &Fault| match *fault {
            Fault::Stall { time, .. }
            | Fault::Hold { time }
            | Fault::Kill { time }
            | Fault::KillHost { time, .. }
            | Fault::StallDisk { time }
            | Fault::PowerLoss { time } => time,
            Fault::Reset
            | Fault::ResetOne { .. }
            | Fault::Swallow
            | Fault::Corrupt
            | Fault::Namespace
            | Fault::Resize => Duration::ZERO,
        };
        let last = plan.faults.iter().map(|(at, fault)| *at + longest(fault)).max();
        World {
            seed,
            now: Instant(0),
            calm_from: last.unwrap_or_default().max(Instant(0) + plan.chaos),
            network: Network::new(plan.weather, rng.fork()),
            target: Target::new(&plan, disk, rng.fork()),
            hosts: (0..plan.hosts)
                .map(|number| Host::new(Instant(0), &plan, number, rng.fork()))
                .collect(),
            load: load(&plan, rng.fork()),
            requests_max: usize::from(plan.hosts) * plan.lanes * plan.depth,
            faults: plan.faults.iter().copied().collect(),
            moments: 0,
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// The first thing that may not be.
    pub fn run(mut self) -> Result<Summary, Failure> {
        match self.live().and_then(|()| self.judge()) {
            Ok(()) => {
                let past = self.hosts.iter().map(|host| host.past).sum();
                let tally = self.load.tally;
                Ok(Summary {
                    tally,
                    past,
                    expired: self.target.expired,
                    fence: self.target.fence,
                    starved: self.target.starved,
                    overdue: self.target.overdue,
                    moments: self.moments,
                })
            }
            Err(what) => Err(Failure { seed: self.seed, at: self.now, what }),
        }
    }

    fn live(&mut self) -> Result<(), String> {
        while !self.is_over() {
            let due = [self.network.next_at(), self.target.next_at()].into_iter().flatten();
            let hosts = self.hosts.iter_mut().filter_map(|host| host.next_at(self.now));
            let faults = self.faults.front().map(|(at, _)| *at);
            let calm = (self.now < self.calm_from).then_some(self.calm_from);
            let next = due.chain(hosts).chain(faults).chain(calm).min();
            let next = next.ok_or_else(|| format!("nothing is due any more: {}", self.state()))?;
            self.now = self.now.max(next);
            self.moments += 1;
            if self.moments > MOMENTS_MAX {
                return Err("it goes round in circles".into());
            }
            if self.now > self.calm_from + PATIENCE {
                return Err(format!("stuck: {}", self.state()));
            }
            self.network.begin_turn();
            self.strike();
            self.target.turn(self.now, &mut self.network);
            self.target.check()?;
            for host in &mut self.hosts {
                host.turn(self.now, &mut self.network, &mut self.load)?;
            }
            self.check_bounds()?;
        }
        Ok(())
    }

    /// Nothing grows without bounds, whatever happens.
    fn check_bounds(&self) -> Result<(), String> {
        let (connections, open) = (self.target.held().1, self.load.open());
        if open > self.requests_max || connections > CONNECTIONS_MAX * self.hosts.len() {
            return Err(format!("{open} requests, {connections} connections: {}", self.state()));
        }
        Ok(())
    }

    fn state(&self) -> String {
        let (commands, connections, tasks) = self.target.held();
        let hosts: Vec<String> = self.hosts.iter().map(Host::state).collect();
        format!(
            "{} requests open; {}; target: {commands} commands, {connections} connections, {tasks} \
             tasks, namespaces {:?}",
            self.load.open(),
            hosts.join("; "),
            self.target.namespaces(),
        )
    }

    /// All requests have completed, and every host knows what the target has.
    fn is_over(&self) -> bool {
        self.now >= self.calm_from
            && self.load.open() == 0
            && self.hosts.iter().all(|host| host.is_settled(&self.target.namespaces()))
            && matches!(self.target.held(), (0, _, 0))
    }

    fn strike(&mut self) {
        while let Some((_, fault)) = self.faults.pop_front_if(|(at, _)| *at <= self.now) {
            let now = self.now;
            match fault {
                Fault::Reset => {
                    if let Some(conn) = self.network.any() {
                        self.network.reset(now, conn);
                    }
                }
                Fault::Stall { at_target, time } => {
                    let end = if at_target { End::Target } else { End::Host };
                    if let Some(conn) = self.network.any() {
                        self.network.stall(conn, end, now + time);
                    }
                }
                Fault::Hold { time } => self.network.hold(now + time),
                Fault::Kill { time } => {
                    self.target.crash(now, &mut self.network, false, now + time);
                }
                Fault::PowerLoss { time } => {
                    self.target.crash(now, &mut self.network, true, now + time);
                    self.load.history.lose_power();
                }
                Fault::KillHost { host, time } => {
                    if let Some(host) = self.hosts.get_mut(usize::from(host)) {
                        host.kill(now, &mut self.network, &mut self.load, now + time);
                    }
                }
                Fault::Swallow => {
                    if let Some(conn) = self.network.any() {
                        self.network.swallow(now, conn);
                    }
                }
                Fault::ResetOne { at_target } => {
                    let end = if at_target { End::Target } else { End::Host };
                    if let Some(conn) = self.network.any() {
                        self.network.reset_one(now, conn, end);
                    }
                }
                Fault::Corrupt => self.network.corrupt(),
                Fault::Namespace => self.target.change_namespace(),
                Fault::StallDisk { time } => self.target.stores.disk.stall(now, now + time),
                Fault::Resize => self.target.resize(),
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        if self.hosts.iter().any(|host| host.held() != (0, 0)) {
            return Err(format!("a host keeps something: {}", self.state()));
        }
        let (slots, _, tasks) = self.target.held();
        if slots != 0 || tasks != 0 {
            return Err(format!("the target keeps {slots} slots and {tasks} tasks"));
        }
        let tally = self.load.tally;
        if tally.submitted != tally.succeeded + tally.failed {
            return Err(format!("requests do not add up: {tally:?}"));
        }
        Ok(())
    }
}
