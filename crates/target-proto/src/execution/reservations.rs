//! Reservation commands, and the handling of commands that a reservation forbids.
//!
//! A command is checked on arrival, and again when it has its data and enters a store. [`CommandExecution::fence`] finds the
//! commands that passed the check before access was revoked. Those that wait for data fail once that has passed; those
//! in a store are waited for or aborted. Only then does the command complete that revoked the access. So the new holder
//! of a reservation never sees a late write of the hosts that it excludes.

use super::CommandExecution;
use super::environment::{CommandPayload, Environment, LaneNamespace};
use super::slot::{SlotCommand, SlotData};
use crate::io::check_data;
use crate::reservations::{CommandGroup, data_bytes};
use core::mem;
use core::ops::DerefMut;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// Status for revoked access: a retry does not help.
pub(super) const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Checks and begins a reservation command to an existing namespace.
    pub(super) fn reservation<E: Environment<N, B>>(
        &mut self,
        env: &mut E,
        slot: u16,
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
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
        self.slots[usize::from(slot)].command = SlotCommand::Reservation { sqe: *sqe, out, report };
        let payload = env.place(payload);
        self.begin(env, slot, payload);
    }

    /// Passes a reservation command with its data to the control plane. Until it ends it counts as one in a store.
    pub(super) fn reserve(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        let s = &self.slots[usize::from(slot)];
        let SlotCommand::Reservation { sqe, out, .. } = &s.command else { return };
        let data = match &s.data {
            SlotData::Buffer(buffer) => buffer.get(..*out as usize).unwrap_or_default(),
            _ => &[],
        };
        env.reserve(slot, sqe, data);
        env.session().entered_store();
    }

    /// Completes a reservation command that the control plane has executed, with its report.
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
        super::report_quiesced(env);
        let s = &mut self.slots[usize::from(slot)];
        let SlotCommand::Reservation { sqe, report: bytes, .. } = s.command else { return };
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

    /// Ends commands to a namespace that a reservation forbids now. Returns the slots of those that do not end at once
    /// because a store executes them; they are cancelled if `aborts`. On a closed connection all slots count, as their
    /// commands are no longer known.
    pub fn fence(&mut self, env: &mut impl Environment<N, B>, aborts: bool) -> Vec<u16> {
        let is_ended = env.session().is_ended();
        let mut left = Vec::new();
        for slot in 0..self.slots.len() as u16 {
            let s = &self.slots[usize::from(slot)];
            let is_refused = match &s.command {
                SlotCommand::Io { command, namespace, .. } => namespace.refuses(command.group()),
                // A read in place was executed: its data is being sent.
                SlotCommand::InPlace(namespace) | SlotCommand::Split { namespace, .. } => {
                    namespace.refuses(CommandGroup::Write) && env.awaits_data(slot)
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

    /// Fails a command that waits for a buffer or for data. A command that waits for neither is already completed.
    fn fail_waiting(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        let awaits_data = env.awaits_data(slot);
        let has_waited = !awaits_data && self.leave_queues(slot);
        if awaits_data {
            self.end_wait(slot);
        }
        let s = &mut self.slots[usize::from(slot)];
        if awaits_data {
            let command = mem::replace(&mut s.command, SlotCommand::Failing(CONFLICT));
            if let SlotCommand::Io { sqe, .. } = &command {
                env.session().record_error(sqe, CONFLICT);
            }
            s.take_buffer().into_iter().for_each(|buffer| env.give(buffer));
            s.data = SlotData::Discarded;
        } else if has_waited {
            let command = mem::replace(&mut s.command, SlotCommand::None);
            if let SlotCommand::Io { sqe, .. } = &command {
                env.session().record_error(sqe, CONFLICT);
            }
            env.respond(slot, CONFLICT, 0);
            self.resolve_aborts(slot, false);
        }
    }
}
