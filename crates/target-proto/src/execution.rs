//! Execution of commands at the target: each command is checked, gets its data and a buffer for it, is executed by a
//! store, and is completed once.
//!
//! Sans-IO: the caller passes received commands and data ([`CommandExecution::command`], [`CommandExecution::data_done`]) and the
//! results of stores ([`CommandExecution::finish`]). It lends an [`Environment`] that sends, keeps buffers, and reaches the
//! stores.
//!
//! ```text
//! command -> checked -> buffer -> data -> store -> completion -> sent: buffer back
//!               |          |        |       |
//!               |          waits,   by R2T, or in-capsule
//!               |          first come first served
//!               in place: no buffer, and no store for shared memory
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

pub use buffers::ResumeAction;
pub use environment::{
    CommandPayload, Environment, FusedOutcome, InPlaceData, LaneNamespace, StoreJob, StoreOutcome,
};
pub use slot::{AdminCommand, SlotData};
pub use task::{CommandTask, Flushes, TaskStep, TaskStore};

use crate::buffer_shares::BufferShare;
use core::ops::DerefMut;
use fused::FusedCommands;
use lba_status::PendingStatusQuery;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use slot::{Abort, CommandSlot, SlotCommand};
use std::collections::VecDeque;
use waiting::RateWaiters;

/// The commands of a connection. `N` is a namespace, `B` a buffer.
pub struct CommandExecution<N: LaneNamespace, B> {
    slots: Vec<CommandSlot<N, B>>,
    /// Commands that wait for a buffer, first come first served.
    buffer_waiters: VecDeque<u16>,
    /// Writes deferred because the host's other writes have enough buffers that wait for data.
    deferred: VecDeque<u16>,
    /// Share of the buffers that may wait for the host's data; `None`: unlimited.
    share: Option<BufferShare>,
    /// Time since which data has arrived for the last of the waiting commands: nothing is received meanwhile.
    stalled: Option<Instant>,
    /// Duration of earlier stalls, in nanoseconds.
    stalled_ns: u64,
    /// Bytes in buffers that wait to be sent.
    unsent: usize,
    /// Admin command that last used the connection's own buffer.
    own_buffer: Option<u16>,
    /// Aborts of the connection's commands that are not yet completed.
    aborts: Vec<Abort>,
    /// Get LBA Status commands that stores are executing.
    status_queries: Vec<PendingStatusQuery>,
    /// Fused commands.
    fused: FusedCommands,
    /// Hold on receiving while another operation has exclusive access to blocks that are written in place.
    held: ReceiveHold,
    /// Commands that wait for their rate limit.
    waiting: RateWaiters,
}

/// Hold on receiving: blocks that the connection's commands write in place are locked by another operation, or too much
/// data waits for its rate limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiveHold {
    No,
    Yes,
    /// Released: the data kept by the connection is to be processed.
    Released,
}

