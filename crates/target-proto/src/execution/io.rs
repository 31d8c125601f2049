//! I/O commands: checks, data, execution, completion.

use super::environment::{
    CommandPayload, Environment, InPlaceData, LaneNamespace, StoreJob, StoreOutcome,
};
use super::reservations::CONFLICT;
use super::slot::{SlotCommand, SlotData};
use super::{CommandExecution, report_quiesced};
use crate::io::TargetIoCommand;
use crate::reservations;
use core::mem;
use core::ops::DerefMut;
use roadtrain_proto::op::ByteRange;
use roadtrain_wire::sqe::{FLAG_FUSE, Sqe, opcode};
use roadtrain_wire::status::Status;
use std::rc::Rc;

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Executes an I/O command, fused or not.
    #[inline]
    pub(super) fn io(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
    ) {
        match sqe.flags & FLAG_FUSE != 0 || self.fused.expects_second() {
            true => self.io_fused(env, slot, sqe, payload),
            false => self.io_alone(env, slot, sqe, payload),
        }
    }

    /// Executes an I/O command that is not fused.
    pub(super) fn io_alone(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
    ) {
        let Some(namespace) = env.namespace(sqe.nsid.get()) else {
            return self.io_without_namespace(env, slot, sqe, &payload);
        };
        if let Some(class) = namespace.class() {
            env.set_class(slot, class);
        }
        let command = match TargetIoCommand::parse(sqe, namespace.geometry(), payload.bytes()) {
            Ok(command) => command,
            Err(_) if reservations::ReservationCommand::is_reservation_opcode(sqe.opcode) => {
                return self.reservation(env, slot, sqe, payload);
            }
            Err(status) => return self.refuse(env, slot, sqe, status, &payload),
        };
        if namespace.refuses(command.group()) {
            return self.refuse(env, slot, sqe, CONFLICT, &payload);
        }
        env.session().account(&command);
        if namespace.is_limited() {
            return self.io_limited(env, slot, (command, namespace, sqe), payload);
        }
        // With data digests, data is staged in a buffer: data being sent must not change under its digest, and received
        // data must not be kept if its digest is wrong.
        let is_staged = env.has_data_digest();
        let is_staged = is_staged || changes_closed(env, &*namespace, &command);
        let is_staged = is_staged || namespace.is_marked(&command);
        let place = if is_staged { None } else { namespace.in_place(&command) };
        let Some(place) = place else {
            let command = SlotCommand::Io { command, namespace, sqe: *sqe, began: None };
            self.slots[usize::from(slot)].command = command;
            let payload = env.place(payload);
            return self.begin(env, slot, payload);
        };
        match command {
            TargetIoCommand::Read { offset, length, .. } if namespace.is_announced() => {
                let s = &mut self.slots[usize::from(slot)];
                s.data = SlotData::InPlace(place);
                let announced = namespace.clone();
                s.command = SlotCommand::Io { command, namespace, sqe: *sqe, began: None };
                self.start(env, slot, StoreJob::Announce { namespace: &announced, offset, length });
            }
            TargetIoCommand::Read { length, .. } => {
                namespace.prefetch(place);
                self.move_in_place(slot, namespace, place);
                env.respond_with_data(slot, length, 0);
            }
            _ => self.write_in_place(env, slot, namespace, place, payload),
        }
    }

    /// Executes an I/O command with a rate limit. Its data is staged in a buffer, wherever the store has it.
    fn io_limited(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        (command, namespace, sqe): (TargetIoCommand, Rc<N>, &Sqe),
        payload: CommandPayload<'_, B>,
    ) {
        let s = &mut self.slots[usize::from(slot)];
        s.command = SlotCommand::Io { command, namespace, sqe: *sqe, began: None };
        s.is_due = false;
        let payload = env.place(payload);
        // A command with in-capsule data waits once that has arrived.
        if !matches!(payload, CommandPayload::OnRequest) || !self.waits(env, slot) {
            self.begin(env, slot, payload);
        }
    }

    /// Lets the data of a read or write move between the host and `place`.
    #[inline]
    fn move_in_place(&mut self, slot: u16, namespace: Rc<N>, place: N::Place) {
        let s = &mut self.slots[usize::from(slot)];
        (s.command, s.data) = (SlotCommand::InPlace(namespace), SlotData::InPlace(place));
    }

    fn write_in_place(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        namespace: Rc<N>,
        place: N::Place,
        payload: CommandPayload<'_, B>,
    ) {
        let bytes = match &payload {
            CommandPayload::Here(buffer) => &buffer[..],
            CommandPayload::InFrame { bytes, .. } => bytes,
            CommandPayload::OnRequest | CommandPayload::Follows(_) => {
                env.deliver_whole(slot, 1 << namespace.geometry().lba_shift);
                self.move_in_place(slot, namespace, place);
                if let CommandPayload::OnRequest = payload {
                    env.request_data(slot, place.length());
                }
                return;
            }
        };
        namespace.put(place, 0, bytes);
        self.slots[usize::from(slot)].command = SlotCommand::InPlace(namespace);
        env.respond(slot, Status::SUCCESS, 0);
    }

    /// Handles a write in place whose host splits blocks: the data from `offset` on goes to a buffer, once one is free.
    pub fn split_block(&mut self, env: &mut impl Environment<N, B>, slot: u16, offset: u32) {
        let s = &mut self.slots[usize::from(slot)];
        let SlotData::InPlace(place) = s.data else { return };
        let SlotCommand::InPlace(namespace) = mem::replace(&mut s.command, SlotCommand::None)
        else {
            return;
        };
        s.command = SlotCommand::Split { namespace, place, from: offset };
        s.data = SlotData::None;
        let length = place.length();
        self.hold_or_wait(env, slot, length, length - offset);
    }

    /// Completes a write whose data is in place, or copies the part that was split to its place.
    pub(super) fn finish_in_place(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        if !env.session().executes_io() {
            return self.refuse_quiet(env, slot);
        }
        let s = &self.slots[usize::from(slot)];
        if let (SlotCommand::Split { namespace, place, from, .. }, SlotData::Buffer(buffer)) =
            (&s.command, &s.data)
        {
            namespace.put(*place, *from, buffer.get(*from as usize..).unwrap_or_default());
        }
        env.respond(slot, Status::SUCCESS, 0);
    }

    /// Fails an invalid command, and adds it to the error log.
    pub(super) fn refuse(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        status: Status,
        payload: &CommandPayload<'_, B>,
    ) {
        env.session().record_error(sqe, status);
        self.fail(env, slot, status, payload);
    }

    /// Handles a command without an accessible namespace. NSID FFFFFFFFh is valid for Flush alone: it flushes every
    /// namespace.
    fn io_without_namespace(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: &CommandPayload<'_, B>,
    ) {
        if let Some(status) = env.refusal(sqe.nsid.get()) {
            // Another path may execute it, and nothing is wrong with the command.
            return self.fail(env, slot, status, payload);
        }
        let status = match sqe.opcode {
            opcode::FLUSH if sqe.nsid.get() == u32::MAX && payload.bytes() == 0 => {
                return self.start(env, slot, StoreJob::FlushQueue);
            }
            opcode::FLUSH if sqe.nsid.get() == u32::MAX => Status::DATA_SGL_LENGTH_INVALID,
            opcode::FLUSH
            | opcode::READ
            | opcode::WRITE
            | opcode::COMPARE
            | opcode::VERIFY
            | opcode::COPY
            | opcode::WRITE_ZEROES
            | opcode::WRITE_UNCORRECTABLE
            | opcode::DATASET_MANAGEMENT => Status::INVALID_NAMESPACE,
            opcode if reservations::ReservationCommand::is_reservation_opcode(opcode) => {
                Status::INVALID_NAMESPACE
            }
            _ => Status::INVALID_OPCODE,
        };
        self.refuse(env, slot, sqe, status.dnr(), payload);
    }

    /// Gets the command its buffer, then its data, then executes it.
    pub(super) fn begin(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        payload: CommandPayload<'_, B>,
    ) {
        let command = &self.slots[usize::from(slot)].command;
        let (out, needs) = (command.data_out_bytes(), command.buffer_bytes());
        let along = payload.bytes();
        if let CommandPayload::Here(buffer) = payload {
            let Some(buffer) = widen(env, buffer, needs) else {
                // No buffer is free, and the data has no other place.
                return env.respond(slot, Status::COMMAND_INTERRUPTED, 0);
            };
            self.hold(env.now(), slot, buffer);
            return self.execute(env, slot);
        }
        if out == 0 || along > 0 || self.may_wait(slot, needs) {
            self.begin_with_buffer(env, slot, (out, needs), along);
        }
    }

    /// Begins a command that may wait for its data: `out` bytes, of which `along` are in the capsule, for a buffer of
    /// `needs` bytes.
    #[inline]
    pub(super) fn begin_with_buffer(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        (out, needs): (u32, u32),
        along: u32,
    ) {
        if needs > 0 && !self.hold_or_wait(env, slot, needs, along) {
            return;
        }
        match (out, along) {
            (0, _) => self.execute(env, slot),
            (_, 0) => env.request_data(slot, out),
            _ => {} // its data follows in the capsule
        }
    }

    /// Executes a command that has its buffer and its data.
    pub(super) fn execute(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        if self.fused.has(slot) {
            return self.fused_data_done(env, slot);
        }
        if !env.session().executes_io() {
            return self.refuse_quiet(env, slot);
        }
        if self.waits(env, slot) {
            return;
        }
        let s = &mut self.slots[usize::from(slot)];
        let SlotCommand::Io { command, namespace, began, sqe } = &mut s.command else {
            return self.reserve(env, slot);
        };
        if namespace.refuses(command.group()) {
            let sqe = *sqe;
            return self.refuse(env, slot, &sqe, CONFLICT, &CommandPayload::OnRequest);
        }
        let mut command = *command;
        if env.session().is_write_through() {
            command.force_unit_access();
        }
        *began = if command.needs_flush() { namespace.epoch() } else { None };
        let namespace = namespace.clone();
        let buffer = s.take_buffer();
        self.start(env, slot, StoreJob::Execute { command, namespace: &namespace, buffer });
    }

    #[inline]
    pub(super) fn start(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        job: StoreJob<'_, N, B>,
    ) {
        self.slots[usize::from(slot)].started = env.now();
        match env.start(slot, job) {
            Some(outcome) => {
                let admin = self.complete(env, slot, outcome);
                debug_assert!(admin.is_none(), "this is an I/O command");
            }
            None => {
                self.slots[usize::from(slot)].in_store = true;
                env.session().entered_store();
            }
        }
    }

    /// Completes a command that a store has executed. Returns as [`CommandExecution::command`] does.
    pub(super) fn complete(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        outcome: StoreOutcome<B>,
    ) -> Option<u16> {
        let result = outcome.result;
        let in_store = env.session().in_store();
        env.set_in_store(in_store);
        let is_aborted = result.is_err_and(|status| status.is(Status::ABORT_REQUESTED));
        self.resolve_aborts(slot, is_aborted);
        report_quiesced(env);
        if self.fused.has(slot) {
            self.complete_fused(env, slot, outcome);
            return None;
        }
        let (buffer, copied) = (outcome.buffer, outcome.copied);
        let s = &mut self.slots[usize::from(slot)];
        let SlotCommand::Io { command, namespace, sqe, began } = &s.command else {
            if let SlotCommand::LbaStatus(_) = s.command {
                self.finish_status_query(env, slot, result, buffer);
                return None;
            }
            buffer.into_iter().for_each(|buffer| env.give(buffer));
            if let SlotCommand::Admin(_) = s.command {
                return self.shut_down(env, slot, result);
            }
            env.respond(slot, result.err().unwrap_or(Status::SUCCESS), 0); // a flush of all namespaces
            return None;
        };
        match result {
            Ok(()) => {
                if let SlotData::InPlace(place) = s.data {
                    namespace.prefetch(place);
                    env.respond_with_data(slot, place.length(), 0);
                    return None;
                }
                if let TargetIoCommand::Read { length, .. } = *command
                    && let Some(buffer) = buffer
                {
                    self.answer_with(env, slot, buffer, length, 0);
                    return None;
                }
                began.iter().for_each(|began| namespace.wrote(*began));
            }
            Err(status) if !is_aborted => {
                if matches!(command, TargetIoCommand::WriteUncorrectable { .. })
                    || status.is(Status::CAPACITY_EXCEEDED)
                {
                    env.marks_refused(sqe, status);
                }
                env.session().record_error(sqe, status);
            }
            Err(_) => {}
        }
        buffer.into_iter().for_each(|buffer| env.give(buffer));
        env.respond(slot, result.err().unwrap_or(Status::SUCCESS), u64::from(copied));
        None
    }
}

/// True if the command writes to blocks that an exclusive operation has locked.
#[inline]
fn changes_closed<N: LaneNamespace, B: DerefMut<Target = [u8]>>(
    env: &impl Environment<N, B>,
    namespace: &N,
    command: &TargetIoCommand,
) -> bool {
    let TargetIoCommand::Write { offset, length, .. } = *command else { return false };
    let changed = ByteRange { offset, len: length.into() };
    env.is_closed(namespace, |range| range.overlaps(&changed))
}

/// Returns a buffer of at least `bytes` that begins with the same bytes.
fn widen<N: LaneNamespace, B: DerefMut<Target = [u8]>>(
    env: &mut impl Environment<N, B>,
    buffer: B,
    bytes: u32,
) -> Option<B> {
    if buffer.len() >= bytes as usize {
        return Some(buffer);
    }
    let mut wide = env.take(bytes);
    if let Some(wide) = &mut wide {
        wide[..buffer.len()].copy_from_slice(&buffer);
    }
    env.give(buffer);
    wide
}
