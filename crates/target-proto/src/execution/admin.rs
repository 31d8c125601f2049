//! Admin and fabrics commands: their data, buffers and completions. The control plane executes them.

use super::CommandExecution;
use super::environment::{CommandPayload, Environment, LaneNamespace, StoreJob};
use super::slot::{AdminCommand, SlotCommand, SlotData};
use crate::session::{SessionRequest, TargetConnection};
use core::mem;
use core::ops::DerefMut;
use roadtrain_wire::fabrics::{Property, fctype, property};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

/// Status of a shutdown that has lost writes.
const SHUTDOWN_FAILED: Status = Status::INTERNAL_ERROR.dnr();
/// Data of an admin or fabrics command from the host, in bytes, at most.
const ADMIN_DATA_BYTES_MAX: u32 = 8192;

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    pub(super) fn admin(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
    ) -> Option<u16> {
        // Bit 0 of an opcode (of FCTYPE for fabrics) says that data goes to the controller.
        let is_fabrics = sqe.opcode == opcode::FABRICS;
        let direction = if is_fabrics { sqe.fctype() } else { sqe.opcode };
        let along = payload.bytes();
        let out_bytes = match along {
            0 if direction & 1 != 0 => sqe.sgl.length.get(),
            along => along,
        };
        if out_bytes > ADMIN_DATA_BYTES_MAX {
            self.fail(env, slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), &payload);
            return None;
        }
        let page_bytes = if along > 0 { 0 } else { page_bytes(env, sqe) };
        let admin = AdminCommand { sqe: *sqe, out_bytes, page_bytes };
        self.slots[usize::from(slot)].command = SlotCommand::Admin(Box::new(admin));
        let needs = out_bytes.max(page_bytes);
        if let CommandPayload::Here(buffer) = payload {
            self.hold(env.now(), slot, buffer);
            return self.begin_admin(env, slot);
        }
        if needs > 0 && self.takes_own_buffer(slot, needs) {
            let buffer = env.make(needs);
            self.hold(env.now(), slot, buffer);
        } else if needs > 0 && env.session().is_unauthenticated() {
            // An unauthenticated connection takes no buffer of the pool.
            self.fail_data(env, slot, Status::COMMAND_INTERRUPTED, along);
            return None;
        } else if needs > 0 && !self.hold_or_wait(env, slot, needs, along) {
            return None;
        }
        match (out_bytes, along) {
            (0, _) => return self.begin_admin(env, slot),
            (_, 0) => env.request_data(slot, out_bytes),
            _ => {} // its data follows in the capsule
        }
        None
    }

    /// Takes the connection's own small buffer, which exists beside the pool: hosts can connect and run discovery also
    /// while the pool is exhausted.
    fn takes_own_buffer(&mut self, slot: u16, bytes: u32) -> bool {
        let is_out = |slot: u16| matches!(self.slots[usize::from(slot)].data, SlotData::Buffer(_));
        if bytes > ADMIN_DATA_BYTES_MAX || self.own_buffer.is_some_and(is_out) {
            return false;
        }
        self.own_buffer = Some(slot);
        true
    }

    /// Begins an admin or fabrics command that has its data, or is retried. Returns as [`CommandExecution::command`] does.
    /// Before a controller reports a completed shutdown, no command is in a store, and all writes are on stable
    /// storage.
    #[must_use]
    pub fn begin_admin(&mut self, env: &mut impl Environment<N, B>, slot: u16) -> Option<u16> {
        let is_shutdown = match &self.slots[usize::from(slot)].command {
            SlotCommand::Admin(admin) => is_shutdown(&admin.sqe),
            _ => return None,
        };
        if !is_shutdown || !may_shut_down(env.session()) {
            return Some(slot); // the control plane refuses it, with the reason
        }
        if !env.quiesce() {
            env.session().postpone(slot);
            return None;
        }
        match env.start(slot, StoreJob::FlushController) {
            Some(outcome) => self.shut_down(env, slot, outcome.result),
            None => {
                env.session().entered_store();
                None
            }
        }
    }

    /// Continues a shutdown after the flush. If that has failed, the controller does not report a completed shutdown.
    pub(super) fn shut_down(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        flushed: Result<(), Status>,
    ) -> Option<u16> {
        env.shut_down(flushed);
        if flushed.is_ok() {
            return Some(slot);
        }
        let (admin, buffer) = self.take_admin(slot)?;
        buffer.into_iter().for_each(|buffer| env.give(buffer));
        env.session().record_error(&admin.sqe, SHUTDOWN_FAILED);
        env.respond(slot, SHUTDOWN_FAILED, 0);
        None
    }

    /// Takes an admin or fabrics command, with its buffer. Return it by [`CommandExecution::postpone`] or
    /// [`CommandExecution::answer`].
    pub fn take_admin(&mut self, slot: u16) -> Option<(Box<AdminCommand>, Option<B>)> {
        let s = &mut self.slots[usize::from(slot)];
        let SlotCommand::Admin(admin) = mem::replace(&mut s.command, SlotCommand::None) else {
            return None;
        };
        Some((admin, s.take_buffer()))
    }

    /// Keeps a command that waits for its retry ([`TargetConnection::take_postponed`](crate::session::TargetConnection)).
    pub fn postpone(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        (admin, buffer): (Box<AdminCommand>, Option<B>),
    ) {
        let s = &mut self.slots[usize::from(slot)];
        (s.command, s.data) =
            (SlotCommand::Admin(admin), buffer.map_or(SlotData::None, SlotData::Buffer));
        env.session().postpone(slot);
    }

    /// Completes a command that the control plane has executed, with a page in its buffer, or without data. `None`: it
    /// is completed later.
    pub fn answer(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        completion: Option<(Status, u64)>,
        buffer: Option<B>,
        page: &[u8],
    ) {
        let returns_page =
            !page.is_empty() && completion.is_some_and(|(status, _)| status.is_success());
        match (completion, buffer) {
            (Some((_, result)), Some(mut buffer)) if returns_page && page.len() <= buffer.len() => {
                buffer[..page.len()].copy_from_slice(page);
                self.answer_with(env, slot, buffer, page.len() as u32, result);
            }
            (completion, buffer) => {
                buffer.into_iter().for_each(|buffer| env.give(buffer));
                let Some((status, result)) = completion else { return };
                debug_assert!(!returns_page, "a page is as long as its host says");
                let status = if returns_page { Status::INTERNAL_ERROR } else { status };
                env.respond(slot, status, result);
            }
        }
    }
}

