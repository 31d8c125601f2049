//! I/O commands: checked, given their data, executed, answered.

use super::payload::Payload;
use super::{Lane, Shared};
use crate::buffer::Buffer;
use crate::target::flushes::Unflushed;
use crate::target::namespace::LocalNamespace;
use crate::target::slot::{Data, Work};
use crate::target::tasks::{Job, Outcome};
use crate::tuning::{PREFETCH_LINES, prefetch_read};
use roadtrain_proto::target::io::IoCommand;
use roadtrain_store::{ByteRange, InPlace};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

impl Lane {
    pub(super) fn handle_io(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        sqe: &Sqe,
        payload: Payload<'_>,
    ) {
        let Some(namespace) = self.namespaces.get(sqe.nsid.get()) else {
            return self.handle_io_without_namespace(shared, slot, sqe, &payload);
        };
        if let Some(class) = namespace.class {
            self.transport.set_class(slot, class);
        }
        let command = match IoCommand::parse(sqe, &namespace.geometry, payload.bytes()) {
            Ok(command) => command,
            Err(status) => {
                return self.refuse(shared, slot, sqe, status, &payload);
            }
        };
        self.session.account(&command);
        let staged = self.transport.has_data_digest();
        let Some((start, length)) = in_place(&command, &namespace, staged) else {
            self.slots[usize::from(slot)].work =
                Work::Io { command, namespace, sqe: *sqe, began: None };
            let payload = self.transport.place(shared.now, payload);
            return self.begin(shared, slot, payload);
        };
        let block_bytes = 1 << namespace.geometry.lba_shift;
        let s = &mut self.slots[usize::from(slot)];
        s.data = Data::InPlace { start, length: length as usize };
        let is_announced = namespace.in_place.as_ref().is_some_and(InPlace::is_announced);
        if let IoCommand::Read { offset, .. } = command
            && is_announced
        {
            let store = namespace.store.clone();
            s.work = Work::InPlace(namespace);
            let range = ByteRange { offset, len: length.into() };
            return self.start(shared, slot, Job::Announce(store, range));
        }
        s.work = Work::InPlace(namespace);
        match (command, payload) {
            (IoCommand::Read { .. }, _) => {
                prefetch_read(start, PREFETCH_LINES);
                self.transport.respond_with_data(shared.now, slot, length, 0);
            }
            (_, Payload::Asked) => {
                self.transport.deliver_whole(slot, block_bytes);
                self.transport.request_data(shared.now, slot, length);
            }
            (_, Payload::Follows(_)) => self.transport.deliver_whole(slot, block_bytes),
            (_, Payload::Here(buffer)) => self.write_in_place(shared, slot, start, &buffer),
            (_, Payload::InFrame { octets, .. }) => {
                self.write_in_place(shared, slot, start, octets);
            }
        }
    }

