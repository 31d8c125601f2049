//! The simulated target: the real control plane and queue pairs, on a simulated network and disk.

use crate::commands::Commands;
use crate::disk::SimDisk;
use crate::execution::{Ended, Stores};
use crate::lane::{Lane, Lent};
use crate::network::{ConnId, End, Lost};
use crate::plan::{NQN, Plan, Sabotage};
use crate::rng::Rng;
use crate::target_config::{control, extra};
use crate::transport::{Hold, TargetEnd, Transport};
use core::time::Duration;
use roadtrain_ether_proto::target_queue::Asked;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution::Fed;
use roadtrain_target_proto::pauses::PauseDetector;
use roadtrain_target_proto::presence::Presences;
use roadtrain_target_proto::service::{self, Broadcast, Effect};
use roadtrain_target_proto::session::{AfterPause, Newcomers};
use roadtrain_target_proto::{
    CloseReason, ConnectRefused, Operation, Target as Control, TargetEvent, TurnOf,
};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;

/// Longest time of a connection without a queue.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Entries of the admin queue.
const ADMIN_ENTRIES: u32 = 32;

/// A host that keeps a buffer for so long while others wait for one loses its connection.
const TRANSFER_TIMEOUT: Duration = Duration::from_millis(80);

roadtrain_proto::counters! {
    /// What was met before Connects were answered.
    pub struct Fence {
        /// Lanes that had not noticed that their hosts had lost them.
        swept,
        /// Connects refused as commands of lost connections were on the disk.
        busy,
        /// Lanes whose hosts were asked for them, and those whose hosts have not answered.
        asked,
        /// See there.
        gone,
    }
}

/// A target.
pub struct Target<T: Transport> {
    number: u8,
    plan: Plan,
    control: Control,
    lanes: BTreeMap<ConnId, Lane<T::Target>>,
    /// Connections that are over, while commands of them are on the disk.
    ended: BTreeMap<ConnId, Lane<T::Target>>,
    presences: Presences<ConnId>,
    /// Messages to its reactors.
    messages: Vec<Broadcast>,
    /// Connections that have to become some controller's in time.
    newcomers: Newcomers<ConnId>,
    /// The disk, what is under way there, and the buffers.
    pub stores: Stores,
    /// While lanes wait for buffers: when those are looked for that keep one.
    transfers_at: Option<Instant>,
    rng: Rng,
    /// What nobody can guess.
    numbers: Rng,
    /// Down until then.
    down_until: Option<Instant>,
    /// It stands still until then.
    paused_until: Instant,
    pauses: PauseDetector,
    /// Sizes of the namespace that changes: 0 when it is not there.
    extra_blocks: u64,
    /// Blocks that the namespace in use has beyond those that are used.
    more_blocks: u64,
    /// What was met before Connects were answered.
    pub fence: Fence,
    /// Queues closed because the keep alive timer ran out.
    pub expired: u64,
    /// Turns at whose end connections waited for buffers.
    pub starved: u64,
    /// Connections ended as they kept buffers that others waited for.
    pub overdue: u64,
}

impl<T: Transport> Target<T> {
    /// A target that listens; several have numbers from 0 on.
    #[must_use]
    pub fn new(plan: &Plan, number: u8, disk: SimDisk, mut rng: Rng) -> Self {
        Target {
            number,
            control: control(Instant(0), plan, number, (0, 0, 1), 0),
            plan: plan.clone(),
            lanes: BTreeMap::new(),
            ended: BTreeMap::new(),
            presences: Presences::default(),
            messages: Vec::new(),
            newcomers: Newcomers::new(CONNECT_TIMEOUT),
            stores: Stores::new(plan, disk, rng.fork()),
            transfers_at: None,
            rng,
            numbers: Rng::new(1 + u64::from(number)),
            down_until: None,
            paused_until: Instant(0),
            pauses: PauseDetector::new(Instant(0)),
            extra_blocks: 0,
            more_blocks: 0,
            fence: Fence::default(),
            expired: 0,
            starved: 0,
            overdue: 0,
        }
    }