/// Returns the buffer size in bytes for the data that an admin command returns, as its SGL says. Commands for which
/// that is too much fail.
fn page_bytes<N, B, E>(env: &mut E, sqe: &Sqe) -> u32
where
    N: LaneNamespace,
    B: DerefMut<Target = [u8]>,
    E: Environment<N, B>,
{
    // Bit 1 of an opcode (of FCTYPE for fabrics) says that data goes to the host.
    let direction = if sqe.opcode == opcode::FABRICS { sqe.fctype() } else { sqe.opcode };
    let returns_data = direction & 2 != 0;
    let bytes = sqe.sgl.length.get();
    let fits = bytes <= E::BUFFER_BYTES_MAX;
    if returns_data && fits && env.session().is_connected() { bytes } else { 0 }
}

/// True if the host may shut the controller down: on the admin queue, once authenticated.
fn may_shut_down(session: &TargetConnection) -> bool {
    let is_admin = session.queue().is_some_and(|connected| connected.qid == 0);
    is_admin && session.admits(SessionRequest::Property).is_ok()
}

/// True for Property Set of CC with a shutdown notification (CC.SHN, bits 15:14).
fn is_shutdown(sqe: &Sqe) -> bool {
    let property = Property::parse(sqe);
    sqe.opcode == opcode::FABRICS
        && sqe.fctype() == fctype::PROPERTY_SET
        && property.offset == property::CC
        && property.value >> 14 & 3 != 0
}
