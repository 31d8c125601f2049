//! The control plane of a simulated target, and the inboxes of its reactors.
//!
//! All calls of a moment happen one after the other, as behind the engine's lock: what a call leaves is sent to all
//! inboxes before another call is made. Each reactor takes its messages in this order, but in its own time.

use crate::ends::ConnId;
use crate::exclusion::Notice;
use crate::plan::{Plan, Reactors};
use crate::powers;
use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::security::dhchap::Work;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::presence::{Presence, Presences};
use roadtrain_target_proto::reservations::Pending;
use roadtrain_target_proto::service::{self, Broadcast};
use roadtrain_target_proto::{Connected, Target as Control, TargetEvent, TurnOf};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// A command: its connection and slot.
pub type Owner = (ConnId, u16);

/// Message to a reactor.
pub enum Message<L> {
    /// A connection has come.
    Adopt(ConnId),
    /// An event of the control plane.
    Event(TargetEvent),
    /// A reservation has taken access away.
    Fence(TurnOf, bool),
    /// A command about reservations has ended, with its report.
    Reserved(Owner, Status, Arc<[u8]>),
    /// For the lanes of a host, or for postponed commands.
    Broadcast(Broadcast),
    /// A command is to be alone with its blocks.
    Exclusion(Notice),
    /// A lane comes from another reactor.
    Arrive(ConnId, Box<L>),
    /// A lane has left, and so has every event from before.
    Departed(u64),
    /// An event from before the lane of this ticket came.
    Passed(u64, TargetEvent),
    /// No such event comes any more.
    Settle(u64),
}

/// Messages to a reactor, with the times at which it takes them.
pub struct Inbox<L> {
    messages: VecDeque<(Instant, Message<L>)>,
    /// Longest time between two messages that the reactor takes.
    delay_us: u64,
    rng: Rng,
}

impl<L> Inbox<L> {
    fn send(&mut self, now: Instant, message: Message<L>) {
        let delay = match self.delay_us {
            0 => Duration::ZERO,
            longest => self.rng.micros(0, longest),
        };
        let at = self.messages.back().map_or(now + delay, |(last, _)| (now + delay).max(*last));
        self.messages.push_back((at, message));
    }

    /// The next message, if its time has come.
    pub fn take(&mut self, now: Instant) -> Option<Message<L>> {
        self.messages.pop_front_if(|(at, _)| *at <= now).map(|(_, message)| message)
    }

    /// The time of the next message.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.messages.front().map(|(at, _)| *at)
    }

    /// Lanes that are on their way.
    pub fn lanes(&self) -> impl Iterator<Item = (ConnId, &L)> {
        self.messages.iter().filter_map(|(_, message)| match message {
            Message::Arrive(conn, lane) => Some((*conn, &**lane)),
            _ => None,
        })
    }
}

/// The control plane and the inboxes.
pub struct Process<L> {
    /// Time of this moment.
    pub now: Instant,
    /// Subsystems and controllers.
    pub control: Control,
    /// Connections of every host.
    pub presences: Presences<ConnId>,
    /// Commands about reservations: the reactor that has each, and its owner there.
    pending: Pending<(usize, Owner)>,
    /// Computations, and the time that each takes.
    works: VecDeque<(Instant, Work)>,
    power: Duration,
    /// By reactor.
    pub inboxes: Vec<Inbox<L>>,
    /// Bytes of authentications.
    pub rng: Rng,
    /// Numbers that no host can guess.
    pub numbers: Rng,
    /// Connects refused as commands of lost connections were on the disk.
    pub busy: u64,
}

impl<L> Process<L> {
    /// A process that begins. Its reactors take messages at once if there is one of them.
    #[must_use]
    pub fn new(plan: &Plan, control: Control, (rng, numbers): (Rng, Rng)) -> Self {
        let Reactors { count, inbox_delay_us, .. } = plan.reactors;
        let delay_us = if count == 1 { 0 } else { inbox_delay_us };
        let mut dice = numbers.clone().fork();
        let inbox = |_| Inbox { messages: VecDeque::new(), delay_us, rng: dice.fork() };
        let inboxes = (0..count).map(inbox).collect();
        Process {
            now: Instant(0),
            control,
            presences: Presences::default(),
            pending: Pending::default(),
            works: VecDeque::new(),
            power: Duration::from_micros(plan.power_us),
            inboxes,
            rng,
            numbers,
            busy: 0,
        }
    }

