//! The simulation itself: steps in order of time, turns of both ends, faults, and the final checks.

use crate::counting::CountingJobs;
use crate::disk::SimDisk;
use crate::ends::ConnEnd;
use crate::faults::Faults;
use crate::host::SimHost;
use crate::load::SimLoad;
use crate::paths::HostPaths;
use crate::plan::{SimFault, SimPlan};
use crate::rng::SimRng;
use crate::summary::{HostCounts, Summary};
use crate::target::SimTarget;
use crate::tenures::Tenures;
use core::any::Any;
use core::fmt;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::reservation::ReservationType;
use std::collections::VecDeque;

/// Time after the last fault within which everything completes; else the run is stuck. A namespace that replaces
/// another one appears after 5 s; a target may first wait 1 s for hosts that are gone.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(12);
/// Most steps of a run.
const STEPS_MAX: u64 = 3_000_000;

/// Most turns at one time.
const TURNS_MAX: u32 = 1000;
/// Time for which idle connections are observed.
const IDLE: Duration = Duration::from_secs(3);
/// Most frames of an idle link of a lane per second, both ways: queries and replies.
const IDLE_FRAMES: u64 = 8;
/// Most frames of a link of an orphaned lane per second: each of its links is suspect, and gets an empty frame every
/// 100 ms.
const SUSPECT_FRAMES: u64 = 12;

/// Most connections of a host at the target, including those that it does not know to be dead.
const CONNECTIONS_MAX: usize = 60;

/// Failure of a run.
#[derive(Clone, Debug)]
pub struct RunFailure {
    /// Seed of the run.
    pub seed: u64,
    /// Time of the failure.
    pub at: Instant,
    /// Description.
    pub what: String,
}

impl RunFailure {
    /// Makes the failure of a run that has panicked.
    #[must_use]
    pub fn of_panic(seed: u64, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let what = format!("panic: {}", text.unwrap_or("of an unknown kind"));
        RunFailure { seed, at: Instant(0), what }
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.at.0 / 1000;
        write!(f, "seed {} fails after {us} us: {}", self.seed, self.what)
    }
}

/// Makes the load of a run.
fn load(plan: &SimPlan, rng: SimRng) -> SimLoad {
    let shared = plan.blocks - plan.counters;
    let blocks = shared - plan.reserved;
    let kinds = [ReservationType::WriteExclusive, ReservationType::ExclusiveAccess];
    let kind = kinds[plan.depth % kinds.len()];
    let counting = CountingJobs::new(plan.hosts, shared..plan.blocks);
    let mut load = SimLoad::new(blocks, counting, rng);
    load.classes = plan.express_rules().is_some();
    (load.marks_percent, load.swaps_percent) = (plan.marks_percent, plan.swaps_percent);
    load.may_mix = plan.lends_memory;
    load.tenures = Tenures::new(plan.hosts, blocks..shared, kind);
    if plan.behaviour.losing_percent > 0 {
        load.history.expect_losses();
    }
    if plan.targets > 1 {
        load.history.expect_machines();
    }
    load
}

/// A run.
pub struct SimRun<T: Faults> {
    seed: u64,
    plan: SimPlan,
    now: Instant,
    calm_from: Instant,
    is_calm: bool,
    network: T,
    /// Times of the next events of hosts and of targets.
    due: [Option<Instant>; 2],
    /// Targets, which share the disk of the first one.
    targets: Vec<SimTarget<T>>,
    hosts: Vec<SimHost<T>>,
    /// States shared by the paths of each host.
    paths: Vec<HostPaths>,
    load: SimLoad,
    faults: VecDeque<(Instant, SimFault)>,
    /// Hosts that are detaching, with the durations of their absence.
    detaching: Vec<(u8, Duration)>,
    steps: u64,
}

