//! Execution of a command at its stores, in parts.
//!
//! | command | parts |
//! |---|---|
//! | Read, Compare, Verify with Force Unit Access | a flush, then the operation |
//! | Write Zeroes with Force Unit Access | the operation, then a flush |
//! | Write, Copy with Force Unit Access | the store forces each write, or leaves it to a flush that follows |
//! | Dataset Management | a discard for each range |
//! | Flush of all namespaces | a flush for each, even after a failure |
//! | Compare and Write | with exclusive access: the comparison, then the write |
//! | Write Uncorrectable | with exclusive access: the mark |
//! | Write, Write Zeroes, Copy to marked blocks | with exclusive access: as with Force Unit Access, then the marks are cleared |
//! | Compare and Write to blocks that may be marked after a restart | the same, after the comparison |
//! | others | one |
//!
//! A Read, Compare or Verify of marked blocks ends before it reads them, and so does a Copy from them.
//!
//! Where nothing is lost without a flush, Force Unit Access needs none. A store that can lose unflushed writes runs one
//! flush at a time: flushes requested meanwhile wait for the next one, which one command runs for all of them.

use super::copying::Copying;
use super::environment::{FusedOutcome, StoreOutcome};
use crate::io::{BlockGeometry, DSM_RANGE_BYTES, TargetIoCommand};
use crate::stability::{Epoch, FlushTicket, Flushed, StoreUser, Wake};
use crate::uncorrectable::MarkChange;
use core::ops::Deref;
use roadtrain_proto::cut::Shorten;
use roadtrain_proto::op::{ByteRange, StoreOperation};
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Status for a controller whose writes may be lost. A retry would not bring them back.
const LOST: Status = Status::WRITE_FAULT.dnr();

/// Status for marked blocks, until they are written.
const UNREADABLE: Status = Status::UNRECOVERED_READ_ERROR.dnr();

/// A store.
pub trait TaskStore {
    /// Flushes of the store.
    type TaskFlushes: Flushes;

    /// Returns the flushes; `None`: no write can be lost.
    fn flushes(&self) -> Option<&Self::TaskFlushes>;
    /// True if a part of the range is marked as uncorrectable. One load while nothing is.
    fn is_marked(&self, range: &ByteRange) -> bool;
    /// True if a write to the range has to clear marks of it.
    fn is_to_clear(&self, range: &ByteRange) -> bool;
    /// True if the store keeps marks itself.
    fn marks(&self) -> bool {
        false
    }
}

/// A store's [`Stability`](crate::stability::Stability), shared by all users of the store.
pub trait Flushes {
    /// Returns the epoch of a write that starts now.
    fn epoch(&self) -> Epoch;
    /// Begins a flush of the writes of `user` until now.
    fn begin(&self, user: &StoreUser) -> FlushTicket;
    /// Ends the flush that ran, and wakes its waiters.
    fn ended(&self, flushed: Flushed);
    /// True if the controller's writes are reported as stable.
    fn settle(&self, ticket: FlushTicket, flushed: Flushed) -> bool;
}

type FlushesOf<S> = <<S as Deref>::Target as TaskStore>::TaskFlushes;

/// Next step of a command.
pub enum TaskStep<B> {
    /// The store executes the operation, with the command's buffer if it moves data.
    Submit(StoreOperation, Option<B>),
    /// Another command's flush is running: [`CommandTask::woken`] is called at its end.
    Wait,
    /// The store's marks change; the part ends with that.
    Mark(MarkChange),
    /// The command needs exclusive access to the range until it ends: call [`CommandTask::excluded`] once it has that, and
    /// begin. Earlier checks may no longer hold then.
    Exclude(ByteRange),
    /// The part has ended with this result.
    Ended(Result<(), Status>),
}

/// Next part of a command.
#[derive(Clone, Copy)]
enum TaskPart {
    Store(StoreOperation),
    Marks(MarkChange),
}

/// Remaining parts of a command.
enum RemainingParts<S> {
    None,
    Then(StoreOperation),
    Discards(DsmRanges),
    Flushes(Vec<S>),
    Copy(Box<Copying>),
}

/// Exclusive access to a range.
struct ExclusiveRange {
    range: ByteRange,
    /// Set once access is exclusive: whether the command is still to be executed.
    admitted: Option<Result<(), Status>>,
    /// True if the marks of the range are cleared at the end.
    clears: bool,
}

