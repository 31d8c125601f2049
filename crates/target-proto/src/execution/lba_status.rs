//! Get LBA Status: queries a store for its allocated blocks.
//!
//! The control plane has checked the command. A store may take long, or never reply: its query is cancelled then, and
//! the whole range is reported as allocated, which is always safe. So hosts, whose admin queue waits for this command,
//! always get a completion soon.

use super::CommandExecution;
use super::environment::{Environment, LaneNamespace, StoreJob};
use super::slot::SlotCommand;
use crate::LbaStatusQuery;
use core::ops::DerefMut;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Status queries of a connection that stores execute at a time, at most.
const STATUS_QUERIES_MAX: usize = 4;

/// A status query that a store is executing.
pub(super) struct PendingStatusQuery {
    slot: u16,
    /// Deadline; `None`: the query was cancelled.
    until: Option<Instant>,
}

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Starts a checked Get LBA Status at its store, with its buffer.
    pub fn query_block_status(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        (sqe, mut buffer): (&Sqe, Option<B>),
        wanted: LbaStatusQuery,
    ) {
        // A retry may succeed: no Do Not Retry.
        let refused = match &buffer {
            _ if self.status_queries.len() >= STATUS_QUERIES_MAX => {
                Some(Status::COMMAND_INTERRUPTED)
            }
            Some(buffer) if buffer.len() >= wanted.bytes as usize => None,
            _ => Some(Status::INTERNAL_ERROR),
        };
        if let Some(status) = refused {
            buffer.into_iter().for_each(|buffer| env.give(buffer));
            return env.respond(slot, status, 0);
        }
        // Parts that a store leaves unwritten must not reveal earlier data of the buffer.
        buffer.iter_mut().for_each(|buffer| buffer.fill(0));
        let until = Some(env.now() + wanted.timeout);
        self.status_queries.push(PendingStatusQuery { slot, until });
        self.slots[usize::from(slot)].command = SlotCommand::LbaStatus(Box::new((*sqe, wanted)));
        self.start(env, slot, StoreJob::QueryBlockStatus { wanted, buffer });
    }

    /// Completes a status query that its store has ended.
    pub(super) fn finish_status_query(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        mut result: Result<(), Status>,
        buffer: Option<B>,
    ) {
        let is_late = self.remove_status_query(slot);
        let SlotCommand::LbaStatus(command) = &self.slots[usize::from(slot)].command else {
            return;
        };
        let (sqe, wanted) = **command;
        let Some(mut buffer) = buffer else {
            return env.respond(slot, result.err().unwrap_or(Status::INTERNAL_ERROR), 0);
        };
        // A Copy of marked blocks has to fail, so they are not reported as a hole.
        let is_given_up = |status: Status| is_late && status.is(Status::ABORT_REQUESTED);
        let is_marked = |status: Status| status.is(Status::UNRECOVERED_READ_ERROR);
        if result.is_err_and(|status| is_given_up(status) || is_marked(status)) {
            wanted.report_allocated(&mut buffer[..wanted.bytes as usize]);
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
    pub(super) fn remove_status_query(&mut self, slot: u16) -> bool {
        let at = self.status_queries.iter().position(|query| query.slot == slot);
        at.is_some_and(|at| self.status_queries.swap_remove(at).until.is_none())
    }

    /// Cancels overdue queries.
    pub(super) fn cancel_overdue_queries(&mut self, env: &mut impl Environment<N, B>) {
        let now = env.now();
        for query in &mut self.status_queries {
            if query.until.is_some_and(|until| until <= now) {
                query.until = None;
                env.cancel(query.slot);
            }
        }
    }

    /// Returns the earliest deadline of a query.
    pub(super) fn status_query_deadline(&self) -> Option<Instant> {
        self.status_queries.iter().filter_map(|query| query.until).min()
    }

    /// Returns the slots of the queries; the end of a connection cancels them instead of waiting for them.
    pub fn status_query_slots(&self) -> impl Iterator<Item = u16> {
        self.status_queries.iter().map(|query| query.slot)
    }
}
