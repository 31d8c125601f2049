//! Execution of commands at the target: each is checked, gets its data and a buffer for it, is carried out by a
//! store, and is answered once.
//!
//! Sans-IO: the caller says what has come ([`Execution::command`], [`Execution::data_done`]) and what stores have
//! answered ([`Execution::finish`]), and lends an [`Environment`] that sends, keeps buffers, and reaches the stores.
//!
//! ```text
//! command -> checked -> buffer -> data -> store -> answer -> sent: buffer back
//!               |          |        |       |
//!               |          waits,   asked for, or behind the command
//!               |          first come first served
//!               in place: no buffer, and no store for memory that everybody shares
//! ```
//!
//! A command that has not entered a store when its controller shuts down, or when its host aborts it, never does.

mod abort;
mod admin;
mod buffers;
mod copying;
mod environment;
mod fused;
mod io;
mod lba_status;
mod reservations;
mod slot;
mod task;
mod waiting;

pub use buffers::Fed;
pub use environment::{Environment, FusedOutcome, Job, Namespace, Outcome, Payload, Place};
pub use slot::{Admin, Data};
pub use task::{Flushes, Step, Store, Task};

use crate::buffer_shares::BufferShare;
use core::ops::DerefMut;
use fused::Fused;
use lba_status::LookingUp;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use slot::{Abort, Command, Slot};
use std::collections::VecDeque;
use waiting::Waiting;

/// The commands of a connection. `N` is a namespace, `B` a buffer.
pub struct Execution<N: Namespace, B> {
    slots: Vec<Slot<N, B>>,
    /// Commands that wait for a buffer, first come first served.
    starved: VecDeque<u16>,
    /// Writes whose host has enough buffers that wait for its data.
    deferred: VecDeque<u16>,
    /// What may wait for the host's data; `None`: anything.
    share: Option<BufferShare>,
    /// Data has arrived for the last of them, since when: nothing is received meanwhile.
    stalled: Option<Instant>,
    /// How long it was so before.
    stalled_ns: u64,
    /// Octets of buffers that wait to be sent.
    unsent: usize,
    /// The admin command that was given a buffer of the connection's own last.
    own_buffer: Option<u16>,
    /// Aborts of its commands that were not answered.
    aborts: Vec<Abort>,
    /// Get LBA Status commands that stores have.
    look_ups: Vec<LookingUp>,
    /// Commands that are fused.
    fused: Fused,
    /// Whether somebody is alone with blocks that are written in place.
    held: Held,
    /// Commands whose rate is limited.
    waiting: Waiting,
}

/// Whether nothing is received for now: somebody is alone with blocks that the connection's commands write in place, or
/// too much waits for its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    No,
    Yes,
    /// Not any more: what the connection has kept is to be gone on with.
    WasSo,
}

impl<N: Namespace, B> Default for Execution<N, B> {
    fn default() -> Self {
        Execution {
            slots: Vec::new(),
            starved: VecDeque::new(),
            deferred: VecDeque::new(),
            share: None,
            stalled: None,
            stalled_ns: 0,
            unsent: 0,
            own_buffer: None,
            aborts: Vec::new(),
            look_ups: Vec::new(),
            fused: Fused::default(),
            held: Held::No,
            waiting: Waiting::default(),
        }
    }
}

impl<N: Namespace, B: DerefMut<Target = [u8]>> Execution<N, B> {
    /// A command has come. `Some`: it is an admin or fabrics command, which the control plane is to execute now
    /// ([`Execution::take_admin`]).
    #[must_use]
    pub fn command(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: Payload<'_, B>,
    ) -> Option<u16> {
        let session = env.session();
        session.heard();
        let executes = session.executes_io() && sqe.opcode != opcode::FABRICS;
        self.slot(slot);
        if executes {
            self.io(env, slot, sqe, payload);
            return None;
        }
        self.end_expectation(env);
        let session = env.session();
        if let Err(status) = session.admits(session.request(sqe)) {
            self.fail(env, slot, status, &payload);
            return None;
        }
        let payload = env.place(payload);
        self.admin(env, slot, sqe, payload)
    }

    /// All data of a command has come; not `intact`: not as it was sent. `Some`: as with [`Execution::command`].
    #[must_use]
    pub fn data_done(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        intact: bool,
    ) -> Option<u16> {
        self.end_wait(slot);
        let status = match &self.slots[usize::from(slot)].command {
            Command::Failing(status) => *status,
            _ if !intact && self.fused.has(slot) => {
                self.fail_fused(env, slot, Status::TRANSIENT_TRANSPORT_ERROR, true);
                return None;
            }
            _ if !intact => Status::TRANSIENT_TRANSPORT_ERROR,
            Command::Admin(_) => return self.begin_admin(env, slot),
            Command::InPlace(_) | Command::Split { .. } => {
                self.finish_in_place(env, slot);
                return None;
            }
            _ => {
                self.execute(env, slot);
                return None;
            }
        };
        self.resolve_aborts(slot, status.is(Status::ABORT_REQUESTED));
        env.respond(slot, status, 0);
        None
    }