    /// The process ends, and another one begins.
    pub fn restart(&mut self) {
        self.presences = Presences::default();
        self.pending = Pending::default();
        self.works.clear();
        self.inboxes.iter_mut().for_each(|inbox| inbox.messages.clear());
    }

    /// Sends a message to a reactor.
    pub fn send(&mut self, reactor: usize, message: Message<L>) {
        self.publish();
        self.inboxes[reactor].send(self.now, message);
    }

    /// Sends a message to all reactors.
    pub fn broadcast(&mut self, message: Option<Broadcast>) {
        let Some(message) = message else { return };
        for reactor in 0..self.inboxes.len() {
            self.inboxes[reactor].send(self.now, Message::Broadcast(message.clone()));
        }
    }

    /// Sends what calls have left.
    pub fn publish(&mut self) {
        while let Some(event) = self.presences.next_event(&mut self.control) {
            match event {
                // No reservation outlives the process here.
                TargetEvent::Save { turn, .. } => self.control.saved(&turn, false),
                TargetEvent::Fence { turn, aborts } => {
                    self.pending.begin(turn.clone(), self.inboxes.len());
                    self.send_all(|| Message::Fence(turn.clone(), aborts));
                }
                TargetEvent::Reserved { token, status, report } => {
                    if let Some((reactor, owner)) = self.pending.take(token) {
                        let message = Message::Reserved(owner, status, report);
                        self.inboxes[reactor].send(self.now, message);
                    }
                }
                event => self.send_all(|| Message::Event(event.clone())),
            }
        }
    }

    /// Sends a notice to a reactor, or to all.
    pub fn notify(&mut self, to: Option<usize>, notice: Notice) {
        match to {
            Some(reactor) => self.inboxes[reactor].send(self.now, Message::Exclusion(notice)),
            None => self.send_all(|| Message::Exclusion(notice)),
        }
    }

    fn send_all(&mut self, message: impl Fn() -> Message<L>) {
        let now = self.now;
        self.inboxes.iter_mut().for_each(|inbox| inbox.send(now, message()));
    }

    /// A command about reservations of that reactor.
    pub fn reserve(&mut self, cntlid: u16, sqe: &Sqe, data: &[u8], command: (usize, Owner)) {
        let token = self.pending.enter(command);
        self.control.reserve(cntlid, sqe, data, token);
        self.publish();
    }

    /// Commands about reservations whose lanes have not taken the answer.
    #[must_use]
    pub fn reserving(&self) -> usize {
        let messages = self.inboxes.iter().flat_map(|inbox| &inbox.messages);
        let answers = messages.filter(|(_, message)| matches!(message, Message::Reserved(..)));
        self.pending.count() + answers.count()
    }

    /// A reactor executes nothing more that this turn has forbidden; with `all` none does.
    pub fn fenced(&mut self, turn: &TurnOf, all: bool) {
        if self.pending.fenced(turn) || all {
            self.control.fenced(turn);
        }
        self.publish();
    }

    /// Begins a computation.
    pub fn compute(&mut self, work: Work) {
        self.works.push_back((self.now + self.power, work));
    }

    /// Ends computations whose time is over: commands that wait for them are tried again.
    pub fn end_computations(&mut self) {
        while let Some((_, work)) = self.works.pop_front_if(|(at, _)| *at <= self.now) {
            powers::supply(&work);
            self.broadcast(Some(Broadcast::TryAgain));
        }
    }

    /// Time at which the next computation ends.
    #[must_use]
    pub fn computed_at(&self) -> Option<Instant> {
        self.works.front().map(|(at, _)| *at)
    }

    /// The controller shuts down: `false` while commands of it are in a store.
    pub fn quiesce(&mut self, cntlid: u16) -> bool {
        let is_quiet = service::quiesce(&mut self.control, &mut self.presences, cntlid);
        self.publish();
        is_quiet
    }

    /// No command of a queue whose controller shuts down is in a store any more.
    pub fn quiesced(&mut self, connected: &Connected) {
        let message = service::quiesced(&mut self.control, &mut self.presences, connected);
        self.broadcast(message);
        self.publish();
    }

    /// Outcome of an Abort.
    pub fn aborted(&mut self, cntlid: u16, id: u32, aborted: bool) {
        self.control.aborted(cntlid, id, aborted);
        self.publish();
    }

    /// The host has a lane that it was queried for.
    pub fn answered(&mut self, presence: &Presence) {
        let message = service::answered(&mut self.presences, presence);
        self.broadcast(message);
    }
}
