//! Admin and fabrics commands: collected, handed to the control plane, answered.

use super::payload::Payload;
use super::{Lane, LaneError, Shared};
use crate::buffer::{Buffer, Pool};
use crate::target::flushes::Unflushed;
use crate::target::slot::{Admin, Data, Work};
use crate::target::tasks::Job;
use crate::target::tickets::Ticket;
use roadtrain_proto::target::Connected;
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{Property, fctype, property};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use tracing::warn;

/// The answer to a shutdown that has lost something.
const SHUTDOWN_FAILED: Status = Status::INTERNAL_ERROR.dnr();
/// Most octets of data an admin or fabrics command brings.
const ADMIN_DATA_BYTES_MAX: u32 = 8192;
/// Room for a page that a reactor keeps from one command to the next.
const PAGE_BYTES_KEPT: usize = 64 << 10;

impl Lane {
    pub(super) fn handle_admin(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        sqe: &Sqe,
        payload: Payload<'_>,
    ) -> Result<(), LaneError> {
        // Bit 0 of an opcode (of FCTYPE for fabrics) says that data goes to the controller.
        let is_fabrics = sqe.opcode == opcode::FABRICS;
        let direction = if is_fabrics { sqe.fctype() } else { sqe.opcode };
        let out = if direction & 1 != 0 { sqe.sgl.length.get() } else { 0 };
        let along = payload.bytes();
        let out = if along > 0 { along } else { out };
        if out > ADMIN_DATA_BYTES_MAX {
            self.fail(shared, slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), &payload);
            return Ok(());
        }
        let page_bytes = if along > 0 { 0 } else { self.page_bytes(sqe) };
        let admin = Admin { sqe: *sqe, out_bytes: out, page_bytes };
        self.slot(slot).work = Work::Admin(Box::new(admin));
        if let Payload::Here(buffer) = payload {
            self.hold(shared.now, slot, buffer);
            return self.run_admin(shared, slot);
        }
        let staged = out.max(page_bytes);
        if staged > 0 {
            let own = self.own_buffer(slot, staged);
            let Some(buffer) = own.or_else(|| self.take_buffer(shared, staged, along)) else {
                self.starved.push_back(slot);
                if along > 0 {
                    self.transport.stall(shared.now);
                }
                return Ok(());
            };
            self.hold(shared.now, slot, buffer);
        }
        match (out, along) {
            (0, _) => self.run_admin(shared, slot),
            (_, 0) => {
                self.transport.request_data(shared.now, slot, out);
                Ok(())
            }
            _ => Ok(()), // its data follows in the capsule
        }
    }

    /// One small buffer for each lane that is not of the pool: hosts connect and look around also while others have
    /// every buffer.
    fn own_buffer(&mut self, slot: u16, bytes: u32) -> Option<Buffer> {
        let is_out = |slot: u16| matches!(self.slots[usize::from(slot)].data, Data::Pooled(_));
        if bytes > ADMIN_DATA_BYTES_MAX || self.own_buffer.is_some_and(is_out) {
            return None;
        }
        self.own_buffer = Some(slot);
        Some(Buffer::alloc(bytes as usize))
    }

    /// Octets of buffer for what an admin command returns: what its host has room for. Commands for which that is
    /// too much fail.
    fn page_bytes(&self, sqe: &Sqe) -> u32 {
        // Bit 1 of an opcode says that data goes to the host; no fabrics command that there is does that.
        let returns_data = sqe.opcode & 2 != 0 && sqe.opcode != opcode::FABRICS;
        let bytes = sqe.sgl.length.get();
        let fits = bytes as usize <= Pool::LEN_MAX;
        if returns_data && fits && self.session.queue().is_some() { bytes } else { 0 }
    }

    pub(super) fn run_admin(&mut self, shared: &mut Shared, slot: u16) -> Result<(), LaneError> {
        let s = &mut self.slots[usize::from(slot)];
        if let Work::Admin(admin) = &s.work
            && is_shutdown(&admin.sqe)
            && let Some(connected) = self.session.queue()
        {
            // No command is in a backend any more, and what was written is on stable storage, before the controller
            // says that it is shut down.
            if !shared.control.quiesce(connected) {
                self.session.postpone(slot);
                return Ok(());
            }
            let user = self.session.user().cloned();
            let stores = shared.control.stores(connected);
            let enter = |user| stores.iter().filter_map(move |s| Unflushed::last(s, user));
            self.closing = user.iter().flat_map(enter).collect();
            let (ring, job) = (&mut shared.ring, Job::FlushAll { stores, user });
            return match shared.tasks.start(ring, (self.id, slot), job) {
                Some(outcome) => self.shut_down(shared, slot, outcome.result),
                None => {
                    self.session.entered_store();
                    Ok(())
                }
            };
        }
        self.run_command(shared, slot)
    }

    /// Everything was flushed for a shutdown. If that has failed the controller does not say that it is shut
    /// down.
    pub(super) fn shut_down(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        flushed: Result<(), Status>,
    ) -> Result<(), LaneError> {
        let Err(status) = flushed else {
            self.closing.iter().for_each(Unflushed::part);
            return self.run_command(shared, slot);
        };
        warn!(peer = %self.peer, %status, "not shut down: what the host has written may be lost");
        let s = &mut self.slots[usize::from(slot)];
        let work = std::mem::take(&mut s.work);
        s.release(&mut shared.pool);
        if let Work::Admin(admin) = work {
            self.session.record_error(&admin.sqe, SHUTDOWN_FAILED);
        }
        self.transport.respond(shared.now, slot, SHUTDOWN_FAILED, 0);
        Ok(())
    }

    /// Hands the command to the control plane and answers it.
    pub(super) fn run_command(&mut self, shared: &mut Shared, slot: u16) -> Result<(), LaneError> {
        let s = &mut self.slots[usize::from(slot)];
        let Work::Admin(admin) = std::mem::take(&mut s.work) else { return Ok(()) };
        let buffer = match std::mem::take(&mut s.data) {
            Data::Pooled(buffer) => Some(buffer),
            _ => None,
        };
        let data = buffer.as_ref().and_then(|buffer| buffer.get(..admin.out_bytes as usize));
        let control = shared.control.clone();
        let (now, mut page) = (shared.now, std::mem::take(&mut shared.page));
        page.clear();
        let since = self.session.connecting(now);
        let port = self.transport.port(&self.peer, since);
        let (sqe, data) = (&admin.sqe, data.unwrap_or_default());
        let answer = control.command(now, &mut self.session, port, sqe, data, &mut page);
        if answer.postponed {
            shared.page = page;
            let s = &mut self.slots[usize::from(slot)];
            (s.work, s.data) = (Work::Admin(admin), buffer.map_or(Data::None, Data::Pooled));
            self.session.postpone(slot);
            return Ok(());
        }
        self.session.answered();
        if answer.connected
            && let Some(connected) = self.session.queue()
        {
            self.ticket.iter().for_each(Ticket::connected);
            let &Connected { qid, entries, sq_flow_control, class, .. } = connected;
            self.transport.set_connected(qid, entries, sq_flow_control, class);
            self.namespaces = control.table(self.session.queue());
        }
        self.respond_with_page(shared, slot, answer.completion, buffer, &page);
        page.shrink_to(PAGE_BYTES_KEPT);
        shared.page = page;
        if answer.ends && self.transport.ends_at_once(shared.now) {
            self.end_turn(shared)?;
            return Err(LaneError::Ended("disconnected by the host"));
        }
        Ok(())
    }

    /// The controller shuts down: nothing more is executed, and the control plane hears when no command is in a
    /// backend any more.
    pub(in crate::target) fn quiesce(&mut self, shared: &Shared) {
        self.session.quiesce();
        self.tell_quiet(shared);
    }

    #[inline]
    pub(super) fn tell_quiet(&self, shared: &Shared) {
        if let Some(connected) = self.session.quiet() {
            shared.control.quiesced(connected);
        }
    }

    /// Tries Connect and shutdown commands again that had to wait; whether there were any.
    pub(in crate::target) fn connect_again(
        &mut self,
        shared: &mut Shared,
    ) -> Result<bool, LaneError> {
        let waiting = self.session.take_postponed();
        for &slot in &waiting {
            self.run_admin(shared, slot)?;
        }
        Ok(!waiting.is_empty())
    }

    /// Answers, if the command has ended, with the page in its buffer or without data.
    fn respond_with_page(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        completion: Option<(Status, u64)>,
        buffer: Option<Buffer>,
        page: &[u8],
    ) {
        let (now, length) = (shared.now, page.len());
        let returns_page = length > 0 && completion.is_some_and(|(status, _)| status.is_success());
        match (completion, buffer) {
            (Some((_, result)), Some(mut buffer)) if returns_page && length <= buffer.len() => {
                buffer[..length].copy_from_slice(page);
                self.answer_with(now, slot, buffer, length as u32, result);
            }
            (completion, buffer) => {
                buffer.into_iter().for_each(|buffer| shared.pool.give(buffer));
                let Some((status, result)) = completion else { return };
                debug_assert!(!returns_page, "a page is as long as its host says");
                let status = if returns_page { Status::INTERNAL_ERROR } else { status };
                self.transport.respond(now, slot, status, result);
            }
        }
    }

    /// Completes an asynchronous event request.
    pub(in crate::target) fn complete_event(
        &mut self,
        now: Instant,
        cid: u16,
        status: Status,
        result: u64,
    ) {
        if let Some(slot) = self.transport.slot_of(cid) {
            self.transport.respond(now, slot, status, result);
        }
    }
}

/// Property Set of CC with a shutdown notification (CC.SHN, bits 15:14).
fn is_shutdown(sqe: &Sqe) -> bool {
    let property = Property::parse(sqe);
    sqe.opcode == opcode::FABRICS
        && sqe.fctype() == fctype::PROPERTY_SET
        && property.offset == property::CC
        && property.value >> 14 & 3 != 0
}