    /// One turn: everything that has arrived or ended by now.
    pub fn turn(&mut self, now: Instant, network: &mut T) {
        if now < self.paused_until {
            return;
        }
        if let Some(pause) = self.pauses.begin_turn(now)
            && self.plan.sabotage != Some(Sabotage::LateCheck)
        {
            self.check_after_pause(now, pause, network);
        }
        self.accept(now, network);
        if self.down_until.is_some() {
            return;
        }
        let conns: Vec<ConnId> = self.lanes.keys().copied().collect();
        for conn in conns {
            self.receive(now, network, conn);
        }
        for (conn, slot, outcome) in self.stores.advance(now) {
            self.finish(now, network, (conn, slot, outcome));
        }
        self.feed(now, network);
        self.grant(now, network);
        self.end_newcomers(now, network);
        self.end_gone(now, network);
        self.connect_again(now, network);
        self.control.handle_timeout(now);
        self.follow_events(now, network);
        self.end_turns(now, network);
        self.end_transfers(now, network);
        // The turns of lanes end Aborts and lanes: events for the control plane.
        while self.follow_events(now, network) {
            self.end_turns(now, network);
        }
    }

    /// Sends what lanes have to send, and ends those whose connections have ended.
    fn end_turns(&mut self, now: Instant, network: &mut T) {
        for conn in self.lanes.keys().copied().collect::<Vec<_>>() {
            self.lend(now, network, conn).iter_mut().for_each(service::before_sending);
            let Some(lane) = self.lanes.get_mut(&conn) else { continue };
            lane.send(now, conn, network, &mut self.stores.pool);
            network.listen(conn, End::Target, lane.listens());
            let lent = self.lend(now, network, conn);
            if lent.is_some_and(|mut lane| service::after_sending(&mut lane).is_err()) {
                self.close(now, network, conn, true);
            }
        }
        self.end_ended(now, network);
    }

    /// Ends lanes whose keep-alive timers have expired while it stood still; nothing more of them is executed.
    fn check_after_pause(&mut self, now: Instant, pause: Duration, network: &mut T) {
        self.control.handle_timeout(now);
        let after = |(&conn, lane): (&ConnId, &Lane<T::Target>)| {
            (conn, lane.session.after_pause(pause), lane.ids())
        };
        let all = self.lanes.iter().chain(&self.ended);
        for (conn, AfterPause { cancels, closes }, ids) in all.map(after).collect::<Vec<_>>() {
            if cancels {
                self.stores.cancel_all(conn);
            }
            if let Some((cntlid, qid)) = ids.filter(|_| closes) {
                let reason = CloseReason::KeepAliveExpired;
                self.apply(now, network, conn, &TargetEvent::Close { cntlid, qid, reason });
            }
        }
    }

