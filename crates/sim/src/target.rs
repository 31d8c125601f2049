//! The simulated target: the real control plane, service and queue pairs, on a simulated network and disk.

use crate::disk::SimDisk;
use crate::ends::{ConnEnd, ConnId};
use crate::lane::SimTargetLane;
use crate::plan::{NQN, Sabotage, SimFault, SimPlan};
use crate::process::{ReactorMessage, TargetProcess};
use crate::reactor::{ReactorTurn, SimReactor};
use crate::rng::SimRng;
use crate::stores::TargetStores;
use crate::summary::TargetCounts;
use crate::target_config::{control, extra};
use crate::transport::{SimTargetEnd, SimTransport};
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::ConfigOperation;

/// Longest time in the store that a write may have in runs with long pauses: longer writes outlast the quiet time.
const STICK_MAX: Duration = Duration::from_millis(100);
/// Entries of the admin queue.
const ADMIN_ENTRIES: u32 = 32;

/// A target.
pub struct SimTarget<T: SimTransport> {
    number: u8,
    plan: SimPlan,
    process: TargetProcess<SimTargetLane<T::Target>>,
    reactors: Vec<SimReactor<T>>,
    /// The disk, its commands in flight, and the buffers.
    pub stores: TargetStores,
    rng: SimRng,
    /// Time until which it is down.
    down_until: Option<Instant>,
    /// Time until which it is paused.
    paused_until: Instant,
    /// Size of the namespace that changes; 0 without it.
    extra_blocks: u64,
    /// Blocks of the namespace in use beyond those that the load uses.
    more_blocks: u64,
    /// Time of the next move of a lane, or pause of a reactor's thread.
    move_at: Option<Instant>,
    /// Random numbers for moves and pauses.
    dice: SimRng,
    /// Begin and duration of a single long pause of a reactor's thread.
    long_pause: Option<(Instant, Duration)>,
    /// Counters of earlier processes.
    past: TargetCounts,
}

impl<T: SimTransport> SimTarget<T> {
    /// Makes a target that accepts connections; several have numbers from 0 on.
    #[must_use]
    pub fn new(plan: &SimPlan, number: u8, disk: SimDisk, mut rng: SimRng) -> Self {
        let stores = TargetStores::new(plan, disk, rng.fork());
        let numbers = SimRng::new(1 + u64::from(number));
        let control = control(Instant(0), plan, number, (0, 0, 1), 0);
        let mut dice = rng.clone().fork(); // forked, so that the rest of a seed's run stays the same
        SimTarget {
            number,
            process: TargetProcess::new(plan, control, (rng.clone(), numbers)),
            plan: plan.clone(),
            reactors: reactors(plan, Instant(0)),
            stores,
            rng,
            down_until: None,
            paused_until: Instant(0),
            extra_blocks: 0,
            more_blocks: 0,
            move_at: (plan.reactors.moves > 0 && plan.reactors.count > 1).then_some(Instant(0)),
            long_pause: (plan.reactors.count > 1).then(|| long_pause(plan, &mut dice)),
            dice,
            past: TargetCounts::default(),
        }
    }

    /// Runs one turn: handles everything that has arrived or ended by now.
    pub fn turn(&mut self, now: Instant, network: &mut T) {
        if now < self.paused_until {
            return;
        }
        self.process.now = now;
        self.accept(now, network);
        if self.down_until.is_some() {
            return;
        }
        let is_running: Vec<bool> =
            self.reactors.iter().map(|reactor| now >= reactor.paused_until).collect();
        for number in (0..is_running.len()).filter(|number| is_running[*number]) {
            self.turn_of(now, network, number).begin();
        }
        for ended in self.stores.advance(now, |reactor| is_running[reactor]) {
            if let Some(its) = self.reactors.iter_mut().find(|reactor| reactor.has(ended.0)) {
                its.ended(ended);
            }
        }
        self.process.end_computations();
        self.disturb(now, network);
        for number in 0..self.reactors.len() {
            if now >= self.reactors[number].paused_until {
                self.turn_of(now, network, number).run();
            }
        }
    }

