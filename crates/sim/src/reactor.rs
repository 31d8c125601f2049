//! A reactor of a simulated target: its lanes, and their turns. The rules for its lanes are the product's
//! ([`roadtrain_target_proto::service`]).

use crate::commands::CommandDriver;
use crate::ends::{ConnEnd, ConnId, ConnectionLost};
use crate::exclusion::ExclusionNotice;
use crate::lane::{LentLane, SimTargetLane};
use crate::plan::{Sabotage, SimPlan};
use crate::pool::SimBuffer;
use crate::process::{ReactorMessage, TargetProcess};
use crate::rng::SimRng;
use crate::stores::{EndedCommand, TargetStores};
use crate::summary::TargetCounts;
use crate::transport::{SimTargetEnd, SimTransport};
use core::time::Duration;
use roadtrain_ether_proto::target_queue::HostProbe;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution::ResumeAction;
use roadtrain_target_proto::moves::Departures;
use roadtrain_target_proto::pauses::PauseDetector;
use roadtrain_target_proto::service::{self, Broadcast, LaneClosing, ReactorRules};
use roadtrain_target_proto::{CloseReason, ConnectRefused, TurnOf};
use std::collections::{BTreeMap, VecDeque};

/// Timeout of a connection without a queue.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a host's data transfer while other connections wait for buffers.
const TRANSFER_TIMEOUT: Duration = Duration::from_millis(80);
/// Longest time for which a lane receives nothing before a move.
const LEAVE_WAIT: Duration = Duration::from_millis(2);

/// A reactor.
pub struct SimReactor<T: SimTransport> {
    number: usize,
    /// Lanes whose connections are open.
    pub lanes: BTreeMap<ConnId, SimTargetLane<T::Target>>,
    /// Lanes whose connections have ended, while their commands are on the disk.
    pub ended: BTreeMap<ConnId, SimTargetLane<T::Target>>,
    rules: ReactorRules<ConnId>,
    pauses: PauseDetector,
    /// Time before which its thread does not run.
    pub paused_until: Instant,
    /// True until its first turn after a pause.
    is_paused: bool,
    /// Commands that the disk has completed.
    finished: VecDeque<EndedCommand>,
    departures: Departures,
    /// Lanes that are to move, with their new reactors and the deadlines of the moves.
    leaving: Vec<(ConnId, usize, Instant)>,
    /// Counters.
    pub counts: TargetCounts,
}

impl<T: SimTransport> SimReactor<T> {
    /// Makes a reactor of a process that starts.
    #[must_use]
    pub fn new(now: Instant, number: usize) -> Self {
        SimReactor {
            number,
            lanes: BTreeMap::new(),
            ended: BTreeMap::new(),
            rules: ReactorRules::new(CONNECT_TIMEOUT, TRANSFER_TIMEOUT),
            pauses: PauseDetector::new(now),
            paused_until: now,
            is_paused: false,
            finished: VecDeque::new(),
            departures: Departures::default(),
            leaving: Vec::new(),
            counts: TargetCounts::default(),
        }
    }

    /// Returns all lanes, including those whose connections have ended.
    pub fn all(&self) -> impl Iterator<Item = &SimTargetLane<T::Target>> {
        self.lanes.values().chain(self.ended.values())
    }

    /// True if the reactor has the lane.
    #[must_use]
    pub fn has(&self, conn: ConnId) -> bool {
        self.lanes.contains_key(&conn) || self.ended.contains_key(&conn)
    }

    /// Queues a command of one of its lanes that the disk has completed.
    pub fn ended(&mut self, ended: EndedCommand) {
        self.finished.push_back(ended);
    }

    /// Returns the number of commands that the disk has completed and that are not finished.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.finished.len()
    }

    /// Returns the bytes of their buffers.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        let buffers = self.finished.iter().flat_map(|(_, _, outcome)| {
            let fused = outcome.fused.as_ref().and_then(|fused| fused.buffer.as_ref());
            outcome.buffer.iter().chain(fused)
        });
        buffers.map(|buffer| buffer.len()).sum()
    }

    fn starving(&self) -> impl Iterator<Item = ConnId> {
        let starved = self.lanes.iter().filter(|(_, lane)| lane.execution.is_waiting_for_buffers());
        starved.map(|(&conn, _)| conn)
    }

    /// Returns the time of its next event.
    pub fn next_at(&mut self) -> Option<Instant> {
        let starves = self.starving().next().is_some();
        let finished = (!self.finished.is_empty()).then_some(Instant(0));
        let aborts = self.lanes.values().filter_map(|lane| lane.execution.deadline()).min();
        let timers = self.lanes.values_mut().filter_map(|lane| lane.end.deadline()).min();
        let leaving = self.leaving.iter().map(|(_, _, until)| *until).min();
        let paused = self.is_paused.then_some(self.paused_until);
        let others = [finished, paused, aborts, timers, leaving, self.rules.deadline(starves)];
        others.into_iter().flatten().min().map(|at| at.max(self.paused_until))
    }
}

