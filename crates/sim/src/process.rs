//! The control plane of a simulated target, and the inboxes of its reactors.
//!
//! All calls at one time happen one after the other, as behind the engine's lock: their events are sent to all inboxes
//! before the next call. Each reactor takes its messages in this order, but at its own time.

use crate::diffie_hellman;
use crate::ends::ConnId;
use crate::exclusion::ExclusionNotice;
use crate::plan::{ReactorsPlan, SimPlan};
use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_proto::security::dhchap::DhTask;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::host_connections::{HostConnection, HostConnections};
use roadtrain_target_proto::reservations::PendingReservations;
use roadtrain_target_proto::service::{self, Broadcast};
use roadtrain_target_proto::{ConnectedQueue, TargetControl as Control, TargetEvent, TurnOf};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Owner of a command: connection and slot.
pub type CommandOwner = (ConnId, u16);

/// Message to a reactor.
pub enum ReactorMessage<L> {
    /// New connection.
    Adopt(ConnId),
    /// Event of the control plane.
    Event(TargetEvent),
    /// Revocation of access by a reservation.
    Fence(TurnOf, bool),
    /// End of a reservation command, with its report.
    Reserved(CommandOwner, Status, Arc<[u8]>),
    /// Broadcast for the lanes of a host, or for postponed commands.
    Broadcast(Broadcast),
    /// Notice about exclusive access of a command to its blocks.
    Exclusion(ExclusionNotice),
    /// Lane that moves here from another reactor.
    Arrive(ConnId, Box<L>),
    /// Departure of a lane, after every earlier event.
    Departed(u64),
    /// Event from before the arrival of the lane with this ticket.
    Passed(u64, TargetEvent),
    /// End of such events.
    Settle(u64),
}

/// Messages to a reactor, with the times at which it takes them.
pub struct ReactorInbox<L> {
    messages: VecDeque<(Instant, ReactorMessage<L>)>,
    /// Longest time in microseconds between two messages that the reactor takes.
    delay_us: u64,
    rng: SimRng,
}

impl<L> ReactorInbox<L> {
    fn send(&mut self, now: Instant, message: ReactorMessage<L>) {
        let delay = match self.delay_us {
            0 => Duration::ZERO,
            longest => self.rng.micros(0, longest),
        };
        let at = self.messages.back().map_or(now + delay, |(last, _)| (now + delay).max(*last));
        self.messages.push_back((at, message));
    }

    /// Takes the next message, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<ReactorMessage<L>> {
        self.messages.pop_front_if(|(at, _)| *at <= now).map(|(_, message)| message)
    }

    /// Returns the time of the next message.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.messages.front().map(|(at, _)| *at)
    }

    /// Returns the lanes that are moving here.
    pub fn lanes(&self) -> impl Iterator<Item = (ConnId, &L)> {
        self.messages.iter().filter_map(|(_, message)| match message {
            ReactorMessage::Arrive(conn, lane) => Some((*conn, &**lane)),
            _ => None,
        })
    }
}

/// The control plane and the inboxes.
pub struct TargetProcess<L> {
    /// Present time.
    pub now: Instant,
    /// Subsystems and controllers.
    pub control: Control,
    /// Connections of every host.
    pub presences: HostConnections<ConnId>,
    /// Pending reservation commands: reactor and owner of each.
    pending: PendingReservations<(usize, CommandOwner)>,
    /// Computations with their ends, and the duration of each.
    works: VecDeque<(Instant, DhTask)>,
    dh_compute_time: Duration,
    /// Inboxes by reactor.
    pub inboxes: Vec<ReactorInbox<L>>,
    /// Random bytes for authentications.
    pub rng: SimRng,
    /// Numbers that no host can guess.
    pub numbers: SimRng,
    /// Connects refused because commands of lost connections were on the disk.
    pub busy: u64,
}

impl<L> TargetProcess<L> {
    /// Makes a process that starts. A single reactor takes its messages at once.
    #[must_use]
    pub fn new(plan: &SimPlan, control: Control, (rng, numbers): (SimRng, SimRng)) -> Self {
        let ReactorsPlan { count, inbox_delay_us, .. } = plan.reactors;
        let delay_us = if count == 1 { 0 } else { inbox_delay_us };
        let mut dice = numbers.clone().fork();
        let inbox = |_| ReactorInbox { messages: VecDeque::new(), delay_us, rng: dice.fork() };
        let inboxes = (0..count).map(inbox).collect();
        TargetProcess {
            now: Instant(0),
            control,
            presences: HostConnections::default(),
            pending: PendingReservations::default(),
            works: VecDeque::new(),
            dh_compute_time: Duration::from_micros(plan.dh_compute_us),
            inboxes,
            rng,
            numbers,
            busy: 0,
        }
    }