/// The write that follows a comparison.
struct FusedWrite<B> {
    write: StoreOperation,
    /// Buffer of the other command: first the data to write, then the compared data.
    other: Option<B>,
    compared: bool,
}

struct Flush {
    /// Ticket of the user's flush; `None`: the flush is for the command itself.
    ticket: Option<FlushTicket>,
    /// True if this command runs the flush.
    leads: bool,
}

/// A command in execution at its stores. `S` refers to a store and keeps it open, `B` is a buffer.
pub struct CommandTask<S, B> {
    store: S,
    next: TaskPart,
    rest: RemainingParts<S>,
    /// Buffer of the command, while no operation has it.
    buffer: Option<B>,
    /// Bytes in the buffer after a successful read.
    reads: u32,
    /// Bytes of a write.
    writes: u32,
    exclusive: Option<Box<ExclusiveRange>>,
    fused: Option<Box<FusedWrite<B>>>,
    /// True once the host has aborted it: no further part begins.
    is_cancelled: bool,
    /// User whose writes a flush covers.
    user: Option<Arc<StoreUser>>,
    /// Epoch of a write that its own command flushes.
    wrote: Option<Epoch>,
    /// True if the store has not forced the write that has just ended: a flush follows, in turn with those of others.
    is_unforced: bool,
    /// Flush in progress, of a store with other users.
    flush: Option<Flush>,
    failed: Option<Status>,
}

impl<S: Deref<Target: TaskStore>, B: Shorten> CommandTask<S, B> {
    fn new(store: S, op: StoreOperation) -> Self {
        CommandTask {
            store,
            next: TaskPart::Store(op),
            rest: RemainingParts::None,
            buffer: None,
            reads: 0,
            writes: 0,
            exclusive: None,
            fused: None,
            is_cancelled: false,
            user: None,
            wrote: None,
            is_unforced: false,
            flush: None,
            failed: None,
        }
    }

    /// Creates the task of an I/O command to one namespace, checked against its `geometry`. `user` is the owner of a
    /// Flush.
    ///
    /// # Errors
    /// The result, if there is nothing to do.
    pub fn execute(
        command: &TargetIoCommand,
        (store, geometry): (S, &BlockGeometry),
        buffer: Option<B>,
        user: Option<&Arc<StoreUser>>,
    ) -> Result<Self, StoreOutcome<B>> {
        let op = match *command {
            TargetIoCommand::Read { offset, .. } | TargetIoCommand::Verify { offset, .. } => {
                StoreOperation::Read { offset }
            }
            TargetIoCommand::Write { offset, fua, .. } => StoreOperation::Write { offset, fua },
            TargetIoCommand::Compare { offset, .. } => StoreOperation::Compare { offset },
            TargetIoCommand::WriteZeroes { offset, length, deallocate, .. } => {
                StoreOperation::WriteZeroes { range: ByteRange { offset, len: length }, deallocate }
            }
            TargetIoCommand::DatasetManagement { ranges, deallocate, .. } => {
                return CommandTask::discard((ranges, deallocate), (store, geometry), buffer);
            }
            TargetIoCommand::Copy { offset, ranges, fua, .. } => {
                return CommandTask::copy((offset, ranges, fua), (store, geometry), buffer);
            }
            TargetIoCommand::WriteUncorrectable { offset, length } => {
                let range = ByteRange { offset, len: length };
                return Ok(CommandTask::mark(store, range, buffer));
            }
            TargetIoCommand::Flush => StoreOperation::Flush,
        };
        let mut task = CommandTask { buffer, ..CommandTask::new(store, op) };
        let changed = if op.changes() { command.range() } else { None };
        let clears = changed.is_some_and(|changed| task.clear(changed));
        if let TaskPart::Store(StoreOperation::Write { fua, .. }) = &mut task.next {
            *fua |= clears;
        }
        match *command {
            TargetIoCommand::Flush => task.user = user.cloned(),
            TargetIoCommand::Read { length, .. } | TargetIoCommand::Verify { length, .. } => {
                task.reads = length;
            }
            TargetIoCommand::Write { length, .. } => task.writes = length,
            _ => {}
        }
        if let Some(flushes) = task.store.flushes() {
            if command.reads_stable_data() {
                (task.next, task.rest) =
                    (TaskPart::Store(StoreOperation::Flush), RemainingParts::Then(op));
            } else if let TargetIoCommand::WriteZeroes { fua, .. } = *command
                && (fua || clears)
            {
                (task.wrote, task.rest) =
                    (Some(flushes.epoch()), RemainingParts::Then(StoreOperation::Flush));
            }
        }
        Ok(task)
    }