/// A turn of a reactor.
pub(crate) struct ReactorTurn<'a, T: SimTransport> {
    /// Time of this turn.
    pub(crate) now: Instant,
    /// Plan of its target.
    pub(crate) plan: &'a SimPlan,
    /// Connections.
    pub(crate) network: &'a mut T,
    /// The reactor.
    pub(crate) reactor: &'a mut SimReactor<T>,
    /// The control plane.
    pub(crate) process: &'a mut TargetProcess<SimTargetLane<T::Target>>,
    /// The disk and the buffers.
    pub(crate) stores: &'a mut TargetStores,
    /// Random numbers for the settings of connections.
    pub(crate) rng: &'a mut SimRng,
}

impl<T: SimTransport> ReactorTurn<'_, T> {
    /// Begins a turn: first of all the reactor detects a pause.
    pub(crate) fn begin(&mut self) {
        if let Some(pause) = self.reactor.pauses.begin_turn(self.now)
            && self.plan.sabotage != Some(Sabotage::LateCheck)
        {
            self.check_timers();
            service::check_after_pause(self, pause);
        }
        self.reactor.is_paused = false;
    }

    /// Runs one turn: handles everything that has arrived or ended by now.
    pub(crate) fn run(&mut self) {
        self.take_messages();
        for conn in self.connections() {
            self.receive(conn);
        }
        while let Some((conn, slot, outcome)) = self.reactor.finished.pop_front() {
            service::finish(self, (conn, slot), outcome);
        }
        self.feed();
        service::close_unauthenticated(self);
        self.close_gone();
        if self.reactor.number == 0 {
            self.check_timers();
        }
        self.take_messages();
        self.end_turns();
        self.close_overdue();
        // The turns of lanes complete Aborts and end lanes, which causes events of the control plane.
        while self.take_messages() {
            self.end_turns();
        }
        self.move_lanes();
    }

    fn connections(&self) -> Vec<ConnId> {
        self.reactor.lanes.keys().copied().collect()
    }

    fn check_timers(&mut self) {
        self.process.control.handle_timeout(self.now);
        self.process.publish();
    }

    /// Takes messages that are due. True if there were any.
    pub(crate) fn take_messages(&mut self) -> bool {
        let mut has_any = false;
        self.send_notices();
        while let Some(message) = self.process.inboxes[self.reactor.number].take(self.now) {
            has_any = true;
            self.take_message(message);
            self.send_notices();
        }
        has_any
    }

    fn take_message(&mut self, message: ReactorMessage<SimTargetLane<T::Target>>) {
        match message {
            ReactorMessage::Adopt(conn) => self.adopt(conn),
            ReactorMessage::Event(event) => {
                let after = self.reactor.departures.followed_by(&event);
                let after = after.filter(|_| self.plan.sabotage != Some(Sabotage::LostEvents));
                for (to, ticket) in after.collect::<Vec<_>>() {
                    self.process.send(to, ReactorMessage::Passed(ticket, event.clone()));
                }
                service::handle_event(self, &event);
            }
            ReactorMessage::Fence(turn, aborts) => {
                service::fence(self, turn.clone(), aborts);
                if self.plan.sabotage == Some(Sabotage::NoWait) {
                    self.process.fenced(&turn, true);
                }
            }
            ReactorMessage::Reserved(command, status, report) => {
                service::reserved(self, command, status, &report);
            }
            ReactorMessage::Broadcast(Broadcast::CloseStale(host)) => {
                self.reactor.counts.stale_closed += service::close_stale(self, &host);
            }
            ReactorMessage::Broadcast(Broadcast::Probe(host)) => self.probe(&host),
            ReactorMessage::Broadcast(Broadcast::TryAgain) => service::try_again(self),
            ReactorMessage::Arrive(conn, lane) => self.arrive(conn, *lane),
            ReactorMessage::Departed(ticket) => {
                if let Some(to) = self.reactor.departures.settle(ticket) {
                    self.process.send(to, ReactorMessage::Settle(ticket));
                }
            }
            ReactorMessage::Passed(ticket, event) => {
                service::handle_event_of(self, ConnId(ticket as u32), &event);
            }
            ReactorMessage::Exclusion(ExclusionNotice::Close(command)) => {
                self.stores.close(self.reactor.number, command);
                service::hold_places(self);
            }
            ReactorMessage::Exclusion(ExclusionNotice::Open(lock)) => {
                self.stores.open(self.reactor.number, lock);
                service::hold_places(self);
            }
            ReactorMessage::Exclusion(ExclusionNotice::Alone(command)) => {
                self.resume_exclusive(command)
            }
            ReactorMessage::Settle(ticket) => {
                let lane = self.reactor.lanes.get_mut(&ConnId(ticket as u32));
                lane.into_iter().for_each(|lane| lane.placement.is_arriving = false);
            }
        }
    }

    fn adopt(&mut self, conn: ConnId) {
        let end = self.network.target_end(self.now, conn, self.plan, self.rng);
        let secured_as = self.network.secured_as(conn);
        let lane = SimTargetLane::new(self.plan, self.reactor.number, end, secured_as);
        self.reactor.lanes.insert(conn, lane);
        self.reactor.rules.unauthenticated.enter(self.now, conn);
        self.network.listen(conn, ConnEnd::Target, true);
    }

    fn receive(&mut self, conn: ConnId) {
        while let Some(lane) = self.reactor.lanes.get_mut(&conn).filter(|lane| lane.listens()) {
            let Some(arrival) = self.network.receive(self.now, conn, ConnEnd::Target) else {
                return;
            };
            if lane.receive(self.now, arrival, self.stores).is_err() {
                return self.end(conn, true);
            }
            if lane.end.has_host_confirmed()
                && let Some(presence) = lane.session.presence()
            {
                self.process.answered(presence);
            }
            self.handle(conn);
        }
    }

    /// Handles the data that a connection has received.
    fn handle(&mut self, conn: ConnId) {
        while let Some(lane) = self.reactor.lanes.get_mut(&conn) {
            match lane.handle(self.now, conn, self.stores, self.process) {
                Ok(Some(slot)) => self.admin(conn, slot),
                Ok(None) => match self.grant(conn) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(_) => self.end(conn, true),
                },
                Err(ConnectionLost) => self.end(conn, true),
            }
        }
    }

    /// Grants the host of a connection the queue that it has claimed, if possible. An error ends the connection.
    fn grant(&mut self, conn: ConnId) -> Result<bool, ConnectRefused> {
        self.lend_live(conn).map_or(Ok(false), |mut lane| service::grant(&mut lane))
    }

    /// Continues connections that wait for buffers, in turn.
    fn feed(&mut self) {
        for conn in self.reactor.starving().collect::<Vec<_>>() {
            self.feed_lane(conn);
        }
    }

    fn feed_lane(&mut self, conn: ConnId) {
        while let Some(lane) = self.reactor.lanes.get_mut(&conn) {
            let (execution, mut env) = lane.parts(self.now, conn, self.stores, self.process);
            match execution.resume(&mut env) {
                Some(ResumeAction::Receiving) => self.handle(conn),
                Some(ResumeAction::Admin(slot)) => self.admin(conn, slot),
                None => return,
            }
        }
    }

    /// Continues a command that has got exclusive access, if it is still admitted.
    fn resume_exclusive(&mut self, command: u64) {
        let Some((conn, slot)) = self.stores.command(command) else { return };
        let admitted = service::admits(self, conn, slot);
        if let Some((conn, slot, outcome)) = self.stores.excluded(command, admitted) {
            service::finish(self, (conn, slot), outcome);
        }
    }

    /// Sends notices about exclusive access.
    fn send_notices(&mut self) {
        for (to, notice) in self.stores.take_notices() {
            self.process.notify(to, notice);
        }
    }

    fn close_overdue(&mut self) {
        if self.reactor.starving().next().is_some() {
            self.reactor.counts.starved += 1;
            self.reactor.counts.overdue += service::close_overdue(self);
        }
    }

    /// Executes an admin or fabrics command.
    fn admin(&mut self, conn: ConnId, slot: u16) {
        if self.plan.sabotage == Some(Sabotage::NoFence) {
            self.process.presences = Default::default();
        }
        let lent = self.lend_live(conn);
        if let Some(Ok(true)) = lent.map(|mut lane| service::run_admin(&mut lane, slot)) {
            self.end(conn, true);
        }
    }

    /// Sends pending data of lanes, and ends those whose connections have ended.
    fn end_turns(&mut self) {
        for conn in self.connections() {
            self.end_lane_turn(conn);
        }
        let has_ended = |(&conn, lane): (&ConnId, &mut SimTargetLane<T::Target>)| {
            lane.end.ends().then_some(conn)
        };
        let ended: Vec<ConnId> = self.reactor.lanes.iter_mut().filter_map(has_ended).collect();
        ended.into_iter().for_each(|conn| self.end(conn, true));
    }

    fn end_lane_turn(&mut self, conn: ConnId) {
        self.lend_live(conn).iter_mut().for_each(service::before_sending);
        let Some(lane) = self.reactor.lanes.get_mut(&conn) else { return };
        lane.send(self.now, conn, self.network, self.stores);
        self.network.listen(conn, ConnEnd::Target, lane.listens());
        let lent = self.lend_live(conn);
        if lent.is_some_and(|mut lane| service::after_sending(&mut lane).is_err()) {
            self.end(conn, true);
        }
    }

    /// Ends a connection; with `orderly` a TermReq may still be sent.
    pub(crate) fn end(&mut self, conn: ConnId, orderly: bool) {
        let Some(lane) = self.reactor.lanes.get_mut(&conn) else { return };
        let mut hold = self.stores.hold(self.reactor.number, &mut lane.execution);
        lane.end.close(self.now, conn, self.network, &mut hold, orderly);
        if let (Some(user), Some(mark)) = (lane.session.user(), lane.mark.take()) {
            self.stores.stability.borrow_mut().leave(self.now, user, &mark);
        }
        if self.plan.sabotage == Some(Sabotage::NoDrain) {
            let presence = lane.session.presence();
            presence.iter().for_each(|presence| self.process.presences.leave(presence));
        }
        self.lend_live(conn).iter_mut().for_each(service::close);
        let ended = self.reactor.lanes.remove(&conn).map(|lane| (conn, lane));
        self.reactor.ended.extend(ended);
        service::ServicedReactor::vacate(self, conn);
    }

    /// Ends lanes whose hosts were queried and have not replied.
    fn close_gone(&mut self) {
        let is_gone =
            |(_, lane): &(&ConnId, &SimTargetLane<T::Target>)| lane.end.is_host_gone(self.now);
        let gone = self.reactor.lanes.iter().filter(is_gone).map(|(&conn, _)| conn);
        let gone: Vec<ConnId> = gone.collect();
        self.reactor.counts.unconfirmed += gone.len() as u64;
        gone.into_iter().for_each(|conn| self.end(conn, false));
    }

    /// Queries a host about its lanes.
    fn probe(&mut self, host: &str) {
        for lane in self.reactor.lanes.values_mut().filter(|lane| lane.session.is_of(host)) {
            let Some(presence) = lane.session.presence() else { continue };
            match lane.end.query_host(self.now) {
                HostProbe::Harmless => self.process.answered(presence),
                HostProbe::Now => self.reactor.counts.queried += 1,
                HostProbe::Already => {}
            }
        }
    }

    /// Returns a lane with an open connection, for the service.
    fn lend_live(&mut self, conn: ConnId) -> Option<LentLane<'_, T>> {
        let lane = self.reactor.lanes.get_mut(&conn)?;
        let commands = CommandDriver { network: &*self.network, process: &mut *self.process };
        Some(LentLane { now: self.now, conn, lane, stores: &mut *self.stores, commands })
    }

    /// Pauses its thread: nothing is read meanwhile.
    pub(crate) fn pause(&mut self, until: Instant) {
        (self.reactor.paused_until, self.reactor.is_paused) = (until, true);
        for conn in self.connections() {
            self.network.listen(conn, ConnEnd::Target, false);
        }
    }

    /// Prepares the move of a lane: it receives nothing more.
    pub(crate) fn begin_move(&mut self, conn: ConnId, to: usize) {
        let Some(lane) = self.reactor.lanes.get_mut(&conn) else { return };
        if lane.placement.is_movable(&lane.session) && !lane.placement.is_leaving {
            lane.placement.is_leaving = true;
            self.network.listen(conn, ConnEnd::Target, false);
            self.reactor.leaving.push((conn, to, self.now + LEAVE_WAIT));
        }
    }

    /// Moves the lanes that can move, and keeps those that could not in time.
    fn move_lanes(&mut self) {
        for (conn, to, until) in core::mem::take(&mut self.reactor.leaving) {
            let Some(lane) = self.reactor.lanes.get_mut(&conn) else { continue };
            let ticket = u64::from(conn.0);
            if lane.placement.may_move_now(&lane.session)
                && !lane.end.is_blocked()
                && self.reactor.departures.leave(ticket, &lane.session, to)
            {
                self.hand_over(conn, to);
            } else if self.now < until {
                self.reactor.leaving.push((conn, to, until));
            } else {
                lane.placement.is_leaving = false;
                self.network.listen(conn, ConnEnd::Target, lane.listens());
            }
        }
    }

    fn hand_over(&mut self, conn: ConnId, to: usize) {
        let number = self.reactor.number;
        let Some(mut lane) = self.reactor.lanes.remove(&conn) else { return };
        lane.pack(self.stores.pool(number));
        self.process.send(to, ReactorMessage::Arrive(conn, Box::new(lane)));
        self.process.send(number, ReactorMessage::Departed(conn.0.into()));
        self.reactor.counts.moved += 1;
    }

    fn arrive(&mut self, conn: ConnId, mut lane: SimTargetLane<T::Target>) {
        lane.unpack(self.reactor.number, self.stores, self.process);
        self.reactor.lanes.insert(conn, lane);
        service::arrived(self, conn);
        if let Some(lane) = self.reactor.lanes.get(&conn) {
            self.network.listen(conn, ConnEnd::Target, lane.listens());
            self.handle(conn);
        }
    }
}