    /// Ends the process and starts another one.
    pub fn restart(&mut self) {
        self.presences = HostConnections::default();
        self.pending = PendingReservations::default();
        self.works.clear();
        self.inboxes.iter_mut().for_each(|inbox| inbox.messages.clear());
    }

    /// Sends a message to a reactor.
    pub fn send(&mut self, reactor: usize, message: ReactorMessage<L>) {
        self.publish();
        self.inboxes[reactor].send(self.now, message);
    }

    /// Sends a message to all reactors.
    pub fn broadcast(&mut self, message: Option<Broadcast>) {
        let Some(message) = message else { return };
        for reactor in 0..self.inboxes.len() {
            self.inboxes[reactor].send(self.now, ReactorMessage::Broadcast(message.clone()));
        }
    }

    /// Sends the events that calls have left.
    pub fn publish(&mut self) {
        while let Some(event) = self.presences.next_event(&mut self.control) {
            match event {
                // Reservations do not outlive the process in the simulation.
                TargetEvent::Save { turn, .. } => self.control.saved(&turn, false),
                TargetEvent::Fence { turn, aborts } => {
                    self.pending.begin(turn.clone(), self.inboxes.len());
                    self.send_all(|| ReactorMessage::Fence(turn.clone(), aborts));
                }
                TargetEvent::Reserved { token, status, report } => {
                    if let Some((reactor, owner)) = self.pending.take(token) {
                        let message = ReactorMessage::Reserved(owner, status, report);
                        self.inboxes[reactor].send(self.now, message);
                    }
                }
                event => self.send_all(|| ReactorMessage::Event(event.clone())),
            }
        }
    }

    /// Sends a notice to a reactor, or to all.
    pub fn notify(&mut self, to: Option<usize>, notice: ExclusionNotice) {
        match to {
            Some(reactor) => {
                self.inboxes[reactor].send(self.now, ReactorMessage::Exclusion(notice))
            }
            None => self.send_all(|| ReactorMessage::Exclusion(notice)),
        }
    }

    fn send_all(&mut self, message: impl Fn() -> ReactorMessage<L>) {
        let now = self.now;
        self.inboxes.iter_mut().for_each(|inbox| inbox.send(now, message()));
    }

    /// Begins a reservation command of a reactor.
    pub fn reserve(&mut self, cntlid: u16, sqe: &Sqe, data: &[u8], command: (usize, CommandOwner)) {
        let token = self.pending.enter(command);
        self.control.reserve(cntlid, sqe, data, token);
        self.publish();
    }

    /// Returns the number of reservation commands whose lanes have not taken the response.
    #[must_use]
    pub fn reserving(&self) -> usize {
        let messages = self.inboxes.iter().flat_map(|inbox| &inbox.messages);
        let answers =
            messages.filter(|(_, message)| matches!(message, ReactorMessage::Reserved(..)));
        self.pending.count() + answers.count()
    }

    /// Notes that a reactor executes no commands any more that this turn has forbidden; with `all` none does.
    pub fn fenced(&mut self, turn: &TurnOf, all: bool) {
        if self.pending.fenced(turn) || all {
            self.control.fenced(turn);
        }
        self.publish();
    }

    /// Begins a computation.
    pub fn compute(&mut self, work: DhTask) {
        self.works.push_back((self.now + self.dh_compute_time, work));
    }

    /// Completes computations that are due: commands that wait for them are tried again.
    pub fn end_computations(&mut self) {
        while let Some((_, work)) = self.works.pop_front_if(|(at, _)| *at <= self.now) {
            diffie_hellman::supply(&work);
            self.broadcast(Some(Broadcast::TryAgain));
        }
    }

    /// Returns the time at which the next computation ends.
    #[must_use]
    pub fn computed_at(&self) -> Option<Instant> {
        self.works.front().map(|(at, _)| *at)
    }

    /// Shuts down a controller; `false` while its commands are in a store.
    pub fn quiesce(&mut self, cntlid: u16) -> bool {
        let is_quiet = service::quiesce(&mut self.control, &mut self.presences, cntlid);
        self.publish();
        is_quiet
    }

    /// Notes that no command of a queue is in a store any more, whose controller shuts down.
    pub fn quiesced(&mut self, connected: &ConnectedQueue) {
        let message = service::quiesced(&mut self.control, &mut self.presences, connected);
        self.broadcast(message);
        self.publish();
    }

    /// Reports the outcome of an Abort.
    pub fn aborted(&mut self, cntlid: u16, id: u32, aborted: bool) {
        self.control.aborted(cntlid, id, aborted);
        self.publish();
    }

    /// Notes that the host has confirmed a lane that it was queried for.
    pub fn answered(&mut self, presence: &HostConnection) {
        let message = service::answered(&mut self.presences, presence);
        self.broadcast(message);
    }
}