    fn accept(&mut self, now: Instant, network: &mut T) {
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
            let boot = self.stores.boots;
            let sizes = (self.more_blocks, self.extra_blocks, self.stores.extra_store);
            self.control = control(now, &self.plan, self.number, sizes, boot);
        }
        while let Some(conn) = network.accept(now, self.number) {
            if self.down_until.is_some() {
                network.close(now, conn, End::Target, false);
                continue;
            }
            let end = network.target_end(now, conn, &self.plan, &mut self.rng);
            self.lanes.insert(conn, Lane::new(&self.plan, end, network.secured_as(conn)));
            self.newcomers.enter(now, conn);
        }
    }

    fn receive(&mut self, now: Instant, network: &mut T, conn: ConnId) {
        while let Some(lane) = self.lanes.get_mut(&conn).filter(|lane| lane.listens()) {
            let Some(arrival) = network.receive(now, conn, End::Target) else { return };
            if lane.receive(now, arrival, &mut self.stores.pool).is_err() {
                return self.close(now, network, conn, true);
            }
            if lane.end.has_host_answered()
                && let Some(presence) = lane.session.presence()
            {
                self.presences.answered(presence);
            }
            self.handle(now, network, conn);
        }
    }

    /// Handles what a connection has received.
    fn handle(&mut self, now: Instant, network: &mut T, conn: ConnId) {
        while let Some(lane) = self.lanes.get_mut(&conn) {
            match lane.handle(now, conn, &mut self.stores, &mut self.control) {
                Ok(Some(slot)) => self.admin(now, network, conn, slot),
                Ok(None) => match self.grant_queue(now, network, conn) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(_) => self.close(now, network, conn, true),
                },
                Err(Lost) => self.close(now, network, conn, true),
            }
        }
    }

    /// Buffers may have come back: connections that wait for one go on, in turn.
    fn feed(&mut self, now: Instant, network: &mut T) {
        for conn in self.starving().collect::<Vec<_>>() {
            while let Some(lane) = self.lanes.get_mut(&conn) {
                let (execution, mut env) =
                    lane.parts(now, conn, &mut self.stores, &mut self.control);
                match execution.feed(&mut env) {
                    Some(Fed::Receiving) => self.handle(now, network, conn),
                    Some(Fed::Admin(slot)) => self.admin(now, network, conn, slot),
                    None => break,
                }
            }
        }
    }

    /// While lanes wait for buffers: ends others whose hosts keep theirs by doing nothing.
    fn end_transfers(&mut self, now: Instant, network: &mut T) {
        let starved: Vec<ConnId> = self.starving().collect();
        if starved.is_empty() {
            self.transfers_at = None;
            return;
        }
        self.starved += 1;
        if *self.transfers_at.get_or_insert(now + TRANSFER_TIMEOUT / 8) > now {
            return;
        }
        self.transfers_at = Some(now + TRANSFER_TIMEOUT / 8);
        let is_overdue = |(conn, lane): &(&ConnId, &Lane<T::Target>)| {
            starved.iter().any(|starved| starved != *conn)
                && lane.execution.overdue(now, TRANSFER_TIMEOUT).is_some()
        };
        let overdue: Vec<ConnId> =
            self.lanes.iter().filter(is_overdue).map(|(&conn, _)| conn).collect();
        self.overdue += overdue.len() as u64;
        overdue.into_iter().for_each(|conn| self.close(now, network, conn, false));
    }

    fn starving(&self) -> impl Iterator<Item = ConnId> {
        let starved = self.lanes.iter().filter(|(_, lane)| lane.execution.is_starved());
        starved.map(|(&conn, _)| conn)
    }

    /// The connection is over; with `orderly` a TermReq may still be on its way.
    fn close(&mut self, now: Instant, network: &mut T, conn: ConnId, orderly: bool) {
        let Some(lane) = self.lanes.get_mut(&conn) else { return };
        let mut hold = Hold { execution: &mut lane.execution, pool: &mut self.stores.pool };
        lane.end.close(now, conn, network, &mut hold, orderly);
        if let (Some(user), Some(mark)) = (lane.session.user(), lane.mark.take()) {
            self.stores.stability.borrow_mut().leave(now, user, &mark);
        }
        if self.plan.sabotage == Some(Sabotage::NoDrain) {
            lane.session.presence().iter().for_each(|presence| self.presences.leave(presence));
        }
        self.lend(now, network, conn).iter_mut().for_each(service::close);
        self.ended.extend(self.lanes.remove(&conn).map(|lane| (conn, lane)));
        self.vacate(conn);
    }

    /// Forgets a connection of which nothing is left.
    fn vacate(&mut self, conn: ConnId) {
        if self.ended.get(&conn).is_some_and(|lane| lane.session.is_gone())
            && let Some(leaving) = self.ended.remove(&conn).and_then(|lane| lane.session.leave())
        {
            leaving.tell(&mut self.control, &mut self.presences);
        }
    }

    /// A command has come back from the disk.
    fn finish(&mut self, now: Instant, network: &mut T, (conn, slot, outcome): Ended) {
        let lane = self.lanes.get_mut(&conn).or_else(|| self.ended.get_mut(&conn));
        let Some(lane) = lane else { return };
        self.stores.reserving.ended((conn, slot));
        let (execution, mut env) = lane.parts(now, conn, &mut self.stores, &mut self.control);
        if let Some(slot) = execution.finish(&mut env, slot, outcome) {
            self.admin(now, network, conn, slot);
        }
        self.vacate(conn);
    }

    /// Commands that wanted to be alone with their blocks, and are by now, go on if they are still admitted.
    fn grant(&mut self, now: Instant, network: &mut T) {
        while let Some((number, conn, slot)) = self.stores.next_alone() {
            let admitted = match self.lanes.get_mut(&conn) {
                Some(lane) => {
                    let (execution, mut env) =
                        lane.parts(now, conn, &mut self.stores, &mut self.control);
                    execution.admits(&mut env, slot)
                }
                None => Err(Status::ABORTED_SQ_DELETION),
            };
            if let Some(ended) = self.stores.excluded(number, admitted) {
                self.finish(now, network, ended);
            }
        }
    }

    /// Access to a namespace was taken away from some hosts.
    fn fence_hosts(&mut self, now: Instant, turn: TurnOf, aborts: bool) {
        let mut left = Vec::new();
        for (&conn, lane) in self.lanes.iter_mut().chain(&mut self.ended) {
            let (execution, mut env) = lane.parts(now, conn, &mut self.stores, &mut self.control);
            left.extend(execution.fence(&mut env, aborts).into_iter().map(|slot| (conn, slot)));
        }
        if left.is_empty() || self.plan.sabotage == Some(Sabotage::NoWait) {
            return self.control.fenced(&turn);
        }
        self.stores.reserving.begin(turn, left);
    }

    /// The control plane has ended a command about reservations.
    fn reserved(&mut self, now: Instant, token: u64, status: Status, report: &[u8]) {
        let Some((conn, slot)) = self.stores.reserving.answer(token) else { return };
        let lane = self.lanes.get_mut(&conn).or_else(|| self.ended.get_mut(&conn));
        let Some(lane) = lane else { return };
        let (execution, mut env) = lane.parts(now, conn, &mut self.stores, &mut self.control);
        execution.reserved(&mut env, slot, status, report);
        self.vacate(conn);
    }

    /// Ends connections that have not connected a queue in time: nobody else would ever end them.
    fn end_newcomers(&mut self, now: Instant, network: &mut T) {
        let take_spared = |lanes: &mut BTreeMap<ConnId, Lane<T::Target>>, conn| {
            lanes.get_mut(&conn).and_then(|lane| lane.session.take_spared(now))
        };
        while let Some(conn) =
            self.newcomers.overdue(now, |conn| take_spared(&mut self.lanes, conn))
        {
            self.close(now, network, conn, false);
        }
    }

    /// Ends lanes whose connections have ended by themselves.
    fn end_ended(&mut self, now: Instant, network: &mut T) {
        let has_ended =
            |(&conn, lane): (&ConnId, &mut Lane<T::Target>)| lane.end.ends().then_some(conn);
        let ended: Vec<ConnId> = self.lanes.iter_mut().filter_map(has_ended).collect();
        ended.into_iter().for_each(|conn| self.close(now, network, conn, true));
    }

    /// Ends lanes whose hosts were asked for them and have not answered.
    fn end_gone(&mut self, now: Instant, network: &mut T) {
        let is_gone = |(_, lane): &(&ConnId, &Lane<T::Target>)| lane.end.is_host_gone(now);
        let gone: Vec<ConnId> = self.lanes.iter().filter(is_gone).map(|(&conn, _)| conn).collect();
        self.fence.gone += gone.len() as u64;
        gone.into_iter().for_each(|conn| self.close(now, network, conn, false));
    }

    /// Asks a host for its lanes.
    fn ask(&mut self, now: Instant, host: &str) {
        for lane in self.lanes.values_mut() {
            let presence = lane.session.presence().filter(|presence| *presence.hostnqn == *host);
            let Some(presence) = presence else { continue };
            match lane.end.ask_host(now) {
                Asked::Harmless => self.presences.answered(presence),
                Asked::Now => self.fence.asked += 1,
                Asked::Already => {}
            }
        }
    }

    /// Ends lanes that the host has lost.
    fn close_stale(&mut self, now: Instant, network: &mut T, host: &str) {
        let is_lost = |&(&conn, lane): &(&ConnId, &Lane<T::Target>)| {
            lane.session.is_stale(host, || network.is_closed(now, conn, End::Target))
        };
        let lost: Vec<_> = self.lanes.iter().filter(is_lost).map(|(&conn, _)| conn).collect();
        self.fence.swept += lost.len() as u64;
        lost.into_iter().for_each(|conn| self.close(now, network, conn, false));
    }

    /// Ends lanes that their hosts have lost, then tries Connects again that waited for it.
    fn connect_again(&mut self, now: Instant, network: &mut T) {
        loop {
            self.follow_events(now, network);
            for message in std::mem::take(&mut self.messages) {
                match message {
                    Broadcast::CloseStale(host) => self.close_stale(now, network, &host),
                    Broadcast::Probe(host) => self.ask(now, &host),
                    Broadcast::TryAgain => self.presences.wait(),
                }
            }
            if !self.presences.settled() {
                return;
            }
            let conns: Vec<ConnId> = self.lanes.keys().copied().collect();
            for conn in conns {
                let lent = self.lend(now, network, conn);
                let slots = lent.map(|mut lane| service::take_postponed(&mut lane));
                let slots = slots.into_iter().flatten();
                slots.for_each(|slot| self.admin(now, network, conn, slot));
            }
            if self.messages.is_empty() {
                return;
            }
        }
    }

    /// Executes an admin or fabrics command.
    fn admin(&mut self, now: Instant, network: &mut T, conn: ConnId, slot: u16) {
        if self.plan.sabotage == Some(Sabotage::NoFence) {
            self.presences = Presences::default();
        }
        let lent = self.lend(now, network, conn);
        if let Some(Ok(true)) = lent.map(|mut lane| service::run_admin(&mut lane, slot)) {
            self.close(now, network, conn, true);
        }
    }

    /// A lane for the service.
    fn lend<'a>(&'a mut self, now: Instant, network: &'a T, conn: ConnId) -> Option<Lent<'a, T>> {
        let Target { lanes, control, presences, rng, numbers, messages, fence, stores, .. } = self;
        let (lane, busy) = (lanes.get_mut(&conn)?, &mut fence.busy);
        let commands = Commands { now, network, control, presences, rng, numbers, messages, busy };
        Some(Lent { now, conn, lane, stores, commands })
    }

    /// Grants the host of a connection the queue that it has claimed, if it may have it. An error ends the connection.
    fn grant_queue(
        &mut self,
        now: Instant,
        network: &T,
        conn: ConnId,
    ) -> Result<bool, ConnectRefused> {
        self.lend(now, network, conn).map_or(Ok(false), |mut lane| service::grant(&mut lane))
    }

    /// Does what the control plane wants; `false`: nothing.
    fn follow_events(&mut self, now: Instant, network: &mut T) -> bool {
        for turn in self.stores.reserving.fenced() {
            self.control.fenced(&turn);
        }
        let mut has_any = false;
        while let Some(event) = self.presences.next_event(&mut self.control) {
            has_any = true;
            match event {
                // No reservation outlives the process here.
                TargetEvent::Save { turn, .. } => self.control.saved(&turn, false),
                TargetEvent::Fence { turn, aborts } => self.fence_hosts(now, turn, aborts),
                TargetEvent::Reserved { token, status, report } => {
                    self.reserved(now, token, status, &report);
                }
                event => {
                    for conn in self.lanes.keys().copied().collect::<Vec<_>>() {
                        self.apply(now, network, conn, &event);
                    }
                }
            }
        }
        has_any
    }

    /// Applies an event to a lane, if it concerns it.
    fn apply(&mut self, now: Instant, network: &mut T, conn: ConnId, event: &TargetEvent) {
        let lent = self.lend(now, network, conn);
        if let Some(Effect::Closes(reason)) = lent.map(|mut lane| service::apply(&mut lane, event))
        {
            self.expired += u64::from(reason == CloseReason::KeepAliveExpired);
            self.close(now, network, conn, false);
        }
    }

    /// The process stands still until then.
    pub fn pause(&mut self, network: &mut T, until: Instant) {
        if self.down_until.is_none() {
            self.paused_until = until.max(self.paused_until);
            network.pause(self.number, self.paused_until);
        }
    }

    /// The process ends, with `power_loss` the machine: every connection is gone, nothing is remembered
    /// but the disk.
    pub fn crash(&mut self, now: Instant, network: &mut T, power_loss: bool, until: Instant) {
        for conn in std::mem::take(&mut self.lanes).into_keys() {
            network.close(now, conn, End::Target, false);
        }
        self.stores.crash(now, power_loss);
        self.ended.clear();
        self.presences = Presences::default();
        self.messages.clear();
        self.newcomers = Newcomers::new(CONNECT_TIMEOUT);
        self.down_until = Some(until);
        self.paused_until = now;
        self.pauses = PauseDetector::new(until);
        network.pause(self.number, now);
        self.transfers_at = None;
    }

    /// Ends of its connections.
    pub fn ends(&mut self) -> impl Iterator<Item = &mut T::Target> {
        self.lanes.values_mut().map(|lane| &mut lane.end)
    }

    /// Ends one of its connections.
    pub fn close_any(&mut self, now: Instant, network: &mut T) {
        let number = self.rng.below(self.lanes.len().max(1) as u64) as usize;
        if let Some(&conn) = self.lanes.keys().nth(number) {
            self.close(now, network, conn, true);
        }
    }

    /// Adds, removes or resizes the namespace that no data is kept in.
    pub fn change_namespace(&mut self) {
        let blocks = self.rng.pick(&[0, 8, 64, 128]);
        let nqn = NQN.to_owned();
        let operation = match (self.extra_blocks, blocks) {
            (0, 0) => None,
            (0, _) => {
                let namespace = extra(blocks, self.stores.extra_store);
                Some(Operation::AddNamespace { nqn, namespace })
            }
            (_, 0) => Some(Operation::RemoveNamespace { nqn, nsid: 2 }),
            _ => Some(Operation::ResizeNamespace { nqn, nsid: 2, bytes: blocks * 512 }),
        };
        self.control.apply(operation.as_slice()).expect("the namespace is as remembered");
        self.extra_blocks = blocks;
        if self.plan.rates.is_limited() {
            self.stores.change_limit(&self.plan.rates);
        }
    }

    /// The namespace in use grows, or is what it was.
    pub fn resize(&mut self) {
        self.more_blocks = self.rng.pick(&[0, 8, 64]);
        let bytes = (self.plan.blocks + self.more_blocks) * 512;
        let resize = Operation::ResizeNamespace { nqn: NQN.to_owned(), nsid: 1, bytes };
        self.control.apply(&[resize]).expect("the namespace is there");
    }

    /// What holds after every step: nothing is held for nobody, and nobody holds more than it may.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let sessions = || self.lanes.values().chain(self.ended.values()).map(|lane| &lane.session);
        let in_store: usize = sessions().map(|session| session.in_store() as usize).sum();
        let tasks = self.stores.tasks();
        if in_store != tasks {
            return Err(format!("{in_store} commands in the store, but {tasks} tasks"));
        }
        let present = sessions().filter(|session| session.presence().is_some()).count();
        let leaves_early =
            matches!(self.plan.sabotage, Some(Sabotage::NoDrain | Sabotage::NoFence));
        if present != self.presences.count() && !leaves_early {
            let count = self.presences.count();
            return Err(format!("{present} connections with a queue, but {count} presences"));
        }
        self.stores.check(self.buffered(|_| true))?;
        if self.ended.values().any(|lane| lane.session.is_gone()) {
            return Err("a connection of which nothing is left was not forgotten".into());
        }
        for lane in self.lanes.values() {
            let (held, entries) = (lane.end.in_flight(), u32::from(self.plan.queue_entries));
            // The commands of a caravan that is being sent may be followed by as many.
            let most = 2 * entries.max(ADMIN_ENTRIES);
            if held > most {
                return Err(format!("{held} commands of a connection, {most} are the most"));
            }
        }
        Ok(())
    }

    /// Octets of the buffers that these connections hold.
    #[must_use]
    pub fn buffered(&self, of: impl Fn(ConnId) -> bool) -> usize {
        let lanes = self.lanes.iter().filter(|(conn, _)| of(**conn));
        lanes.map(|(_, lane)| lane.execution.buffered()).sum()
    }

    /// Active namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Vec<u32> {
        let table = self.control.namespaces(NQN);
        table.map_or(Vec::new(), |table| table.iter().map(|(n, _)| n).collect())
    }

    /// When something is due.
    pub fn next_at(&mut self) -> Option<Instant> {
        let from = self.paused_until;
        if self.down_until.is_some() {
            return self.down_until;
        }
        let aborts = self.lanes.values().filter_map(|lane| lane.execution.deadline()).min();
        let timers = self.lanes.values_mut().filter_map(|l| l.end.deadline());
        let newcomers = self.newcomers.deadline();
        let others = [aborts, self.transfers_at, self.stores.next_at()].into_iter().flatten();
        let next = timers.chain(newcomers).chain(others).chain(self.control.poll_timeout()).min();
        next.map(|at| at.max(from))
    }

    /// Commands of I/O queues that have not been answered, connections, and tasks.
    #[must_use]
    pub fn held(&self) -> (u32, usize, usize) {
        let io = self.lanes.values().filter(|lane| lane.ids().is_none_or(|ids| ids.1 > 0));
        (
            io.map(|lane| lane.end.in_flight()).sum(),
            self.lanes.len() + self.ended.len(),
            self.stores.tasks(),
        )
    }
}
