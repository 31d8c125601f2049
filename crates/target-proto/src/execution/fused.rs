//! Fused commands (NVMe Base 2.1, section 3.4.2): Compare and Write, the only fused operation (NVM Command Set 1.1,
//! section 3.1).
//!
//! Two commands are one operation if the second follows immediately in the same submission queue. Each gets its data as
//! if it were alone, into buffers beside the pool, so that no pair waits for a buffer of another one. When both have
//! their data they are one job for the store.
//!
//! | received | first command | second command |
//! |---|---|---|
//! | a first command, then another command | Missing Fused Command | executed, if it is not fused |
//! | a second command without a first one | | Missing Fused Command |
//! | not a Compare and a Write | Missing Fused Command | the same |
//! | other blocks than the first one's | Invalid Field | the same |
//! | more than one block | Atomic Write Unit Exceeded | Failed Fused Command |
//! | an invalid command, one with corrupt data, or an aborted one | the status that it would have alone; the other one Failed Fused Command | |
//! | a command refused by the ANA state of its path | that state's status; the other one Failed Fused Command | |
//! | a command that a reservation forbids, also by the time it has its data or its lock | that one Reservation Conflict; the other one Failed Fused Command | |
//! | data that differs | Compare Failure | Failed Fused Command |
//! | a write that fails | success | the status that it would have alone |
//!
//! A first command waits for the next command without a limit; an Abort ends it.

use super::environment::{CommandPayload, Environment, LaneNamespace, StoreJob, StoreOutcome};
use super::reservations::CONFLICT;
use super::slot::{SlotCommand, SlotData};
use super::{CommandExecution, give_all};
use crate::io::TargetIoCommand;
use core::ops::DerefMut;
use roadtrain_wire::sqe::{FLAG_FUSE, FUSE_FIRST, FUSE_SECOND, Sqe, opcode};
use roadtrain_wire::status::Status;
use std::rc::Rc;

/// Fused operations of a connection at a time: their buffers are beside the pool.
const PAIRS_MAX: usize = 32;

/// Expectation for the next command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FusedExpectation {
    #[default]
    Anything,
    /// The second command of the one in that slot.
    Second(u16),
    /// The second command of one that has already failed: it fails with that status.
    SecondOfFailed(Status),
}

/// A fused pair of commands.
#[derive(Clone, Copy, Debug)]
struct CompareWritePair {
    compare: u16,
    /// Slot of the Write, once received.
    write: Option<u16>,
    /// True for each command whose data has arrived.
    has_data: (bool, bool),
    /// True if a store is executing the pair.
    is_started: bool,
}

impl CompareWritePair {
    fn has(&self, slot: u16) -> bool {
        self.compare == slot || self.write == Some(slot)
    }
}

/// Fused commands of a connection.
#[derive(Debug, Default)]
pub(super) struct FusedCommands {
    expected: FusedExpectation,
    pairs: Vec<CompareWritePair>,
}

impl FusedCommands {
    /// True if a second command is expected next.
    #[inline]
    pub(super) fn expects_second(&self) -> bool {
        self.expected != FusedExpectation::Anything
    }

    /// True if a command is fused and not completed.
    #[inline]
    pub(super) fn has(&self, slot: u16) -> bool {
        self.pairs.iter().any(|pair| pair.has(slot))
    }

    fn find(&mut self, slot: u16) -> Option<&mut CompareWritePair> {
        self.pairs.iter_mut().find(|pair| pair.has(slot))
    }

    fn take(&mut self, slot: u16) -> Option<CompareWritePair> {
        let at = self.pairs.iter().position(|pair| pair.has(slot))?;
        Some(self.pairs.swap_remove(at))
    }
}

