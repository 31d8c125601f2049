//! Commands about reservations, and what becomes of commands that a reservation forbids.
//!
//! A command is checked when it comes, and again when it has its data and enters a store. What passed the check before
//! access was taken away is found by [`Execution::fence`]: what waits for its data fails when that has passed, what a
//! store has is waited for or aborted. The command that took access away is answered only then. So whoever acquires a
//! reservation meets no late write of those that it shuts out.

use super::Execution;
use super::environment::{Environment, Namespace, Payload};
use super::slot::{Command, Data};
use crate::io::check_data;
use crate::reservations::{Group, data_bytes};
use core::mem;
use core::ops::DerefMut;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Access was taken away: trying again does not help.
pub(super) const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

impl<N: Namespace, B: DerefMut<Target = [u8]>> Execution<N, B> {
    /// A command about reservations of a namespace that is there.
    pub(super) fn reservation<E: Environment<N, B>>(
        &mut self,
        env: &mut E,
        slot: u16,
        sqe: &Sqe,
        payload: Payload<'_, B>,
    ) {
        let is_fused = sqe.flags & 0x03 != 0;
        let bytes = data_bytes(sqe, E::BUFFER_BYTES_MAX).and_then(|(out, report)| {
            check_data(sqe, (out, out.max(report)), payload.bytes()).map(|()| (out, report))
        });
        let (out, report) = match bytes {
            Ok(bytes) if !is_fused => bytes,
            Ok(_) => {
                return self.refuse(env, slot, sqe, Status::INVALID_FIELD.dnr(), &payload);
            }
            Err(status) => return self.refuse(env, slot, sqe, status, &payload),
        };
        self.slots[usize::from(slot)].command = Command::Reservation { sqe: *sqe, out, report };
        let payload = env.place(payload);
        self.begin(env, slot, payload);
    }

    /// The command has its data. Until it has ended it counts as one that a store has.
    pub(super) fn reserve(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        let s = &self.slots[usize::from(slot)];
        let Command::Reservation { sqe, out, .. } = &s.command else { return };
        let data = match &s.data {
            Data::Buffer(buffer) => buffer.get(..*out as usize).unwrap_or_default(),
            _ => &[],
        };
        env.reserve(slot, sqe, data);
        env.session().entered_store();
    }

    /// The control plane has ended a command about reservations, with its report.
    pub fn reserved(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        status: Status,
        report: &[u8],
    ) {
        let session = env.session();
        session.left_store();
        if session.is_ended() {
            return;
        }
        self.resolve_aborts(slot, false);
        super::tell_quiet(env);
        let s = &mut self.slots[usize::from(slot)];
        let Command::Reservation { sqe, report: bytes, .. } = s.command else { return };
        let buffer = s.take_buffer();
        if !status.is_success() {
            env.session().record_error(&sqe, status);
        }
        match buffer {
            Some(mut buffer) if status.is_success() && bytes > 0 => {
                let place = &mut buffer[..bytes as usize];
                let filled = report.len().min(place.len());
                place[..filled].copy_from_slice(&report[..filled]);
                place[filled..].fill(0);
                self.answer_with(env, slot, buffer, bytes, 0);
            }
            buffer => {
                buffer.into_iter().for_each(|buffer| env.give(buffer));
                env.respond(slot, status, 0);
            }
        }
    }

    /// Access to a namespace was taken away from some hosts. What is forbidden now and does not end at once is returned:
    /// slots of commands that a store has, which are asked to end if they are to be aborted. Of a connection that is over all
    /// are, as nobody knows any more what they were.
    pub fn fence(&mut self, env: &mut impl Environment<N, B>, aborts: bool) -> Vec<u16> {
        let is_ended = env.session().is_ended();
        let mut left = Vec::new();
        for slot in 0..self.slots.len() as u16 {
            let s = &self.slots[usize::from(slot)];
            let is_refused = match &s.command {
                Command::Io { command, namespace, .. } => namespace.refuses(command.group()),
                // A read in place was executed: its octets are on their way.
                Command::InPlace(namespace) | Command::Split { namespace, .. } => {
                    namespace.refuses(Group::Write) && env.awaits_data(slot)
                }
                _ => is_ended,
            };
            if !is_refused {
                continue;
            }
            if s.in_store {
                left.push(slot);
                if aborts {
                    env.cancel(slot);
                }
            } else if self.fused.has(slot) {
                self.fence_fused(env, slot);
            } else if !is_ended {
                self.fail_waiting(env, slot);
            }
        }
        left
    }

    /// A command that waits for a buffer or for its data is not executed any more. One that has neither to wait for is
    /// answered already.
    fn fail_waiting(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        let awaits_data = env.awaits_data(slot);
        let has_waited = !awaits_data && self.leave_queues(slot);
        if awaits_data {
            self.end_wait(slot);
        }
        let s = &mut self.slots[usize::from(slot)];
        if awaits_data {
            let command = mem::replace(&mut s.command, Command::Failing(CONFLICT));
            if let Command::Io { sqe, .. } = &command {
                env.session().record_error(sqe, CONFLICT);
            }
            s.take_buffer().into_iter().for_each(|buffer| env.give(buffer));
            s.data = Data::Discarded;
        } else if has_waited {
            let command = mem::replace(&mut s.command, Command::None);
            if let Command::Io { sqe, .. } = &command {
                env.session().record_error(sqe, CONFLICT);
            }
            env.respond(slot, CONFLICT, 0);
            self.resolve_aborts(slot, false);
        }
    }
}
