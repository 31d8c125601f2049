//! Get LBA Status: queries a store for its allocated blocks.
//!
//! The control plane has checked the command. A store may take long, or never reply: its query is cancelled then, and
//! the whole range is reported as allocated, which is always safe. So hosts, whose admin queue waits for this command,
//! always get a completion soon.

use super::Execution;
use super::environment::{Environment, Job, Namespace};
use super::slot::Command;
use crate::LookUp;
use core::ops::DerefMut;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Status queries of a connection that stores execute at a time, at most.
const LOOK_UPS_MAX: usize = 4;

/// A status query that a store is executing.
pub(super) struct LookingUp {
    slot: u16,
    /// Deadline; `None`: the query was cancelled.
    until: Option<Instant>,
}

impl<N: Namespace, B: DerefMut<Target = [u8]>> Execution<N, B> {
    /// Starts a checked Get LBA Status at its store, with its buffer.
    pub fn look_up(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        (sqe, mut buffer): (&Sqe, Option<B>),
        wanted: LookUp,
    ) {
        // A retry may succeed: no Do Not Retry.
        let refused = match &buffer {
            _ if self.look_ups.len() >= LOOK_UPS_MAX => Some(Status::COMMAND_INTERRUPTED),
            Some(buffer) if buffer.len() >= wanted.bytes as usize => None,
            _ => Some(Status::INTERNAL_ERROR),
        };
        if let Some(status) = refused {
            buffer.into_iter().for_each(|buffer| env.give(buffer));
            return env.respond(slot, status, 0);
        }
        // Parts that a store leaves unwritten must not reveal earlier data of the buffer.
        buffer.iter_mut().for_each(|buffer| buffer.fill(0));
        let until = Some(env.now() + wanted.patience);
        self.look_ups.push(LookingUp { slot, until });
        self.slots[usize::from(slot)].command = Command::LbaStatus(Box::new((*sqe, wanted)));
        self.start(env, slot, Job::LookUp { wanted, buffer });
    }

    /// Completes a status query that its store has ended.
    pub(super) fn looked_up(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        mut result: Result<(), Status>,
        buffer: Option<B>,
    ) {
        let is_late = self.forget_look_up(slot);
        let Command::LbaStatus(command) = &self.slots[usize::from(slot)].command else { return };
        let (sqe, wanted) = **command;
        let Some(mut buffer) = buffer else {
            return env.respond(slot, result.err().unwrap_or(Status::INTERNAL_ERROR), 0);
        };
        // A Copy of marked blocks has to fail, so they are not reported as a hole.
        let is_given_up = |status: Status| is_late && status.is(Status::ABORT_REQUESTED);
        let is_marked = |status: Status| status.is(Status::UNRECOVERED_READ_ERROR);
        if result.is_err_and(|status| is_given_up(status) || is_marked(status)) {
            wanted.call_allocated(&mut buffer[..wanted.bytes as usize]);
            result = Ok(());
        }
        match result {
            Ok(()) => self.answer_with(env, slot, buffer, wanted.bytes, 0),
            Err(status) => {
                env.give(buffer);
                env.session().record_error(&sqe, status);
                env.respond(slot, status, 0);
            }
        }
    }

    /// Removes the query of a slot. Returns true if it was cancelled.
    pub(super) fn forget_look_up(&mut self, slot: u16) -> bool {
        let at = self.look_ups.iter().position(|look_up| look_up.slot == slot);
        at.is_some_and(|at| self.look_ups.swap_remove(at).until.is_none())
    }

    /// Cancels overdue queries.
    pub(super) fn end_late_look_ups(&mut self, env: &mut impl Environment<N, B>) {
        let now = env.now();
        for look_up in &mut self.look_ups {
            if look_up.until.is_some_and(|until| until <= now) {
                look_up.until = None;
                env.cancel(look_up.slot);
            }
        }
    }

    /// Returns the earliest deadline of a query.
    pub(super) fn look_up_deadline(&self) -> Option<Instant> {
        self.look_ups.iter().filter_map(|look_up| look_up.until).min()
    }

    /// Returns the slots of the queries; the end of a connection cancels them instead of waiting for them.
    pub fn looking_up(&self) -> impl Iterator<Item = u16> {
        self.look_ups.iter().map(|look_up| look_up.slot)
    }
}