impl<N: LaneNamespace, B: DerefMut<Target = [u8]>> CommandExecution<N, B> {
    /// Executes a command that is fused, or that arrives where a second command was expected.
    pub(super) fn io_fused(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
    ) {
        if !env.keeps_order() {
            return self.refuse(env, slot, sqe, Status::INVALID_FIELD.dnr(), &payload);
        }
        let expected = core::mem::take(&mut self.fused.expected);
        let fuse = sqe.flags & FLAG_FUSE;
        if let (FusedExpectation::Second(first), true) = (expected, fuse != FUSE_SECOND) {
            self.miss_second(env, first);
        }
        let alone = Sqe { flags: sqe.flags & !FLAG_FUSE, ..*sqe };
        let refused = match (fuse, expected) {
            (0, _) => return self.io_alone(env, slot, sqe, payload),
            (FUSE_FIRST, _) => match self.check_first(env, &alone, &payload) {
                Ok((command, namespace)) => {
                    self.fused.expected = FusedExpectation::Second(slot);
                    let (write, has_data, is_started) = (None, (false, false), false);
                    self.fused.pairs.push(CompareWritePair {
                        compare: slot,
                        write,
                        has_data,
                        is_started,
                    });
                    return self.begin_fused(env, slot, (command, namespace), &alone, payload);
                }
                Err(status) => {
                    let is_missing = status.is(Status::FUSED_MISSING);
                    let other = if is_missing { status } else { Status::FUSED_FAILED };
                    self.fused.expected = FusedExpectation::SecondOfFailed(other);
                    status
                }
            },
            (FUSE_SECOND, FusedExpectation::Second(first)) => {
                match self.check_second(env, first, &alone, &payload) {
                    Ok((command, namespace)) => {
                        let pair = self.fused.find(first);
                        pair.into_iter().for_each(|pair| pair.write = Some(slot));
                        return self.begin_fused(env, slot, (command, namespace), &alone, payload);
                    }
                    Err((status, of_first)) => {
                        self.fail_fused(env, first, of_first, false);
                        status
                    }
                }
            }
            (FUSE_SECOND, FusedExpectation::SecondOfFailed(status)) => status,
            (FUSE_SECOND, FusedExpectation::Anything) => Status::FUSED_MISSING.dnr(),
            _ => Status::INVALID_FIELD.dnr(), // both bits: reserved
        };
        match env.refusal(sqe.nsid.get()) {
            // Another path may execute it, and nothing is wrong with the command.
            Some(_) => self.fail(env, slot, refused, &payload),
            None => self.refuse(env, slot, sqe, refused, &payload),
        }
    }

    /// Fails a first command, if there is one, because the next one is no second command.
    pub(super) fn end_expectation(&mut self, env: &mut impl Environment<N, B>) {
        if let FusedExpectation::Second(first) = core::mem::take(&mut self.fused.expected) {
            self.miss_second(env, first);
        }
    }

    fn miss_second(&mut self, env: &mut impl Environment<N, B>, first: u16) {
        self.fail_fused(env, first, Status::FUSED_MISSING.dnr(), false);
        self.fused.expected = FusedExpectation::Anything;
    }