    /// A store has answered a command. `Some`: as with [`Execution::command`].
    #[must_use]
    pub fn finish(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        outcome: Outcome<B>,
    ) -> Option<u16> {
        self.slots[usize::from(slot)].in_store = false;
        let session = env.session();
        session.left_store();
        if session.is_ended() {
            self.forget_look_up(slot);
            give_all(env, outcome);
            return None;
        }
        self.complete(env, slot, outcome)
    }

    /// The controller shuts down: nothing more is executed, and the control plane hears when no command is in a
    /// store any more.
    pub fn quiesce(&mut self, env: &mut impl Environment<N, B>) {
        env.session().quiesce();
        self.refuse_waiting(env);
        tell_quiet(env);
    }

    /// A turn ends: commands begin whose time has come, and others are given up.
    #[inline]
    pub fn begin_due(&mut self, env: &mut impl Environment<N, B>) {
        if !self.waiting.is_empty() {
            self.go_on(env);
        }
        if !self.look_ups.is_empty() {
            self.end_late_look_ups(env);
        }
    }

    /// The turn is over, and answers were sent: the control plane hears what has become of Aborts.
    #[inline]
    pub fn end_turn(&mut self, env: &mut impl Environment<N, B>) {
        if !self.aborts.is_empty() {
            self.answer_aborts(env);
        }
    }

    /// The answer of a command has left: what it holds goes back.
    #[inline]
    pub fn release(&mut self, slot: u16, give: impl FnMut(B)) {
        let slot = &mut self.slots[usize::from(slot)];
        self.unsent -= slot.unsent_bytes as usize;
        slot.release(give);
    }

    /// The connection is over: every buffer that no store has goes back.
    pub fn close(&mut self, mut give: impl FnMut(B)) {
        self.forget_waiting();
        for slot in &mut self.slots {
            slot.release(&mut give);
            slot.awaited_bytes = 0;
        }
        self.share = None;
        self.deferred.clear();
        self.starved.clear();
        self.fused = Fused::default();
        (self.unsent, self.stalled) = (0, None);
    }

    /// When a command that was answered had its buffer, and when a store was told of it; earlier than it has come where
    /// that was not. `None`: its data moved in place, and it was answered when that was there.
    #[must_use]
    pub fn moments(&self, slot: u16) -> (Instant, Option<Instant>) {
        let slot = &self.slots[usize::from(slot)];
        let in_place = matches!(slot.command, Command::InPlace(_) | Command::Split { .. });
        (slot.buffered, (!in_place).then_some(slot.started))
    }

    /// Where the data of a command is.
    #[must_use]
    pub fn data(&self, slot: u16) -> &Data<N, B> {
        &self.slots[usize::from(slot)].data
    }

    /// As [`Execution::data`], to put data there.
    #[inline]
    pub fn data_mut(&mut self, slot: u16) -> &mut Data<N, B> {
        &mut self.slots[usize::from(slot)].data
    }

    /// Octets of buffers that wait to be sent.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    fn slot(&mut self, number: u16) -> &mut Slot<N, B> {
        let number = usize::from(number);
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Slot::default);
        }
        &mut self.slots[number]
    }

    /// Answers with an error, when the data that came along has passed.
    fn fail(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        status: Status,
        payload: &Payload<'_, B>,
    ) {
        let follows = if let Payload::Follows(bytes) = payload { *bytes } else { 0 };
        self.fail_data(env, slot, status, follows);
    }

    /// The same, when so many octets of data follow.
    fn fail_data(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        status: Status,
        follows: u32,
    ) {
        if follows == 0 {
            return env.respond(slot, status, 0);
        }
        let s = &mut self.slots[usize::from(slot)];
        (s.command, s.data) = (Command::Failing(status), Data::Discarded);
    }

    /// The controller shuts down: what it has not begun is not executed.
    fn refuse_quiet(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        self.resolve_aborts(slot, false);
        env.respond(slot, Status::COMMAND_SEQUENCE_ERROR.dnr(), 0);
    }
}

/// Gives back every buffer of a command that has ended.
fn give_all<N: Namespace, B: DerefMut<Target = [u8]>>(
    env: &mut impl Environment<N, B>,
    outcome: Outcome<B>,
) {
    let other = outcome.fused.and_then(|fused| fused.buffer);
    outcome.buffer.into_iter().chain(other).for_each(|buffer| env.give(buffer));
}

#[inline]
fn tell_quiet<N: Namespace, B: DerefMut<Target = [u8]>>(env: &mut impl Environment<N, B>) {
    if env.session().quiet().is_some() {
        env.quiesced();
    }
}