    fn turn_of<'a>(
        &'a mut self,
        now: Instant,
        network: &'a mut T,
        number: usize,
    ) -> ReactorTurn<'a, T> {
        let SimTarget { plan, process, reactors, stores, rng, .. } = self;
        ReactorTurn { now, plan, network, reactor: &mut reactors[number], process, stores, rng }
    }

    fn accept(&mut self, now: Instant, network: &mut T) {
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
            let boot = self.stores.boots;
            let sizes = (self.more_blocks, self.extra_blocks, self.stores.extra_store);
            self.process.control = control(now, &self.plan, self.number, sizes, boot);
        }
        while let Some(conn) = network.accept(now, self.number) {
            if self.down_until.is_some() {
                network.close(now, conn, ConnEnd::Target, false);
                continue;
            }
            let reactor = conn.0 as usize % self.reactors.len();
            // Nothing is read before the reactor has the connection.
            network.listen(conn, ConnEnd::Target, false);
            self.process.send(reactor, ReactorMessage::Adopt(conn));
        }
    }

    /// Moves a lane, or pauses a reactor's thread, when that is due.
    fn disturb(&mut self, now: Instant, network: &mut T) {
        if let Some((_, time)) = self.long_pause.take_if(|(at, _)| *at <= now) {
            let reactor = self.dice.below(self.reactors.len() as u64) as usize;
            return self.turn_of(now, network, reactor).pause(now + time);
        }
        if self.move_at.is_none_or(|at| at > now) {
            return;
        }
        if now >= Instant(0) + self.plan.chaos {
            self.move_at = None;
            return;
        }
        let between = 1_000_000 / u64::from(self.plan.reactors.moves);
        self.move_at = Some(now + self.dice.micros(1, 2 * between));
        let count = self.reactors.len() as u64;
        let (from, step) = (self.dice.below(count), self.dice.between(1, count - 1));
        let (from, to) = (from as usize, ((from + step) % count) as usize);
        if self.dice.chance(5) {
            let longest = self.dice.pick(&[50, 500, 500, 5_000]);
            let until = now + self.dice.micros(0, longest);
            return self.turn_of(now, network, from).pause(until);
        }
        let lanes = &self.reactors[from].lanes;
        let chosen = self.dice.below(lanes.len().max(1) as u64) as usize;
        let Some(&conn) = lanes.keys().nth(chosen) else { return };
        self.turn_of(now, network, from).begin_move(conn, to);
    }

    /// Pauses the process until `until`.
    pub fn pause(&mut self, network: &mut T, until: Instant) {
        if self.down_until.is_none() {
            self.paused_until = until.max(self.paused_until);
            network.pause(self.number, self.paused_until);
        }
    }

    /// Ends the process, with `power_loss` the machine: every connection is lost, and only the disk keeps its state.
    pub fn crash(&mut self, now: Instant, network: &mut T, power_loss: bool, until: Instant) {
        for conn in self.open().map(|(conn, _)| conn).collect::<Vec<_>>() {
            network.close(now, conn, ConnEnd::Target, false);
        }
        self.past = self.counts();
        self.stores.crash(now, power_loss);
        self.reactors = reactors(&self.plan, until);
        self.process.restart();
        self.down_until = Some(until);
        self.paused_until = now;
        network.pause(self.number, now);
    }

    /// Returns its counters.
    #[must_use]
    pub fn counts(&self) -> TargetCounts {
        let counts = self.reactors.iter().fold(self.past, |sum, reactor| sum + reactor.counts);
        TargetCounts { busy: self.process.busy, ..counts }
    }

    /// Returns lanes with open connections, including those that are moving to another reactor.
    fn open(&self) -> impl Iterator<Item = (ConnId, &SimTargetLane<T::Target>)> {
        let lanes = self.reactors.iter().flat_map(|reactor| &reactor.lanes);
        let moving = self.process.inboxes.iter().flat_map(|inbox| inbox.lanes());
        lanes.map(|(&conn, lane)| (conn, lane)).chain(moving)
    }

    fn all(&self) -> impl Iterator<Item = &SimTargetLane<T::Target>> {
        let ended = self.reactors.iter().flat_map(|reactor| reactor.ended.values());
        self.open().map(|(_, lane)| lane).chain(ended)
    }

    /// Returns the ends of its connections.
    pub fn ends(&mut self) -> impl Iterator<Item = &mut T::Target> {
        let lanes = self.reactors.iter_mut().flat_map(|reactor| reactor.lanes.values_mut());
        lanes.map(|lane| &mut lane.end)
    }

    /// Closes a random connection.
    pub fn close_any(&mut self, now: Instant, network: &mut T) {
        let lanes: Vec<(usize, ConnId)> = (0..)
            .zip(&self.reactors)
            .flat_map(|(number, reactor)| reactor.lanes.keys().map(move |&conn| (number, conn)))
            .collect();
        let chosen = self.rng.below(lanes.len().max(1) as u64) as usize;
        if let Some(&(number, conn)) = lanes.get(chosen) {
            self.turn_of(now, network, number).end(conn, true);
        }
    }

    /// Adds, removes or resizes the namespace without data.
    pub fn change_namespace(&mut self) {
        let blocks = self.rng.pick(&[0, 8, 64, 128]);
        let nqn = NQN.to_owned();
        let operation = match (self.extra_blocks, blocks) {
            (0, 0) => None,
            (0, _) => {
                let namespace = extra(blocks, self.stores.extra_store);
                Some(ConfigOperation::AddNamespace { nqn, namespace })
            }
            (_, 0) => Some(ConfigOperation::RemoveNamespace { nqn, nsid: 2 }),
            _ => Some(ConfigOperation::ResizeNamespace { nqn, nsid: 2, bytes: blocks * 512 }),
        };
        self.process.control.apply(operation.as_slice()).expect("the namespace is as remembered");
        self.process.publish();
        self.extra_blocks = blocks;
        if self.plan.rates.is_limited() {
            self.stores.change_limit(&self.plan.rates);
        }
    }

    /// Grows the namespace in use, or restores its size.
    pub fn resize(&mut self) {
        self.more_blocks = self.rng.pick(&[0, 8, 64]);
        let bytes = (self.plan.blocks + self.more_blocks) * 512;
        let resize = ConfigOperation::ResizeNamespace { nqn: NQN.to_owned(), nsid: 1, bytes };
        self.process.control.apply(&[resize]).expect("the namespace is there");
        self.process.publish();
    }

    /// Checks the invariants after every step: buffers and slots have owners, within the limits.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self) -> Result<(), String> {
        let sessions = || self.all().map(|lane| &lane.session);
        let in_store: usize = sessions().map(|session| session.in_store() as usize).sum();
        let tasks = self.tasks();
        if in_store != tasks {
            return Err(format!("{in_store} commands in the store, but {tasks} tasks"));
        }
        let present = sessions().filter(|session| session.presence().is_some()).count();
        let leaves_early =
            matches!(self.plan.sabotage, Some(Sabotage::NoDrain | Sabotage::NoFence));
        if present != self.process.presences.count() && !leaves_early {
            let count = self.process.presences.count();
            return Err(format!("{present} connections with a queue, but {count} presences"));
        }
        for (number, reactor) in self.reactors.iter().enumerate() {
            let held = reactor.all().map(|lane| lane.execution.buffered());
            let held = held.chain([reactor.unfinished_bytes()]).sum();
            self.stores.check(number, held)?;
        }
        let mut ended = self.reactors.iter().flat_map(|reactor| reactor.ended.values());
        if ended.any(|lane| lane.session.is_gone()) {
            return Err("a connection of which nothing is left was not forgotten".into());
        }
        for (_, lane) in self.open() {
            let (held, entries) = (lane.end.in_flight(), u32::from(self.plan.queue_entries));
            // The commands of a caravan in flight may be followed by as many.
            let most = 2 * entries.max(ADMIN_ENTRIES);
            if held > most {
                return Err(format!("{held} commands of a connection, {most} are the most"));
            }
        }
        Ok(())
    }

    /// Returns the bytes of the buffers that the given connections hold.
    #[must_use]
    pub fn buffered(&self, of: impl Fn(ConnId) -> bool) -> usize {
        let lanes = self.open().filter(|(conn, _)| of(*conn));
        lanes.map(|(_, lane)| lane.execution.buffered()).sum()
    }

    /// Returns the number of commands in stores, of those that wait for the control plane, and of those that a reactor
    /// has not finished.
    fn tasks(&self) -> usize {
        let unfinished: usize = self.reactors.iter().map(SimReactor::unfinished).sum();
        self.stores.tasks() + self.process.reserving() + unfinished
    }

    /// Returns the active namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Vec<u32> {
        let table = self.process.control.namespaces(NQN);
        table.map_or(Vec::new(), |table| table.iter().map(|(n, _)| n).collect())
    }

    /// Returns the time of its next event.
    pub fn next_at(&mut self) -> Option<Instant> {
        let from = self.paused_until;
        if self.down_until.is_some() {
            return self.down_until;
        }
        let inboxes = self.reactors.iter().zip(&self.process.inboxes);
        let messages = inboxes
            .filter_map(|(reactor, inbox)| inbox.next_at().map(|at| at.max(reactor.paused_until)));
        let messages = messages.min();
        let timers = self.process.control.poll_timeout();
        let timers = timers.map(|at| at.max(self.reactors[0].paused_until));
        let lanes = self.reactors.iter_mut().filter_map(SimReactor::next_at).min();
        let moves = self.move_at;
        let computed = self.process.computed_at();
        let pause = self.long_pause.map(|(at, _)| at);
        let others = [messages, timers, lanes, moves, pause, computed, self.stores.next_at()];
        others.into_iter().flatten().min().map(|at| at.max(from))
    }

    /// Returns the numbers of I/O commands without a response, of connections, and of tasks.
    #[must_use]
    pub fn held(&self) -> (u32, usize, usize) {
        let lanes = self.open().map(|(_, lane)| lane);
        let io = lanes.filter(|lane| lane.ids().is_none_or(|ids| ids.1 > 0));
        (io.map(|lane| lane.end.in_flight()).sum(), self.all().count(), self.tasks())
    }
}

/// Draws a pause that may be longer than a keep-alive timeout. A write that stays in the store for longer than the
/// quiet time is covered only while its target can be reached: with such writes, the pause is short.
fn long_pause(plan: &SimPlan, dice: &mut SimRng) -> (Instant, Duration) {
    let is_long = |fault: &SimFault| matches!(fault, SimFault::Stick { time } if *time > STICK_MAX);
    let sticks = plan.faults.iter().any(|(_, fault)| is_long(fault));
    let longest = if sticks { 60_000 } else { 400_000 };
    (dice.moment(plan.chaos), dice.micros(0, longest))
}

/// Makes the reactors of a process that starts.
fn reactors<T: SimTransport>(plan: &SimPlan, now: Instant) -> Vec<SimReactor<T>> {
    (0..plan.reactors.count).map(|number| SimReactor::new(now, number)).collect()
}