impl<T: Faults> SimRun<T> {
    /// Makes the run of a seed; `change` may alter its plan.
    #[must_use]
    pub fn new(seed: u64, change: impl FnOnce(&mut SimPlan)) -> Self {
        let mut rng = SimRng::new(seed);
        let mut plan = T::plan(&mut rng);
        change(&mut plan);
        let disk = SimDisk::new(plan.blocks, plan.physical_bytes, plan.behaviour, rng.fork());
        let last = plan.faults.iter().map(|(at, fault)| *at + fault.time()).max();
        let mut dice = plan.dice.clone();
        let others = (1..plan.targets)
            .map(|number| SimTarget::new(&plan, number, disk.shared_with(number), dice.fork()));
        let others: Vec<SimTarget<T>> = others.collect();
        SimRun {
            seed,
            now: Instant(0),
            calm_from: last.unwrap_or_default().max(Instant(0) + plan.chaos),
            is_calm: false,
            network: T::new(&plan, rng.fork()),
            due: [Some(Instant(0)); 2],
            targets: std::iter::once(SimTarget::new(&plan, 0, disk, rng.fork()))
                .chain(others)
                .collect(),
            hosts: (0..plan.hosts * plan.paths)
                .map(|number| SimHost::new(Instant(0), &plan, number, rng.fork()))
                .collect(),
            paths: (0..plan.hosts.into()).map(|number| HostPaths::new(&plan, number)).collect(),
            load: load(&plan, rng.fork()),
            faults: plan.faults.iter().copied().collect(),
            detaching: Vec::new(),
            steps: 0,
            plan,
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first violation found.
    pub fn run(mut self) -> Result<Summary, RunFailure> {
        let outcome = self.live().and_then(|()| self.judge()).and_then(|()| self.idle());
        match outcome {
            Ok(()) => Ok(self.summary()),
            Err(what) => Err(RunFailure { seed: self.seed, at: self.now, what }),
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary {
            tally: self.load.tally,
            counted: self.load.counting.counted,
            held: self.load.tenures.held,
            past: self.hosts.iter().map(|host| host.past).sum(),
            steps: self.steps,
            ..Summary::default()
        };
        for target in &self.targets {
            summary.target += target.counts();
        }
        self.network.count(&mut summary);
        summary
    }

    fn live(&mut self) -> Result<(), String> {
        while !self.is_over() {
            let next = self.next_at();
            let next = next.ok_or_else(|| format!("nothing is due any more: {}", self.state()))?;
            self.step(next)?;
            if self.now > self.calm_from + COMPLETION_TIMEOUT {
                return Err(format!("stuck: {}", self.state()));
            }
        }
        Ok(())
    }

    /// Returns the time of the next step.
    fn next_at(&self) -> Option<Instant> {
        let fault = self.faults.front().map(|(at, _)| *at);
        let calm = (!self.is_calm).then_some(self.calm_from);
        self.due.into_iter().chain([fault, calm]).flatten().min()
    }

    /// Returns the time of the next event of hosts or targets, but not before their stall ends.
    fn due(&mut self, end: ConnEnd) -> Option<Instant> {
        let from = self.network.stalled_until(end);
        let timers = match end {
            ConnEnd::Host => self.hosts.iter_mut().filter_map(|host| host.next_at(self.now)).min(),
            ConnEnd::Target => self.targets.iter_mut().filter_map(SimTarget::next_at).min(),
        };
        let timers = timers.map(|at| at.max(from));
        self.network.next_at(end).into_iter().chain(timers).min()
    }

    /// Runs the next step, again while events are due at the same time.
    fn step(&mut self, next: Instant) -> Result<(), String> {
        self.now = self.now.max(next);
        for _ in 0..TURNS_MAX {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err("it goes round in circles".into());
            }
            self.turn()?;
            if self.is_over() || self.next_at().is_none_or(|at| at > self.now) {
                return Ok(());
            }
        }
        Err(format!("a moment does not end: {}", self.state()))
    }

    /// Runs one turn of hosts, of targets, or of both.
    fn turn(&mut self) -> Result<(), String> {
        let now = self.now;
        let mut is_due = self.due.map(|due| due.is_some_and(|at| at <= now));
        if self.strike() {
            is_due = [true; 2];
        }
        self.network.relieve(now, &mut self.hosts, &mut self.targets);
        if !self.is_calm && now >= self.calm_from {
            (self.is_calm, is_due) = (true, [true; 2]);
            self.network.behave(now);
        }
        let [hosts_are_due, targets_are_due] = is_due;
        if targets_are_due && now >= self.network.stalled_until(ConnEnd::Target) {
            self.turn_of_targets()?;
        }
        if hosts_are_due && now >= self.network.stalled_until(ConnEnd::Host) {
            self.turn_of_hosts()?;
        }
        self.attach_again();
        self.check_bounds()?;
        self.due = [self.due(ConnEnd::Host), self.due(ConnEnd::Target)];
        Ok(())
    }

    fn turn_of_targets(&mut self) -> Result<(), String> {
        let now = self.now;
        self.network.begin_turn(now, ConnEnd::Target);
        for target in &mut self.targets {
            target.turn(now, &mut self.network);
            target.check()?;
        }
        self.load.tenures.watch(|lba| self.targets[0].stores.disk.physical.content(lba))
    }

    fn turn_of_hosts(&mut self) -> Result<(), String> {
        let now = self.now;
        self.network.begin_turn(now, ConnEnd::Host);
        for host in &mut self.hosts {
            host.turn(now, &mut self.network, &mut self.load)?;
        }
        let count = usize::from(self.plan.paths);
        if count > 1 {
            let hosts = self.hosts.chunks_mut(count).zip(&mut self.paths);
            for (hosts, paths) in hosts {
                paths.turn(now, hosts, &mut self.network, &mut self.load)?;
            }
        }
        Ok(())
    }

    /// Attaches the successors of host processes that have detached.
    fn attach_again(&mut self) {
        let (now, paths) = (self.now, usize::from(self.plan.paths));
        let (hosts, network, load) = (&mut self.hosts, &mut self.network, &mut self.load);
        self.detaching.retain(|&(number, time)| {
            let of = &mut hosts[usize::from(number) * paths..][..paths];
            if of.iter().all(SimHost::has_ended_all) {
                of.iter_mut().for_each(|path| path.finish(now, network, load));
            }
            let is_over = of.iter().all(SimHost::is_over);
            if is_over {
                of.iter_mut().for_each(|path| path.attach_again(now, now + time, load));
            }
            !is_over
        });
    }

    /// Checks that nothing grows without bounds.
    fn check_bounds(&self) -> Result<(), String> {
        let (connections, open) = (self.held().1, self.load.open());
        let requests_max = usize::from(self.plan.hosts) * self.plan.requests_max();
        if open > requests_max || connections > CONNECTIONS_MAX * self.hosts.len() {
            return Err(format!("{open} requests, {connections} connections: {}", self.state()));
        }
        Ok(())
    }

    /// Returns the sums over all targets: I/O commands, connections and tasks.
    fn held(&self) -> (u32, usize, usize) {
        let held = self.targets.iter().map(SimTarget::held);
        held.fold((0, 0, 0), |sum, held| (sum.0 + held.0, sum.1 + held.1, sum.2 + held.2))
    }

    fn state(&self) -> String {
        let (commands, connections, tasks) = self.held();
        let hosts: Vec<String> = self.hosts.iter().map(SimHost::state).collect();
        format!(
            "{} requests open; {}; target: {commands} commands, {connections} connections, {tasks} \
             tasks, namespaces {:?}",
            self.load.open(),
            hosts.join("; "),
            self.targets[0].namespaces(),
        )
    }

    /// True if all requests have completed, and every host knows the target's namespaces.
    fn is_over(&self) -> bool {
        self.now >= self.calm_from
            && self.load.open() == 0
            && self.detaching.is_empty()
            && self.hosts.iter().all(|host| host.is_settled(&self.targets[0].namespaces()))
            && matches!(self.held(), (0, _, 0))
    }

    /// Applies faults that are due. True if there were any.
    fn strike(&mut self) -> bool {
        let mut has_any = false;
        while let Some((_, fault)) = self.faults.pop_front_if(|(at, _)| *at <= self.now) {
            has_any = true;
            let (now, over) = (self.now, self.now + fault.time());
            match fault {
                SimFault::Kill { target, .. } => {
                    self.targets[usize::from(target)].crash(now, &mut self.network, false, over);
                    self.network.silence(over);
                    self.load.history.start_target();
                }
                SimFault::PowerLoss { .. } => {
                    for target in &mut self.targets {
                        target.crash(now, &mut self.network, true, over);
                    }
                    self.network.silence(over);
                    self.load.history.start_target();
                    self.load.history.lose_power();
                }
                SimFault::Pause { target, .. } => {
                    self.targets[usize::from(target)].pause(&mut self.network, over);
                }
                SimFault::KillHost { host, .. } => {
                    if let Some(host) = self.hosts.get_mut(usize::from(host)) {
                        host.kill(now, &mut self.network, &mut self.load, over);
                    }
                }
                SimFault::Detach { host, time } => {
                    let paths = usize::from(self.plan.paths);
                    let of = self.hosts[usize::from(host) * paths..][..paths].iter_mut();
                    of.for_each(|path| path.detach(now));
                    self.detaching.push((host, time));
                }
                SimFault::Namespace => self.targets[0].change_namespace(),
                SimFault::StallDisk { .. } => self.targets[0].stores.disk.physical.stall(now, over),
                SimFault::Stick { time } => self.targets[0].stores.disk.physical.stick(time),
                SimFault::Resize => self.targets[0].resize(),
                _ => self.network.strike(now, &fault, &mut self.hosts, &mut self.targets),
            }
        }
        has_any
    }

    fn judge(&self) -> Result<(), String> {
        if self.hosts.iter().any(|host| host.held() != (0, 0)) {
            return Err(format!("a host keeps something: {}", self.state()));
        }
        let (slots, _, tasks) = self.held();
        if slots != 0 || tasks != 0 {
            return Err(format!("the target keeps {slots} slots and {tasks} tasks"));
        }
        self.load.counting.judge(|lba| self.targets[0].stores.disk.physical.content(lba))?;
        let tally = self.load.tally;
        if tally.submitted != tally.succeeded + tally.failed {
            return Err(format!("requests do not add up: {tally:?}"));
        }
        let Summary { forged, tls, .. } = self.summary();
        if tls.refused > forged || tls.alerted > tls.refused {
            return Err(format!("records were refused that were never forged: {forged}, {tls:?}"));
        }
        // Without time limits only a fault ends an association.
        let is_limited = self.plan.io_timeout.is_some() || !self.plan.keep_alive.is_zero();
        let is_limited = is_limited || self.plan.tls;
        let is_provoked = is_limited || self.plan.faults.iter().any(|(_, fault)| fault.ends());
        let past: HostCounts = self.hosts.iter().map(|host| host.past).sum();
        if !is_provoked && past.associations > self.hosts.len() as u64 {
            return Err(format!("an association has ended for no reason: {}", self.state()));
        }
        Ok(())
    }

    /// Checks that idle connections are almost silent, and hold nothing.
    fn idle(&mut self) -> Result<(), String> {
        // Lets pending work end, and suspect links recover.
        self.pass(Duration::from_secs(1))?;
        let sent = self.summary().fates.sent;
        self.pass(IDLE)?;
        let sent = self.summary().fates.sent - sent;
        // Orphaned lanes that the target does not know to have ended send as well. Each Keep Alive is a frame, and so
        // are its response and the acknowledgement of both.
        let lanes = self.plan.hosts as usize * (self.plan.lanes + 1);
        let left = self.held().1.saturating_sub(lanes) as u64;
        let links = self.plan.ether.links.len() as u64;
        let alive = match self.plan.keep_alive.as_millis() as u64 {
            0 => 0,
            timeout => u64::from(self.plan.hosts) * 16 * 1000 / timeout,
        };
        let of_lanes = IDLE_FRAMES * lanes as u64 + SUSPECT_FRAMES * left;
        let allowed = IDLE.as_secs() * (of_lanes * links + alive);
        if sent > allowed {
            let state = self.state();
            return Err(format!("idle lanes sent {sent} frames, more than {allowed}: {state}"));
        }
        let disk = &self.targets[0].stores.disk.physical;
        self.load.judge(|lba| disk.content(lba))?;
        let network = &self.network;
        let kept = self.targets.iter().map(|target| target.buffered(|conn| network.has_host(conn)));
        match kept.sum() {
            0usize => Ok(()),
            kept => Err(format!("the target keeps {kept} bytes that the host has")),
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