impl<N: LaneNamespace, B> Default for CommandExecution<N, B> {
    fn default() -> Self {
        CommandExecution {
            slots: Vec::new(),
            buffer_waiters: VecDeque::new(),
            deferred: VecDeque::new(),
            share: None,
            stalled: None,
            stalled_ns: 0,
            unsent: 0,
            own_buffer: None,
            aborts: Vec::new(),
            status_queries: Vec::new(),
            fused: FusedCommands::default(),
            held: ReceiveHold::No,
            waiting: RateWaiters::default(),
        }
    }
}

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Executes a received command. Returns the slot of an admin or fabrics command, which the control plane is to
    /// execute now ([`CommandExecution::take_admin`]).
    #[must_use]
    pub fn command(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
    ) -> Option<u16> {
        let session = env.session();
        session.note_received();
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

    /// Continues a command whose data has arrived; `intact` is false if it was corrupted. Returns as
    /// [`CommandExecution::command`] does.
    #[must_use]
    pub fn data_done(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        intact: bool,
    ) -> Option<u16> {
        self.end_wait(slot);
        let status = match &self.slots[usize::from(slot)].command {
            SlotCommand::Failing(status) => *status,
            _ if !intact && self.fused.has(slot) => {
                self.fail_fused(env, slot, Status::TRANSIENT_TRANSPORT_ERROR, true);
                return None;
            }
            _ if !intact => Status::TRANSIENT_TRANSPORT_ERROR,
            SlotCommand::Admin(_) => return self.begin_admin(env, slot),
            SlotCommand::InPlace(_) | SlotCommand::Split { .. } => {
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

    /// Completes a command that a store has executed. Returns as [`CommandExecution::command`] does.
    #[must_use]
    pub fn finish(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        outcome: StoreOutcome<B>,
    ) -> Option<u16> {
        self.slots[usize::from(slot)].in_store = false;
        let session = env.session();
        session.left_store();
        if session.is_ended() {
            self.remove_status_query(slot);
            give_all(env, outcome);
            return None;
        }
        self.complete(env, slot, outcome)
    }

    /// Stops execution for a controller shutdown. The control plane is notified once no command is in a store.
    pub fn quiesce(&mut self, env: &mut impl Environment<N, B>) {
        env.session().quiesce();
        self.refuse_waiting(env);
        report_quiesced(env);
    }

    /// Ends a turn: begins commands that are due, and cancels overdue ones.
    #[inline]
    pub fn begin_due(&mut self, env: &mut impl Environment<N, B>) {
        if !self.waiting.is_empty() {
            self.resume_due(env);
        }
        if !self.status_queries.is_empty() {
            self.cancel_overdue_queries(env);
        }
    }

    /// Ends a turn after its completions were sent: reports the results of Aborts to the control plane.
    #[inline]
    pub fn end_turn(&mut self, env: &mut impl Environment<N, B>) {
        if !self.aborts.is_empty() {
            self.answer_aborts(env);
        }
    }

    /// Releases a command's resources after its completion was sent.
    #[inline]
    pub fn release(&mut self, slot: u16, give: impl FnMut(B)) {
        let slot = &mut self.slots[usize::from(slot)];
        self.unsent -= slot.unsent_bytes as usize;
        slot.release(give);
    }

    /// Closes the connection: releases every buffer that no store has.
    pub fn close(&mut self, mut give: impl FnMut(B)) {
        self.forget_waiting();
        for slot in &mut self.slots {
            slot.release(&mut give);
            slot.awaited_bytes = 0;
        }
        self.share = None;
        self.deferred.clear();
        self.buffer_waiters.clear();
        self.fused = FusedCommands::default();
        (self.unsent, self.stalled) = (0, None);
    }

    /// Returns the times at which a completed command got its buffer, and at which it was passed to a store. Either is
    /// before the command's arrival if that did not happen. `None`: its data moved in place, and the command completed
    /// with it.
    #[must_use]
    pub fn timestamps(&self, slot: u16) -> (Instant, Option<Instant>) {
        let slot = &self.slots[usize::from(slot)];
        let in_place = matches!(slot.command, SlotCommand::InPlace(_) | SlotCommand::Split { .. });
        (slot.buffered, (!in_place).then_some(slot.started))
    }

    /// Returns a command's data.
    #[must_use]
    pub fn data(&self, slot: u16) -> &SlotData<N, B> {
        &self.slots[usize::from(slot)].data
    }

    /// Returns a command's data for writing.
    #[inline]
    pub fn data_mut(&mut self, slot: u16) -> &mut SlotData<N, B> {
        &mut self.slots[usize::from(slot)].data
    }

    /// Returns the bytes in buffers that wait to be sent.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    fn slot(&mut self, number: u16) -> &mut CommandSlot<N, B> {
        let number = usize::from(number);
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, CommandSlot::default);
        }
        &mut self.slots[number]
    }

    /// Fails a command once its in-capsule data has been skipped.
    fn fail(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        status: Status,
        payload: &CommandPayload<'_, B>,
    ) {
        let follows = if let CommandPayload::Follows(bytes) = payload { *bytes } else { 0 };
        self.fail_data(env, slot, status, follows);
    }

    /// Fails a command once `follows` bytes of data have been skipped.
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
        (s.command, s.data) = (SlotCommand::Failing(status), SlotData::Discarded);
    }

    /// Refuses a command that has not begun, because the controller shuts down.
    fn refuse_quiet(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        self.resolve_aborts(slot, false);
        env.respond(slot, Status::COMMAND_SEQUENCE_ERROR.dnr(), 0);
    }
}

/// Releases every buffer of a completed command.
fn give_all<N: LaneNamespace, B: DerefMut<Target = [u8]>>(
    env: &mut impl Environment<N, B>,
    outcome: StoreOutcome<B>,
) {
    let other = outcome.fused.and_then(|fused| fused.buffer);
    outcome.buffer.into_iter().chain(other).for_each(|buffer| env.give(buffer));
}

#[inline]
fn report_quiesced<N: LaneNamespace, B: DerefMut<Target = [u8]>>(env: &mut impl Environment<N, B>) {
    if env.session().quiet().is_some() {
        env.quiesced();
    }
}