    /// Creates the task of a Compare and Write of the same blocks, checked against their namespace's `geometry`.
    ///
    /// # Errors
    /// The result, if there is nothing to do.
    pub fn compare_and_write(
        (compare, write): (&TargetIoCommand, &TargetIoCommand),
        (store, geometry): (S, &BlockGeometry),
        (expected, data): (B, B),
    ) -> Result<Self, StoreOutcome<B>> {
        let (&TargetIoCommand::Write { offset, length, fua }, true) =
            (write, matches!(compare, TargetIoCommand::Compare { .. }))
        else {
            let fused = FusedOutcome { compared: false, buffer: Some(data) };
            let result = Err(Status::INTERNAL_ERROR);
            let fused = Some(Box::new(fused));
            return Err(StoreOutcome { result, buffer: Some(expected), copied: 0, fused });
        };
        let range = ByteRange { offset, len: length.into() };
        let clears = store.is_to_clear(&range);
        let write = StoreOperation::Write { offset, fua: fua || clears };
        let fused = Some(Box::new(FusedWrite { write, other: Some(data), compared: false }));
        let task = CommandTask::execute(compare, (store, geometry), Some(expected), None)?;
        Ok(CommandTask {
            writes: length,
            fused,
            exclusive: Some(ExclusiveRange::new(range, clears)),
            ..task
        })
    }

    /// Creates the task of a Compare and Write that the store executes itself. `joined` is the compared data, then the data
    /// to write; `data` is the latter alone.
    ///
    /// # Errors
    /// The result, if there is nothing to do.
    pub fn compare_and_write_in_store(
        write: &TargetIoCommand,
        (store, geometry): (S, &BlockGeometry),
        (joined, data): (B, B),
    ) -> Result<Self, StoreOutcome<B>> {
        let mut task = CommandTask::execute(write, (store, geometry), Some(joined), None)?;
        if let TaskPart::Store(StoreOperation::Write { offset, fua }) = task.next {
            let write = StoreOperation::CompareAndWrite { offset, fua };
            task.next = TaskPart::Store(write);
            task.fused = Some(Box::new(FusedWrite { write, other: Some(data), compared: true }));
        }
        Ok(task)
    }

    /// Grants exclusive access to the requested range ([`TaskStep::Exclude`]). `admitted` is the current result of
    /// [`CommandExecution::admits`](super::CommandExecution::admits): the command is not executed on an error.
    pub fn excluded(&mut self, admitted: Result<(), Status>) {
        self.exclusive.iter_mut().for_each(|exclusive| exclusive.admitted = Some(admitted));
    }

