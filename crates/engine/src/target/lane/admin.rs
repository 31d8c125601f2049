//! Admin and fabrics commands: collected, handed to the control plane, answered.

use super::payload::Payload;
use super::{Lane, LaneError, Shared};
use crate::target::slot::{Data, Work};
use crate::target::tasks::Job;
use crate::target::tickets::Ticket;
use roadtrain_proto::target::Connected;
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{Property, fctype, property};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

/// Most octets of data an admin or fabrics command brings.
const ADMIN_DATA_BYTES_MAX: u32 = 8192;

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
        let s = self.slot(slot);
        s.work = Work::Admin(Box::new(*sqe));
        if let Payload::Here(buffer) = payload {
            s.data = Data::Page(buffer.to_vec());
            return self.run_admin(shared, slot);
        }
        s.data = Data::Page(vec![0; out as usize]);
        match (out, payload) {
            (0, _) => self.run_admin(shared, slot),
            (_, Payload::Asked) => {
                self.transport.request_data(shared.now, slot, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn run_admin(&mut self, shared: &mut Shared, slot: u16) -> Result<(), LaneError> {
        let s = &mut self.slots[usize::from(slot)];
        if let Work::Admin(sqe) = &s.work
            && is_shutdown(sqe)
            && let Some(connected) = &self.association
        {
            // No command is in a backend any more, and what was written is on stable storage, before the controller
            // says that it is shut down.
            if !shared.control.quiesce(connected) {
                self.postponed.push(slot);
                return Ok(());
            }
            let backends = shared.control.backends(connected);
            let (ring, job) = (&mut shared.ring, Job::FlushAll(backends));
            if shared.dispatcher.start(ring, (self.id, slot), job).is_none() {
                self.tasks += 1;
                return Ok(());
            }
        }
        self.run_command(shared, slot)
    }

    /// Hands the command to the control plane and answers it.
    pub(super) fn run_command(&mut self, shared: &mut Shared, slot: u16) -> Result<(), LaneError> {
        let s = &mut self.slots[usize::from(slot)];
        let (Work::Admin(sqe), Data::Page(data)) =
            (std::mem::take(&mut s.work), std::mem::take(&mut s.data))
        else {
            return Ok(());
        };
        let control = shared.control.clone();
        let (now, mut page) = (shared.now, Vec::new());
        let since = *self.connecting.get_or_insert(now);
        let port = self.transport.port(&self.peer, since);
        let cntlid = self.association.as_ref().map(|connected| connected.cntlid);
        let answer = control.command(now, &mut self.association, port, &sqe, &data, &mut page);
        if answer.postponed {
            let s = &mut self.slots[usize::from(slot)];
            (s.work, s.data) = (Work::Admin(sqe), Data::Page(data));
            self.postponed.push(slot);
            return Ok(());
        }
        self.connecting = None;
        if let Some(pass) = answer.connected
            && let Some(connected) = &self.association
        {
            self.pass = Some(pass);
            self.ticket.iter().for_each(Ticket::connected);
            let &Connected { qid, entries, sq_flow_control, class, .. } = connected;
            self.transport.set_connected(qid, entries, sq_flow_control, class);
            self.namespaces = control.table(self.association.as_ref());
        }
        if let Some((status, result)) = answer.completion {
            self.respond_with_page(shared, slot, status, result, page);
        }
        if answer.ends {
            self.given_up_by = cntlid;
        }
        if answer.ends && self.transport.ends_at_once(shared.now) {
            self.end_turn(shared)?;
            return Err(LaneError::Ended("disconnected by the host"));
        }
        Ok(())
    }

    /// The controller shuts down: nothing more is executed, and the control plane hears when no command is in a
    /// backend any more.
    pub(in crate::target) fn quiesce(&mut self, shared: &Shared) {
        self.is_quiet = true;
        self.tell_quiet(shared);
    }

    #[inline]
    pub(super) fn tell_quiet(&self, shared: &Shared) {
        if self.is_quiet
            && self.tasks == 0
            && let Some(connected) = &self.association
        {
            shared.control.quiesced(connected);
        }
    }

    /// Tries Connect and shutdown commands again that had to wait; whether there were any.
    pub(in crate::target) fn connect_again(
        &mut self,
        shared: &mut Shared,
    ) -> Result<bool, LaneError> {
        let waiting = std::mem::take(&mut self.postponed);
        for &slot in &waiting {
            self.run_admin(shared, slot)?;
        }
        Ok(!waiting.is_empty())
    }

    fn respond_with_page(
        &mut self,
        shared: &Shared,
        slot: u16,
        status: Status,
        result: u64,
        page: Vec<u8>,
    ) {
        if page.is_empty() || !status.is_success() {
            return self.transport.respond(shared.now, slot, status, result);
        }
        let length = page.len() as u32;
        self.slots[usize::from(slot)].data = Data::Page(page);
        self.transport.respond_with_data(shared.now, slot, length, result);
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