    /// Checks that a command is a Compare that a Write may follow.
    fn check_first(
        &mut self,
        env: &mut impl Environment<N, B>,
        sqe: &Sqe,
        payload: &CommandPayload<'_, B>,
    ) -> Result<(TargetIoCommand, Rc<N>), Status> {
        if sqe.opcode != opcode::COMPARE {
            return Err(Status::FUSED_MISSING.dnr());
        }
        let (command, namespace) = checked(env, sqe, payload)?;
        if namespace.geometry().read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        if command.data_out_bytes() > 1 << namespace.geometry().lba_shift {
            return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr());
        }
        match self.fused.pairs.len() < PAIRS_MAX {
            true => Ok((command, namespace)),
            false => Err(Status::COMMAND_INTERRUPTED),
        }
    }

    /// Checks that a command is the Write for the Compare in slot `first`. Otherwise returns its status, and that of
    /// the first one.
    fn check_second(
        &mut self,
        env: &mut impl Environment<N, B>,
        first: u16,
        sqe: &Sqe,
        payload: &CommandPayload<'_, B>,
    ) -> Result<(TargetIoCommand, Rc<N>), (Status, Status)> {
        let both = |status: Status| Err((status.dnr(), status.dnr()));
        if sqe.opcode != opcode::WRITE {
            return both(Status::FUSED_MISSING);
        }
        let SlotCommand::Io { command, sqe: of_first, .. } =
            &self.slots[usize::from(first)].command
        else {
            return both(Status::FUSED_MISSING);
        };
        let (compare, nsid) = (*command, of_first.nsid);
        let (write, namespace) =
            checked(env, sqe, payload).map_err(|status| (status, Status::FUSED_FAILED))?;
        match (compare, write) {
            (TargetIoCommand::Compare { offset, length, .. }, TargetIoCommand::Write { .. })
                if (offset, length, nsid) == (write.offset(), write.data_out_bytes(), sqe.nsid) =>
            {
                Ok((write, namespace))
            }
            _ => both(Status::INVALID_FIELD),
        }
    }

    /// Gets a fused command its buffer, then its data.
    fn begin_fused(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        (command, namespace): (TargetIoCommand, Rc<N>),
        sqe: &Sqe,
        payload: CommandPayload<'_, B>,
    ) {
        if let Some(class) = namespace.class() {
            env.set_class(slot, class);
        }
        env.session().account(&command);
        self.slots[usize::from(slot)].command =
            SlotCommand::Io { command, namespace, sqe: *sqe, began: None };
        let (bytes, along) = (command.data_out_bytes(), payload.bytes());
        match env.place(payload) {
            CommandPayload::Here(buffer) => {
                self.hold(env.now(), slot, buffer);
                self.fused_data_done(env, slot);
            }
            _ => {
                let buffer = env.make(bytes);
                self.hold(env.now(), slot, buffer);
                if along == 0 {
                    env.request_data(slot, bytes);
                }
            }
        }
    }

    /// Continues a fused command whose data is complete.
    pub(super) fn fused_data_done(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        let Some(pair) = self.fused.find(slot) else { return };
        match pair.compare == slot {
            true => pair.has_data.0 = true,
            false => pair.has_data.1 = true,
        }
        let &mut CompareWritePair { compare, write: Some(write), has_data: (true, true), .. } =
            pair
        else {
            return;
        };
        if !env.session().executes_io() {
            self.fused.take(slot);
            self.refuse_quiet(env, compare);
            return self.refuse_quiet(env, write);
        }
        for slot in [compare, write] {
            if self.is_refused(slot) {
                return self.fail_fused(env, slot, CONFLICT, true);
            }
        }
        let pair = self.fused.find(slot);
        pair.into_iter().for_each(|pair| pair.is_started = true);
        self.start_fused(env, compare, write);
    }

    /// Checks that a command that has waited for its lock may still execute; `slot` is the second one of a pair.
    /// Meanwhile a reservation may have been acquired, the path to the namespace closed, or the controller shut down.
    ///
    /// # Errors
    /// The status: nothing was changed.
    pub fn admits(&self, env: &mut impl Environment<N, B>, slot: u16) -> Result<(), Status> {
        let Some(s) = self.slots.get(usize::from(slot)) else { return Err(Status::INTERNAL_ERROR) };
        let SlotCommand::Io { sqe, .. } = &s.command else { return Err(Status::INTERNAL_ERROR) };
        if !env.session().executes_io() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        if let Some(status) = env.refusal(sqe.nsid.get()) {
            return Err(status);
        }
        let pair = self.fused.pairs.iter().find(|pair| pair.has(slot));
        match self.is_refused(slot) || pair.is_some_and(|pair| self.is_refused(pair.compare)) {
            true => Err(CONFLICT),
            false => Ok(()),
        }
    }

    /// True if a reservation of another host refuses the command by now.
    fn is_refused(&self, slot: u16) -> bool {
        match &self.slots[usize::from(slot)].command {
            SlotCommand::Io { command, namespace, .. } => namespace.refuses(command.group()),
            _ => false,
        }
    }

    /// Fails a waiting fused command that a reservation forbids. A pair in a store is waited for there.
    pub(super) fn fence_fused(&mut self, env: &mut impl Environment<N, B>, slot: u16) {
        if self.fused.find(slot).is_some_and(|pair| !pair.is_started) {
            self.fail_fused(env, slot, CONFLICT, false);
        }
    }

    fn start_fused(&mut self, env: &mut impl Environment<N, B>, compare: u16, write: u16) {
        let expected = self.slots[usize::from(compare)].take_buffer();
        let SlotCommand::Io { command: first, .. } = self.slots[usize::from(compare)].command
        else {
            return debug_assert!(false, "not a command of a pair");
        };
        let s = &mut self.slots[usize::from(write)];
        let data = s.take_buffer();
        let SlotCommand::Io { command, namespace, began, .. } = &mut s.command else { return };
        let mut second = *command;
        if env.session().is_write_through() {
            second.force_unit_access();
        }
        *began = if second.needs_flush() { namespace.epoch() } else { None };
        let namespace = namespace.clone();
        let (Some(expected), Some(data)) = (expected, data) else { return };
        let buffers = (expected, data);
        let (compare, namespace) = (first, &*namespace);
        self.start(
            env,
            write,
            StoreJob::CompareAndWrite { compare, write: second, namespace, buffers },
        );
    }

    /// Completes both commands of a pair after its store has ended; `slot` is the second command.
    pub(super) fn complete_fused(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        outcome: StoreOutcome<B>,
    ) {
        let Some(pair) = self.fused.take(slot) else { return give_all(env, outcome) };
        let compared = outcome.fused.as_ref().is_some_and(|fused| fused.compared);
        let result = outcome.result;
        give_all(env, outcome);
        let (first, second) = match result {
            Ok(()) => (Status::SUCCESS, Status::SUCCESS),
            Err(status) if compared => (Status::SUCCESS, status),
            Err(status) if status.is(CONFLICT) && !self.is_refused(pair.compare) => {
                (Status::FUSED_FAILED, status)
            }
            Err(status) => (status, Status::FUSED_FAILED),
        };
        let is_aborted = result.is_err_and(|status| status.is(Status::ABORT_REQUESTED));
        self.resolve_aborts(pair.compare, is_aborted);
        if let SlotCommand::Io { namespace, began: Some(began), .. } =
            &self.slots[usize::from(slot)].command
            && result.is_ok()
        {
            namespace.wrote(*began);
        }
        for (slot, status) in [(pair.compare, first), (slot, second)] {
            self.record(env, slot, status);
            env.respond(slot, status, 0);
        }
    }

    /// Fails a fused command with `status`, and the other one as well. `has_data`: all data of this command has
    /// arrived, though the pair does not record it.
    pub(super) fn fail_fused(
        &mut self,
        env: &mut impl Environment<N, B>,
        slot: u16,
        status: Status,
        has_data: bool,
    ) {
        let Some(pair) = self.fused.take(slot) else { return };
        if self.fused.expected == FusedExpectation::Second(pair.compare) {
            self.fused.expected = FusedExpectation::SecondOfFailed(Status::FUSED_FAILED);
        }
        let commands = [(Some(pair.compare), pair.has_data.0), (pair.write, pair.has_data.1)];
        for (command, its_data) in commands {
            let Some(command) = command else { continue };
            let is_it = command == slot;
            let status = if is_it { status } else { Status::FUSED_FAILED };
            let has_data = its_data || is_it && has_data;
            self.record(env, command, status);
            let s = &mut self.slots[usize::from(command)];
            s.take_buffer().into_iter().for_each(|buffer| env.give(buffer));
            if has_data {
                s.command = SlotCommand::None;
                self.resolve_aborts(command, status.is(Status::ABORT_REQUESTED));
                env.respond(command, status, 0);
            } else {
                // Hosts do not expect a completion in the middle of the data.
                (s.command, s.data) = (SlotCommand::Failing(status), SlotData::Discarded);
            }
        }
    }

    /// Aborts a fused command. Returns false if it is not fused.
    pub(super) fn abort_fused(&mut self, env: &mut impl Environment<N, B>, slot: u16) -> bool {
        let Some(&mut CompareWritePair { write, is_started, .. }) = self.fused.find(slot) else {
            return false;
        };
        match (write, is_started) {
            (Some(write), true) => {
                if !env.cancel(write) {
                    self.resolve_aborts(slot, false);
                }
            }
            _ => self.fail_fused(env, slot, Status::ABORT_REQUESTED, false),
        }
        true
    }

    /// Adds an error of a command to the error log.
    fn record(&mut self, env: &mut impl Environment<N, B>, slot: u16, status: Status) {
        if let SlotCommand::Io { sqe, .. } = &self.slots[usize::from(slot)].command
            && !status.is_success()
            && !status.is(Status::ABORT_REQUESTED)
        {
            env.session().record_error(sqe, status);
        }
    }
}

/// Parses and checks a command. Returns it with its namespace.
fn checked<N: LaneNamespace, B: DerefMut<Target = [u8]>>(
    env: &mut impl Environment<N, B>,
    sqe: &Sqe,
    payload: &CommandPayload<'_, B>,
) -> Result<(TargetIoCommand, Rc<N>), Status> {
    let nsid = sqe.nsid.get();
    let Some(namespace) = env.namespace(nsid) else {
        return Err(env.refusal(nsid).unwrap_or(Status::INVALID_NAMESPACE.dnr()));
    };
    let command = TargetIoCommand::parse(sqe, namespace.geometry(), payload.bytes())?;
    if namespace.refuses(command.group()) {
        return Err(CONFLICT);
    }
    Ok((command, namespace))
}