    /// True if it has or needs exclusive access to a range.
    #[inline]
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }

    /// Returns the range that the current part changes, if it has begun.
    #[must_use]
    pub fn changes(&self) -> Option<ByteRange> {
        match (self.next, &self.exclusive) {
            (_, Some(exclusive)) if exclusive.admitted.is_none() => None, // no other operation waits for it
            (TaskPart::Store(op), _) => op.changed(self.writes.into()),
            (TaskPart::Marks(_), _) => None, // it has exclusive access
        }
    }

    /// Creates the task of a Write Uncorrectable.
    fn mark(store: S, range: ByteRange, buffer: Option<B>) -> Self {
        if store.marks() {
            let op = StoreOperation::WriteUncorrectable { range };
            return CommandTask { buffer, ..CommandTask::new(store, op) };
        }
        let next = TaskPart::Marks(MarkChange::Mark(range));
        CommandTask {
            next,
            buffer,
            exclusive: Some(ExclusiveRange::new(range, false)),
            ..CommandTask::new(store, StoreOperation::Flush)
        }
    }

    /// Prepares a write to the range. Returns true if it has to clear marks there, which needs exclusive access.
    fn clear(&mut self, range: ByteRange) -> bool {
        let clears = self.store.is_to_clear(&range);
        if clears {
            self.exclusive = Some(ExclusiveRange::new(range, true));
        }
        clears
    }

    /// Creates the task of a Dataset Management command; without `deallocate` it is a hint without effect.
    fn discard(
        (count, deallocate): (u32, bool),
        (store, geometry): (S, &BlockGeometry),
        buffer: Option<B>,
    ) -> Result<Self, StoreOutcome<B>> {
        let list = buffer.as_deref().ok_or(Status::INTERNAL_ERROR);
        let ranges = list.and_then(|list| DsmRanges::new(list, count, geometry));
        let first = ranges.map(|mut ranges| Some((ranges.next(buffer.as_deref()?)?, ranges)));
        match first {
            Ok(Some((range, ranges))) if deallocate => {
                let rest = RemainingParts::Discards(ranges);
                Ok(CommandTask {
                    rest,
                    buffer,
                    ..CommandTask::new(store, StoreOperation::Discard { range })
                })
            }
            other => Err(StoreOutcome::new(other.map(drop), buffer)),
        }
    }

    /// Creates the task of a Copy. `to` holds the destination offset, the number of source ranges in the buffer, and
    /// Force Unit Access.
    fn copy(
        to: (u64, u32, bool),
        (store, geometry): (S, &BlockGeometry),
        buffer: Option<B>,
    ) -> Result<Self, StoreOutcome<B>> {
        let list = buffer.as_deref().ok_or(Status::INTERNAL_ERROR);
        let copying = list.and_then(|list| Copying::new(list, to, geometry));
        match copying.map(|copying| (copying.op(), copying)) {
            Ok((Some((op, bytes)), mut copying)) => {
                let mut task = CommandTask { buffer, ..CommandTask::new(store, op) };
                if task.clear(copying.destination()) {
                    copying.force_unit_access();
                }
                task.buffer.iter_mut().for_each(|buffer| buffer.shorten(bytes));
                task.rest = RemainingParts::Copy(Box::new(copying));
                Ok(task)
            }
            other => Err(StoreOutcome::new(other.map(drop), buffer)),
        }
    }

    /// Creates a task that ends when the data of a Read may be taken from the store's own memory.
    pub fn announce(store: S, range: ByteRange) -> Self {
        CommandTask::new(store, StoreOperation::ReadInPlace { range })
    }

    /// Creates a task that fills `buffer` with the block status of the range.
    pub fn block_status(store: S, range: ByteRange, buffer: Option<B>) -> Self {
        CommandTask { buffer, ..CommandTask::new(store, StoreOperation::QueryAllocation { range }) }
    }

    /// Creates a task that flushes the stores for `user`, one after the other.
    ///
    /// # Errors
    /// The result, if there is no store.
    pub fn flush_all(
        mut stores: Vec<S>,
        user: Option<Arc<StoreUser>>,
    ) -> Result<Self, StoreOutcome<B>> {
        match stores.pop() {
            Some(store) => Ok(CommandTask {
                rest: RemainingParts::Flushes(stores),
                user,
                ..CommandTask::new(store, StoreOperation::Flush)
            }),
            None => Err(StoreOutcome::new(Ok(()), None)),
        }
    }

    /// Returns the store of the current part.
    #[inline]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Begins the next part. `join` requests a flush, and returns true if this command has to run it now; otherwise it
    /// is woken.
    #[inline]
    pub fn begin(&mut self, join: impl FnOnce(&FlushesOf<S>) -> bool) -> TaskStep<B> {
        if let Some(exclusive) = &self.exclusive {
            match (exclusive.admitted, self.is_cancelled) {
                (None, _) => return TaskStep::Exclude(exclusive.range),
                (Some(_), true) => return TaskStep::Ended(Err(Status::ABORT_REQUESTED)),
                (Some(Err(status)), false) => return TaskStep::Ended(Err(status)),
                (Some(Ok(())), false) => {}
            }
        }
        let op = match self.next {
            TaskPart::Store(op) => op,
            TaskPart::Marks(change) => return TaskStep::Mark(change),
        };
        if matches!(op, StoreOperation::Flush)
            && let Some(flushes) = self.store.flushes()
        {
            let ticket = self.user.as_ref().map(|user| flushes.begin(user));
            let leads = join(flushes);
            self.flush = Some(Flush { ticket, leads });
            if !leads {
                return TaskStep::Wait;
            }
        }
        if self.is_unreadable(&op) {
            return TaskStep::Ended(Err(UNREADABLE));
        }
        if let StoreOperation::Write { fua: true, .. }
        | StoreOperation::CompareAndWrite { fua: true, .. } = op
        {
            self.wrote = self.store.flushes().map(Flushes::epoch);
        }
        let moves = matches!(
            op,
            StoreOperation::Read { .. }
                | StoreOperation::Write { .. }
                | StoreOperation::Compare { .. }
                | StoreOperation::CompareAndWrite { .. }
                | StoreOperation::QueryAllocation { .. }
        );
        TaskStep::Submit(op, if moves { self.buffer.take() } else { None })
    }

    /// True if the operation would read marked blocks.
    #[inline]
    fn is_unreadable(&self, op: &StoreOperation) -> bool {
        let range = match *op {
            StoreOperation::Read { offset } | StoreOperation::Compare { offset } => {
                let len = self.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
                ByteRange { offset, len }
            }
            StoreOperation::QueryAllocation { range } => range, // marked blocks count as allocated
            _ => return false,
        };
        self.store.is_marked(&range)
    }

    /// Continues after the awaited flush, or as the one that runs the next flush.
    pub fn woken(&mut self, wake: Wake) -> TaskStep<B> {
        match (wake, &mut self.flush) {
            (Wake::Lead, Some(flush)) => {
                flush.leads = true;
                match self.is_cancelled {
                    true => TaskStep::Ended(Err(Status::ABORT_REQUESTED)),
                    false => TaskStep::Submit(StoreOperation::Flush, None),
                }
            }
            (Wake::Ended(Flushed::Done), Some(_)) => TaskStep::Ended(Ok(())),
            (Wake::Ended(_), Some(_)) => TaskStep::Ended(Err(LOST)),
            (_, None) => TaskStep::Wait,
        }
    }

    /// Ends a part, and takes back its buffer. `is_unforced`: a successful write with Force Unit Access still needs a
    /// flush. `None`: [begin](CommandTask::begin) the next part.
    #[inline]
    pub fn ended(
        &mut self,
        result: Result<(), Status>,
        buffer: Option<B>,
        is_unforced: bool,
    ) -> Option<StoreOutcome<B>> {
        if buffer.is_some() {
            self.buffer = buffer;
        }
        self.is_unforced = is_unforced;
        let result = self.settle(result);
        self.failed = self.failed.or(result.err());
        if self.set_next_part(result.is_ok()) {
            return None;
        }
        let is_whole = self.buffer.as_ref().map_or(0, |b| b.len()) >= self.reads as usize;
        let result = match self.failed {
            Some(status) => Err(status),
            None if is_whole => Ok(()),
            None => Err(Status::INTERNAL_ERROR), // the store has kept what it was to fill
        };
        let fused = self.fused.take().map(|fused| {
            // A store that does both reports one status: of the comparison, unless both have succeeded.
            let is_one = matches!(fused.write, StoreOperation::CompareAndWrite { .. });
            let compared = fused.compared && !(is_one && result.is_err());
            Box::new(FusedOutcome { compared, buffer: fused.other })
        });
        let mut copied = 0;
        if let RemainingParts::Copy(copying) = &self.rest {
            copied = if result.is_err() { copying.copied() } else { 0 };
            self.buffer.iter_mut().for_each(|buffer| buffer.shorten(copying.buffer_bytes()));
        }
        Some(StoreOutcome { result, buffer: self.buffer.take(), copied, fused })
    }

    /// Cancels the command: no further part begins. It ends as usual, aborted or not.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// Returns the result of a part for the command, with regard to flushes.
    fn settle(&mut self, result: Result<(), Status>) -> Result<(), Status> {
        let Some(flushes) = self.store.flushes() else { return result };
        let Some(Flush { ticket, leads }) = self.flush.take() else { return result };
        let flushed = match result {
            Ok(()) => Flushed::Done,
            Err(status) if status.is(Status::ABORT_REQUESTED) => Flushed::NotRun,
            Err(_) => Flushed::Failed,
        };
        if leads {
            flushes.ended(flushed);
        }
        let is_good = match ticket {
            Some(ticket) => flushes.settle(ticket, flushed),
            None => self.wrote.is_none_or(|began| began == flushes.epoch()),
        };
        // An earlier flush has failed; its loss is reported to this user now.
        if is_good { result } else { result.and(Err(LOST)) }
    }

    /// Sets the next part after a success or a failure. Returns true if there is one.
    fn set_next_part(&mut self, is_well: bool) -> bool {
        let op = self.next_op(is_well).map(TaskPart::Store);
        let cleared = || {
            self.exclusive.as_mut().filter(|_| is_well).and_then(|exclusive| exclusive.cleared())
        };
        let Some(next) = op.or_else(cleared) else { return false };
        if self.is_cancelled {
            self.failed = self.failed.or(Some(Status::ABORT_REQUESTED));
        }
        self.next = next;
        !self.is_cancelled
    }

    /// Returns the next operation of a store.
    fn next_op(&mut self, is_well: bool) -> Option<StoreOperation> {
        if is_well && core::mem::take(&mut self.is_unforced) {
            return Some(StoreOperation::Flush);
        }
        match &mut self.rest {
            RemainingParts::Flushes(stores) => stores.pop().map(|store| {
                self.store = store;
                StoreOperation::Flush
            }),
            _ if !is_well => None,
            RemainingParts::None => self.write_compared(),
            RemainingParts::Discards(ranges) => {
                let range = self.buffer.as_deref().and_then(|list| ranges.next(list));
                range.map(|range| StoreOperation::Discard { range })
            }
            RemainingParts::Copy(copying) => {
                copying.advance();
                copying.op().map(|(op, bytes)| {
                    self.writes = bytes as u32;
                    self.buffer.iter_mut().for_each(|buffer| buffer.shorten(bytes));
                    op
                })
            }
            &mut RemainingParts::Then(op) => {
                self.rest = RemainingParts::None;
                Some(op)
            }
        }
    }
}