    /// A write to memory at `start`, which `in_place` found to be there for as many octets as there are.
    fn write_in_place(&mut self, shared: &Shared, slot: u16, start: *mut u8, octets: &[u8]) {
        // SAFETY: `in_place` checked the range, whose length `IoCommand::parse` found to be that of `octets`.
        unsafe { start.copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
        self.transport.respond(shared.now, slot, Status::SUCCESS, 0);
    }

    /// A write in place whose host cuts its data inside of blocks: what comes from `offset` on is staged, as soon as
    /// there is a buffer.
    pub(super) fn stage_rest(&mut self, shared: &mut Shared, slot: u16, offset: u32) {
        let s = &mut self.slots[usize::from(slot)];
        let &mut Data::InPlace { start, length } = &mut s.data else { return };
        let Work::InPlace(namespace) = std::mem::take(&mut s.work) else { return };
        let length = length as u32;
        s.work = Work::Split { namespace, start, from: offset, length };
        s.data = Data::None;
        match self.take_buffer(shared, length, length - offset) {
            Some(buffer) => self.hold(shared.now, slot, buffer),
            None => {
                self.starved.push_back(slot);
                self.transport.stall(shared.now);
            }
        }
    }

    /// A write whose data is in its place already, or goes there now because its host has split blocks.
    pub(super) fn finish_in_place(&mut self, shared: &mut Shared, slot: u16) {
        if !self.session.executes_io() {
            return self.refuse_quiet(shared, slot);
        }
        let s = &mut self.slots[usize::from(slot)];
        if let (&Work::Split { start, from, .. }, Data::Pooled(buffer)) = (&s.work, &s.data) {
            let rest = buffer.get(from as usize..).unwrap_or_default();
            // SAFETY: `in_place` checked the range from `start`, whose length the buffer has.
            unsafe { start.add(from as usize).copy_from_nonoverlapping(rest.as_ptr(), rest.len()) };
        }
        if let Work::Split { namespace, .. } = &s.work {
            s.work = Work::InPlace(namespace.clone());
        }
        self.transport.respond(shared.now, slot, Status::SUCCESS, 0);
    }

    /// Fails a command that cannot be.
    fn refuse(
        &mut self,
        shared: &Shared,
        slot: u16,
        sqe: &Sqe,
        status: Status,
        payload: &Payload<'_>,
    ) {
        self.session.record_error(sqe, status);
        self.fail(shared, slot, status, payload);
    }

    /// NSID FFFFFFFFh is valid for Flush alone: every namespace is flushed.
    fn handle_io_without_namespace(
        &mut self,
        shared: &mut Shared,
        slot: u16,
        sqe: &Sqe,
        payload: &Payload<'_>,
    ) {
        if sqe.opcode != opcode::FLUSH || sqe.nsid.get() != u32::MAX {
            let known = matches!(
                sqe.opcode,
                opcode::FLUSH
                    | opcode::READ
                    | opcode::WRITE
                    | opcode::COMPARE
                    | opcode::WRITE_ZEROES
                    | opcode::DATASET_MANAGEMENT
            );
            let status = if known { Status::INVALID_NAMESPACE } else { Status::INVALID_OPCODE };
            return self.refuse(shared, slot, sqe, status.dnr(), payload);
        }
        if payload.bytes() > 0 {
            let status = Status::DATA_SGL_LENGTH_INVALID.dnr();
            return self.refuse(shared, slot, sqe, status, payload);
        }
        let stores = self.namespaces.all().map(|n| n.store.clone()).collect();
        self.start(shared, slot, Job::FlushAll { stores, user: self.session.user().cloned() });
    }

    /// Answers with an error, when the data that came along has passed.
    pub(super) fn fail(
        &mut self,
        shared: &Shared,
        slot: u16,
        status: Status,
        payload: &Payload<'_>,
    ) {
        let Payload::Follows(_) = payload else {
            return self.transport.respond(shared.now, slot, status, 0);
        };
        let s = self.slot(slot);
        s.work = Work::Failed(status);
        s.data = Data::Discarded;
    }

    /// Gets the command its buffer, then its data, then executes it.
    pub(super) fn begin(&mut self, shared: &mut Shared, slot: u16, payload: Payload<'_>) {
        let Work::Io { command, .. } = &self.slots[usize::from(slot)].work else { return };
        let (out, along) = (command.data_out_bytes(), payload.bytes());
        let staged = self.slots[usize::from(slot)].work.staged_bytes();
        if let Payload::Here(buffer) = payload {
            self.hold(shared.now, slot, buffer);
            return self.execute(shared, slot);
        }
        if staged > 0 {
            let Some(buffer) = self.take_buffer(shared, staged, along) else {
                self.starved.push_back(slot);
                if along > 0 {
                    self.transport.stall(shared.now);
                }
                return;
            };
            self.hold(shared.now, slot, buffer);
        }
        match (out, along) {
            (0, _) => self.execute(shared, slot),
            (_, 0) => self.transport.request_data(shared.now, slot, out),
            _ => {} // its data follows in the capsule
        }
    }

    /// First come, first served; but data that is here already may use the reserve, because what the other
    /// buffers wait for may be behind it.
    pub(super) fn take_buffer(
        &self,
        shared: &mut Shared,
        length: u32,
        along: u32,
    ) -> Option<Buffer> {
        let pooled = if self.starved.is_empty() { shared.pool.take(length as usize) } else { None };
        match pooled {
            None if along > 0 => shared.pool.take_reserved(length as usize),
            _ => pooled,
        }
    }

    pub(super) fn execute(&mut self, shared: &mut Shared, slot: u16) {
        if !self.session.executes_io() {
            return self.refuse_quiet(shared, slot);
        }
        let s = &mut self.slots[usize::from(slot)];
        let Work::Io { command, namespace, began, .. } = &mut s.work else { return };
        let (mut command, store) = (*command, namespace.store.clone());
        if self.session.is_write_through() {
            force_unit_access(&mut command);
        }
        *began =
            namespace.unflushed.as_ref().filter(|_| needs_flush(&command)).map(Unflushed::epoch);
        let user = self.session.user().filter(|_| command == IoCommand::Flush).cloned();
        let buffer = match std::mem::take(&mut s.data) {
            Data::Pooled(buffer) => Some(buffer),
            _ => None,
        };
        self.start(shared, slot, Job::Execute { command, store, buffer, user });
    }

    /// The controller shuts down: what it has not begun is not executed.
    fn refuse_quiet(&mut self, shared: &Shared, slot: u16) {
        self.resolve_aborts(slot, false);
        let status = Status::COMMAND_SEQUENCE_ERROR.dnr();
        self.transport.respond(shared.now, slot, status, 0);
    }

    #[inline]
    fn start(&mut self, shared: &mut Shared, slot: u16, job: Job) {
        let Shared { tasks, ring, .. } = shared;
        match tasks.start(ring, (self.id, slot), job) {
            Some(outcome) => self.finish(shared, slot, outcome),
            None => self.session.entered_store(),
        }
    }

    /// The backend is done with a command.
    pub(in crate::target) fn finish(&mut self, shared: &mut Shared, slot: u16, outcome: Outcome) {
        self.transport.set_in_backend(self.session.in_store());
        let is_aborted = is_aborted(&outcome);
        self.resolve_aborts(slot, is_aborted);
        self.tell_quiet(shared);
        let s = &mut self.slots[usize::from(slot)];
        if let Work::Admin(_) = s.work {
            // A shutdown, now that all is flushed; Property Set never ends a connection.
            let answered = self.shut_down(shared, slot, outcome.result);
            return debug_assert!(answered.is_ok(), "{answered:?}");
        }
        if let Data::InPlace { start, length } = s.data
            && !is_aborted
        {
            prefetch_read(start, PREFETCH_LINES);
            return self.transport.respond_with_data(shared.now, slot, length as u32, 0);
        }
        let read_bytes = match &s.work {
            Work::Io { command: IoCommand::Read { length, .. }, .. } => *length,
            _ => 0,
        };
        match (outcome.result, outcome.buffer) {
            (Ok(()), Some(buffer)) if read_bytes > 0 => {
                self.answer_with(shared.now, slot, buffer, read_bytes, 0);
            }
            (result, buffer) => {
                if let (Work::Io { namespace, began: Some(began), .. }, Ok(())) = (&s.work, result)
                    && let Some(unflushed) = &namespace.unflushed
                {
                    unflushed.wrote(*began);
                }
                if let Some(buffer) = buffer {
                    shared.pool.give(buffer);
                }
                let status = result.err().unwrap_or(Status::SUCCESS);
                if let (Work::Io { sqe, .. }, Err(status)) = (&s.work, result)
                    && !is_aborted
                {
                    let sqe = *sqe;
                    self.session.record_error(&sqe, status);
                }
                self.transport.respond(shared.now, slot, status, 0);
            }
        }
    }
}

fn is_aborted(outcome: &Outcome) -> bool {
    outcome.result.is_err_and(|status| status.is(Status::ABORT_REQUESTED))
}

/// Where a read or write moves its data if not `staged`. With data digests it has to be: what is sent must
/// not change under its digest, and what is received must not be kept if its digest is wrong.
fn in_place(
    command: &IoCommand,
    namespace: &LocalNamespace,
    staged: bool,
) -> Option<(*mut u8, u32)> {
    let memory = namespace.in_place.as_ref().filter(|_| !staged)?;
    match *command {
        IoCommand::Read { offset, length, .. } => {
            let start = memory.read_range(offset, length as usize)?;
            Some((start.cast_mut(), length))
        }
        IoCommand::Write { offset, length, .. } => {
            Some((memory.write_range(offset, length as usize)?, length))
        }
        _ => None,
    }
}

/// Whether what it changes is stable only when it was flushed.
fn needs_flush(command: &IoCommand) -> bool {
    match *command {
        IoCommand::Write { fua, .. } | IoCommand::WriteZeroes { fua, .. } => !fua,
        IoCommand::DatasetManagement { deallocate, .. } => deallocate,
        IoCommand::Read { .. } | IoCommand::Compare { .. } | IoCommand::Flush => false,
    }
}

/// With the volatile write cache disabled every write is forced through.
fn force_unit_access(command: &mut IoCommand) {
    if let IoCommand::Write { fua, .. } | IoCommand::WriteZeroes { fua, .. } = command {
        *fua = true;
    }
}