impl<T: SimTransport> service::ServicedReactor for ReactorTurn<'_, T> {
    type Id = ConnId;
    type Buffer = SimBuffer;
    type Lane<'b>
        = LentLane<'b, T>
    where
        Self: 'b;

    fn now(&self) -> Instant {
        self.now
    }

    fn rules(&mut self) -> &mut ReactorRules<ConnId> {
        &mut self.reactor.rules
    }

    fn for_each(&mut self, mut call: impl FnMut(&mut Self, ConnId)) {
        let all = self.reactor.lanes.keys().chain(self.reactor.ended.keys());
        for conn in all.copied().collect::<Vec<_>>() {
            call(self, conn);
        }
    }

    fn lend(&mut self, conn: ConnId) -> Option<LentLane<'_, T>> {
        let SimReactor { lanes, ended, .. } = &mut *self.reactor;
        let lane = lanes.get_mut(&conn).or_else(|| ended.get_mut(&conn))?;
        let commands = CommandDriver { network: &*self.network, process: &mut *self.process };
        Some(LentLane { now: self.now, conn, lane, stores: &mut *self.stores, commands })
    }

    fn run_admin(&mut self, conn: ConnId, slot: u16) {
        self.admin(conn, slot);
    }

    /// Open lanes send at the end of the reactor's turn.
    fn end_turn(&mut self, _: ConnId) {}

    fn feed(&mut self, conn: ConnId) {
        self.feed_lane(conn);
    }

    fn close(&mut self, conn: ConnId, closing: LaneClosing) {
        let is_expired = closing == LaneClosing::ByControl(CloseReason::KeepAliveExpired);
        self.reactor.counts.expired += u64::from(is_expired);
        self.end(conn, false);
    }

    fn vacate(&mut self, conn: ConnId) {
        let ended = &mut self.reactor.ended;
        if ended.get(&conn).is_some_and(|lane| lane.session.is_gone())
            && let Some(lane) = ended.remove(&conn)
        {
            let commands = CommandDriver { network: &*self.network, process: &mut *self.process };
            service::leave(&mut { commands }, lane.session);
        }
    }

    fn cancel_all(&mut self, conn: ConnId) {
        self.stores.cancel_all(conn);
    }

    fn is_hung_up(&mut self, conn: ConnId) -> bool {
        self.network.is_closed(self.now, conn, ConnEnd::Target)
    }

    fn do_others_wait_for_buffers(&mut self, conn: ConnId) -> bool {
        self.reactor.starving().any(|starved| starved != conn)
    }

    fn fenced(&mut self, turn: &TurnOf) {
        self.process.fenced(turn, self.plan.sabotage == Some(Sabotage::OneReactor));
    }
}