impl ExclusiveRange {
    fn new(range: ByteRange, clears: bool) -> Box<ExclusiveRange> {
        Box::new(ExclusiveRange { range, admitted: None, clears })
    }

    /// Returns the clearing of marks after a successful write. It is returned once.
    fn cleared(&mut self) -> Option<TaskPart> {
        let clears = core::mem::take(&mut self.clears);
        clears.then_some(TaskPart::Marks(MarkChange::Clear(self.range)))
    }
}

impl<S, B> CommandTask<S, B> {
    /// Returns the write after a successful comparison; `None` after the write.
    fn write_compared(&mut self) -> Option<StoreOperation> {
        let fused = self.fused.as_mut().filter(|fused| !fused.compared)?;
        fused.compared = true;
        core::mem::swap(&mut self.buffer, &mut fused.other);
        Some(fused.write)
    }
}

/// Remaining ranges of a Dataset Management command.
struct DsmRanges {
    at: usize,
    count: usize,
    lba_shift: u8,
}

impl DsmRanges {
    /// Checks the first `count` ranges of a list against the capacity. Stores check them again, since the host may
    /// change the list meanwhile.
    fn new(list: &[u8], count: u32, geometry: &BlockGeometry) -> Result<DsmRanges, Status> {
        let (entries, _) = list.as_chunks();
        let mut named = entries.iter().take(count as usize).map(range);
        let fits = |(slba, blocks): (u64, u64)| {
            slba.checked_add(blocks).is_some_and(|end| end <= geometry.blocks)
        };
        match named.all(fits) {
            true => Ok(DsmRanges { at: 0, count: count as usize, lba_shift: geometry.lba_shift }),
            false => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        }
    }

    /// Returns the next range that is not empty.
    fn next(&mut self, list: &[u8]) -> Option<ByteRange> {
        let (entries, _) = list.as_chunks();
        while self.at < self.count {
            let (slba, blocks) = range(entries.get(self.at)?);
            self.at += 1;
            if blocks > 0 {
                let (offset, len) = (slba << self.lba_shift, blocks << self.lba_shift);
                return Some(ByteRange { offset, len });
            }
        }
        None
    }
}

/// Returns the start and length of a Dataset Management range, in blocks.
fn range(entry: &[u8; DSM_RANGE_BYTES as usize]) -> (u64, u64) {
    let (words, _) = entry.as_chunks();
    let word = |at: usize| u64::from(u32::from_le_bytes(words[at]));
    (word(2) | word(3) << 32, word(1))
}

#[cfg(test)]
mod tests;
