//! Stores of a simulated target: a slow disk, commands in flight there, and few buffers.

use crate::disk::{BLOCK_BYTES, DiskCompletion, DiskWork, SimDisk};
use crate::emulated_disk::EmulatedDisk;
use crate::ends::ConnId;
use crate::exclusion::{Exclusion, ExclusionNotice};
use crate::execution::SimExecution;
use crate::marks_file::MarksFile;
use crate::plan::{Sabotage, SimPlan};
use crate::pool::{SimBuffer, SimPool};
use crate::rng::SimRng;
use crate::transport::LaneData;
use roadtrain_proto::op::{ByteRange, StoreOperation};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::buffer_shares::BufferShares;
use roadtrain_target_proto::execution::{self, CommandTask, StoreOutcome, TaskStep};
use roadtrain_target_proto::rate::{RateLimit, RateSettings};
use roadtrain_target_proto::stability::{Epoch, FlushTicket, Flushed, Stability, StoreUser, Wake};
use roadtrain_target_proto::uncorrectable::{self, ByteExtents, MarkChange, Marks};
use roadtrain_wire::status::Status;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Marked blocks, with the commands that wait for a change.
type MarksOf = Marks<u64>;

/// Flushes of the disk, which all commands share, and its marks.
pub(crate) struct DiskFlushes {
    now: Cell<Instant>,
    stability: Rc<RefCell<Stability<u64>>>,
    /// Commands that have waited for a flush.
    woken: RefCell<Vec<(u64, Wake)>>,
    marks: RefCell<MarksOf>,
    /// True for a deliberate fault: a host that did not flush itself gets no error.
    forgets: bool,
}

impl execution::Flushes for DiskFlushes {
    fn epoch(&self) -> Epoch {
        self.stability.borrow().epoch()
    }

    fn begin(&self, user: &StoreUser) -> FlushTicket {
        self.stability.borrow_mut().begin(self.now.get(), user)
    }

    fn ended(&self, flushed: Flushed) {
        self.woken.borrow_mut().extend(self.stability.borrow_mut().ended(flushed));
    }

    fn settle(&self, ticket: FlushTicket, flushed: Flushed) -> bool {
        self.stability.borrow_mut().settle(self.now.get(), ticket, flushed) || self.forgets
    }
}

impl execution::TaskStore for DiskFlushes {
    type TaskFlushes = DiskFlushes;

    fn flushes(&self) -> Option<&DiskFlushes> {
        Some(self)
    }

    fn is_marked(&self, range: &ByteRange) -> bool {
        self.marks.borrow().is_marked(range)
    }

    fn is_to_clear(&self, range: &ByteRange) -> bool {
        self.marks.borrow().is_to_clear(range)
    }
}

/// A command until its response.
struct SimStoreCommand {
    reactor: usize,
    conn: ConnId,
    slot: u16,
    /// Bytes of its buffer.
    bytes: usize,
    task: CommandTask<Rc<DiskFlushes>, SimBuffer>,
}

/// An operation of a command that is on the disk.
struct DiskOperation {
    entry: u64,
    op: StoreOperation,
    buffer: Option<SimBuffer>,
}

/// A command that a store has completed.
pub type EndedCommand = (ConnId, u16, StoreOutcome<SimBuffer>);

/// The disk, its commands in flight, and the buffers.
pub struct TargetStores {
    /// Disk, whose physical blocks outlive the target's process.
    pub disk: EmulatedDisk,
    /// File of marks, which outlives the process as well.
    marks_file: MarksFile,
    /// Buffers of each reactor, and the hosts' shares of waiting commands.
    pub buffers: Vec<(SimPool, BufferShares)>,
    /// Store of the namespaces that are not on the disk: another one each time the process dies.
    pub extra_store: u8,
    /// Number of power losses, which is the write verifier.
    pub boots: u64,
    /// Hosts that get the error of a failed flush; the waiters are numbers of `entries`.
    pub stability: Rc<RefCell<Stability<u64>>>,
    flushes: Rc<DiskFlushes>,
    /// Limiter of the namespace in use.
    pub(crate) limit: Rc<RateLimit>,
    /// True if it is limited now.
    pub(crate) is_limited: bool,
    entries: BTreeMap<u64, SimStoreCommand>,
    entry_last: u64,
    /// Operations by number of the disk.
    parts: BTreeMap<u64, DiskOperation>,
    /// Completions of paused reactors.
    untaken: Vec<DiskCompletion>,
    /// Commands with exclusive access to their blocks.
    exclusion: Exclusion,
    plan: SimPlan,
    rng: SimRng,
}

impl TargetStores {
    pub(crate) fn new(plan: &SimPlan, disk: SimDisk, rng: SimRng) -> Self {
        let flushes = flushes(plan, ByteExtents::default());
        // Forked, so that the rest of a seed's run stays the same.
        let marks_file = MarksFile::new(rng.clone().fork());
        TargetStores {
            disk: EmulatedDisk::new(disk, plan.sabotage == Some(Sabotage::SharedBlocks)),
            marks_file,
            buffers: buffers(plan),
            extra_store: 1,
            boots: 0,
            stability: flushes.stability.clone(),
            flushes,
            limit: Rc::new(RateLimit::new(&plan.rates)),
            is_limited: plan.rates.is_limited(),
            entries: BTreeMap::new(),
            entry_last: 0,
            parts: BTreeMap::new(),
            untaken: Vec::new(),
            exclusion: Exclusion::new(plan.reactors.count),
            plan: plan.clone(),
            rng,
        }
    }

    /// Limits the namespace in use, or lifts the limit, without notice to hosts.
    pub(crate) fn change_limit(&mut self, rates: &RateSettings) {
        self.is_limited = !self.is_limited;
        let rates = if self.is_limited { rates } else { &RateSettings::UNLIMITED };
        self.limit = Rc::new(RateLimit::new(rates));
    }

    /// Returns the number of commands in flight.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory that the storage lends, if it does.
    pub(crate) fn memory(&self) -> Option<SimDisk> {
        self.plan.lends_memory.then(|| self.disk.physical.clone())
    }

    /// Returns the data of commands in execution of a reactor's lane.
    pub(crate) fn hold<'a>(
        &'a mut self,
        reactor: usize,
        execution: &'a mut SimExecution,
    ) -> LaneData<'a> {
        LaneData { execution, pool: &mut self.buffers[reactor].0, disk: &self.disk.physical }
    }

    /// Returns the buffers of a reactor.
    pub(crate) fn pool(&mut self, reactor: usize) -> &mut SimPool {
        &mut self.buffers[reactor].0
    }

    /// Prevents further operations of a connection's commands.
    pub(crate) fn cancel_all(&mut self, conn: ConnId) {
        let own = self.entries.values_mut().filter(|entry| entry.conn == conn);
        own.for_each(|entry| entry.task.cancel());
    }

    /// Checks the bytes of a reactor's buffers: its lanes hold `buffered` of them.
    ///
    /// # Errors
    /// The violated rule.
    pub fn check(&self, reactor: usize, buffered: usize) -> Result<(), String> {
        let own = self.entries.values().filter(|entry| entry.reactor == reactor);
        let in_store: usize = own.map(|entry| entry.bytes).sum();
        self.buffers[reactor].0.check(buffered + in_store)
    }

    /// Ends the process: only the disk keeps its state.
    pub(crate) fn crash(&mut self, now: Instant, power_loss: bool) {
        // Commands in flight end with the process.
        self.disk.advance(now);
        self.disk.abandon();
        if power_loss {
            self.disk.physical.lose_power();
            self.boots += u64::from(self.plan.sabotage != Some(Sabotage::SameVerifier));
        }
        self.entries.clear();
        self.parts.clear();
        self.untaken.clear();
        self.exclusion = Exclusion::new(self.plan.reactors.count);
        self.flushes = flushes(&self.plan, self.marks_file.crash());
        self.stability = self.flushes.stability.clone();
        self.buffers = buffers(&self.plan);
        self.extra_store = self.rng.between(1, crate::load::STORES.into()) as u8;
    }

    /// Returns the time at which the next operation ends.
    #[must_use]
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.disk.physical.next_at().into_iter().chain(self.marks_file.next_at()).min()
    }

    /// Advances to `now`, and returns commands that have completed. A paused reactor takes no completion.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        is_running: impl Fn(usize) -> bool,
    ) -> Vec<EndedCommand> {
        self.flushes.now.set(now);
        let mut ended = Vec::new();
        let mut done = std::mem::take(&mut self.untaken);
        done.extend(self.disk.advance(now));
        for done in done {
            let entry = self.parts.get(&done.task).and_then(|part| self.entries.get(&part.entry));
            if entry.is_some_and(|entry| !is_running(entry.reactor)) {
                self.untaken.push(done);
                continue;
            }
            let DiskCompletion { task, result, lost, is_unforced } = done;
            let Some(DiskOperation { entry, op, mut buffer }) = self.parts.remove(&task) else {
                continue;
            };
            let mut is_equal = true;
            if let (Ok(data), Some(buffer)) = (&result, &mut buffer)
                && !data.is_empty()
            {
                match op {
                    StoreOperation::Compare { .. } => is_equal = **buffer == **data,
                    _ => buffer.copy_from_slice(data),
                }
            }
            let result = match result {
                Ok(_) if is_equal => Ok(()),
                Ok(_) => Err(Status::COMPARE_FAILURE.dnr()),
                Err(()) => Err(match op {
                    StoreOperation::Flush if lost => Status::WRITE_FAULT.dnr(),
                    StoreOperation::Flush => Status::ABORT_REQUESTED, // it has lost nothing
                    _ => Status::INTERNAL_ERROR,
                }),
            };
            ended.extend(self.end_part(entry, result, buffer, is_unforced));
            self.wake(&mut ended);
        }
        self.end_save(now, &mut ended);
        ended
    }

    /// Continues commands that have waited for the flush of another one.
    fn wake(&mut self, ended: &mut Vec<EndedCommand>) {
        loop {
            let woken = self.flushes.woken.take();
            if woken.is_empty() {
                return;
            }
            for (entry, wake) in woken {
                let Some(SimStoreCommand { task, .. }) = self.entries.get_mut(&entry) else {
                    continue;
                };
                let step = task.woken(wake);
                ended.extend(self.take(entry, step));
            }
        }
    }

    /// Returns the flushes that all its commands share.
    pub(crate) fn flushes(&self) -> Rc<DiskFlushes> {
        self.flushes.clone()
    }

    /// True if the response to a command is to be dropped, as a deliberate fault.
    pub(crate) fn forgets(&mut self) -> bool {
        self.plan.sabotage == Some(Sabotage::DroppedResponse) && self.rng.chance(1)
    }

    /// Returns the status for commands while the target refuses I/O.
    pub(crate) fn refusal(&self, now: Instant) -> Option<Status> {
        let mut refusals = self.plan.refusals.iter();
        refusals.find(|(times, _)| times.contains(&now)).map(|(_, status)| *status)
    }

    /// Cancels a command, if the disk has it. Operations that have begun are completed.
    pub(crate) fn cancel(&mut self, conn: ConnId, slot: u16) -> bool {
        let is_it = |entry: &&mut SimStoreCommand| (entry.conn, entry.slot) == (conn, slot);
        let entry = self.entries.values_mut().find(is_it);
        entry.map(|entry| entry.task.cancel()).is_some()
    }

    /// Starts a command, or returns its outcome at once.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        (reactor, conn, slot): (usize, ConnId, u16),
        bytes: usize,
        task: Result<CommandTask<Rc<DiskFlushes>, SimBuffer>, StoreOutcome<SimBuffer>>,
    ) -> Option<StoreOutcome<SimBuffer>> {
        let task = match task {
            Ok(task) => task,
            Err(outcome) => return Some(outcome),
        };
        self.flushes.now.set(now);
        self.entry_last += 1;
        self.entries.insert(self.entry_last, SimStoreCommand { reactor, conn, slot, bytes, task });
        self.begin(self.entry_last).map(|(_, _, outcome)| outcome)
    }

    /// Begins the next operation of a command.
    fn begin(&mut self, entry: u64) -> Option<EndedCommand> {
        let task = &mut self.entries.get_mut(&entry)?.task;
        let step = task.begin(|flushes| flushes.stability.borrow_mut().join(entry));
        self.take(entry, step)
    }

    /// Carries out a step of a command.
    fn take(&mut self, entry: u64, step: TaskStep<SimBuffer>) -> Option<EndedCommand> {
        match step {
            TaskStep::Submit(StoreOperation::Flush, _)
                if self.plan.sabotage == Some(Sabotage::IdleFlush) =>
            {
                self.end_part(entry, Ok(()), None, false)
            }
            TaskStep::Submit(op, buffer) => {
                let reactor = self.entries.get(&entry)?.reactor;
                let (op, buffer) = self.exclusion.hold_back((entry, reactor), (op, buffer))?;
                let work = work(&op, buffer.as_deref().unwrap_or_default());
                let work = sabotaged(work, self.plan.sabotage);
                let task = self.disk.start(self.flushes.now.get(), work);
                self.parts.insert(task, DiskOperation { entry, op, buffer });
                None
            }
            TaskStep::Wait => None,
            TaskStep::Mark(change) => self.mark(entry, change),
            TaskStep::Exclude(range) => {
                let reactor = self.entries.get(&entry)?.reactor;
                match self.plan.sabotage == Some(Sabotage::NotAlone) {
                    true => self.exclusion.pretend(entry, reactor, range),
                    false => self.exclusion.enter(entry, reactor, range),
                }
                None
            }
            TaskStep::Ended(result) => self.end_part(entry, result, None, false),
        }
    }

    /// Changes the marks for a command.
    fn mark(&mut self, entry: u64, change: MarkChange) -> Option<EndedCommand> {
        let mut steps = Vec::new();
        self.flushes.marks.borrow_mut().submit(change, entry, &mut steps);
        let answer = self.save_marks(steps).pop();
        let is_early = self.plan.sabotage == Some(Sabotage::EarlyMark)
            && matches!(change, MarkChange::Mark(_));
        let answer = answer.or_else(|| is_early.then_some((entry, Ok(()))));
        answer.and_then(|(entry, result)| self.end_part(entry, result, None, false))
    }

    /// Completes a save of marks that is due.
    fn end_save(&mut self, now: Instant, ended: &mut Vec<EndedCommand>) {
        while let Some(is_saved) = self.marks_file.advance(now) {
            let mut steps = Vec::new();
            self.flushes.marks.borrow_mut().saved(is_saved, &mut steps);
            for (entry, result) in self.save_marks(steps) {
                ended.extend(self.end_part(entry, result, None, false));
                self.wake(ended);
            }
        }
    }

    /// Carries out the steps of a change of marks. Returns the commands that have ended.
    fn save_marks(
        &mut self,
        steps: Vec<uncorrectable::MarksStep<u64>>,
    ) -> Vec<(u64, Result<(), Status>)> {
        let mut answers = Vec::new();
        for step in steps {
            match step {
                uncorrectable::MarksStep::Save(image) => {
                    self.marks_file.save(self.flushes.now.get(), &image);
                }
                uncorrectable::MarksStep::Answer(entry, result) => answers.push((entry, result)),
            }
        }
        answers
    }

    fn end_part(
        &mut self,
        number: u64,
        result: Result<(), Status>,
        buffer: Option<SimBuffer>,
        is_unforced: bool,
    ) -> Option<EndedCommand> {
        let SimStoreCommand { reactor, conn, slot, task, .. } = self.entries.get_mut(&number)?;
        let (conn, slot) = (*conn, *slot);
        self.exclusion.ended(number, *reactor);
        let Some(outcome) = task.ended(result, buffer, is_unforced) else {
            return self.begin(number);
        };
        self.entries.remove(&number);
        self.exclusion.release(number);
        Some((conn, slot, outcome))
    }

    /// Takes the notices to send, in their order; each with its reactor, or for all.
    pub(crate) fn take_notices(&mut self) -> Vec<(Option<usize>, ExclusionNotice)> {
        let notices = self.exclusion.take_notices().into_iter();
        let to = |notice: ExclusionNotice| match notice {
            ExclusionNotice::Alone(command) => (self.exclusion.reactor_of(command), notice),
            ExclusionNotice::Close(_) | ExclusionNotice::Open(_) => (None, notice),
        };
        notices.map(to).collect()
    }

    /// True if a reactor has closed a range that `is_it` accepts.
    pub(crate) fn is_closed(&self, reactor: usize, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        self.plan.sabotage != Some(Sabotage::OpenPlaces) && self.exclusion.is_closed(reactor, is_it)
    }

    /// Closes the range of an exclusive command at a reactor.
    pub(crate) fn close(&mut self, reactor: usize, command: u64) {
        let Some(range) = self.exclusion.range(command) else { return };
        let changes = |part: &&DiskOperation| {
            let bytes = part.buffer.as_deref().map_or(0, <[u8]>::len) as u64;
            let is_here =
                self.entries.get(&part.entry).is_some_and(|entry| entry.reactor == reactor);
            is_here && part.op.changed(bytes).is_some_and(|changed| changed.overlaps(&range))
        };
        let in_flight = self.parts.values().filter(changes).map(|part| part.entry).collect();
        self.exclusion.close(command, reactor, in_flight);
    }

    /// Opens a range at a reactor: operations that were held back begin.
    pub(crate) fn open(&mut self, reactor: usize, lock: u64) {
        for (entry, (op, buffer)) in self.exclusion.open(lock, reactor) {
            let ended = self.take(entry, TaskStep::Submit(op, buffer));
            debug_assert!(ended.is_none(), "the disk takes its time");
        }
    }

    /// Returns connection and slot of a command that has exclusive access by now.
    pub(crate) fn command(&self, number: u64) -> Option<(ConnId, u16)> {
        self.entries.get(&number).map(|entry| (entry.conn, entry.slot))
    }

    /// Continues a command that has got exclusive access, if it is still `admitted`.
    pub(crate) fn excluded(
        &mut self,
        number: u64,
        admitted: Result<(), Status>,
    ) -> Option<EndedCommand> {
        self.entries.get_mut(&number)?.task.excluded(admitted);
        self.begin(number)
    }
}

/// Makes the buffers of the reactors of a process that starts.
fn buffers(plan: &SimPlan) -> Vec<(SimPool, BufferShares)> {
    let new = |_| (SimPool::new(plan.pool_bytes), BufferShares::new(plan.pool_bytes));
    (0..plan.reactors.count).map(new).collect()
}

/// Makes the flushes of a process that starts, with the marks that it has found.
fn flushes(plan: &SimPlan, marks: ByteExtents) -> Rc<DiskFlushes> {
    Rc::new(DiskFlushes {
        now: Cell::default(),
        stability: Rc::default(),
        woken: RefCell::default(),
        marks: RefCell::new(Marks::new(uncorrectable::MarksPlace::File, marks)),
        forgets: plan.sabotage == Some(Sabotage::UnreportedFailure),
    })
}

fn sabotaged(work: DiskWork, sabotage: Option<Sabotage>) -> DiskWork {
    match (work, sabotage) {
        (DiskWork::Write { slba, data, .. }, Some(Sabotage::IgnoredFua)) => {
            DiskWork::Write { slba, data, fua: false }
        }
        (DiskWork::Write { slba, mut data, fua }, Some(Sabotage::TornBlock)) => {
            data[BLOCK_BYTES / 2..BLOCK_BYTES].fill(0);
            DiskWork::Write { slba, data, fua }
        }
        (work, _) => work,
    }
}

/// Returns the disk's work for an operation with `data`.
fn work(op: &StoreOperation, data: &[u8]) -> DiskWork {
    let lba = |offset: u64| offset / BLOCK_BYTES as u64;
    match *op {
        StoreOperation::Read { offset } | StoreOperation::Compare { offset } => {
            DiskWork::Read { slba: lba(offset), blocks: lba(data.len() as u64) }
        }
        StoreOperation::Write { offset, fua } => {
            DiskWork::Write { slba: lba(offset), data: data.to_vec(), fua }
        }
        StoreOperation::WriteZeroes { range, .. } | StoreOperation::Discard { range } => {
            let (slba, data) = (lba(range.offset), vec![0; range.len as usize]);
            DiskWork::Write { slba, data, fua: false }
        }
        StoreOperation::Flush => DiskWork::Flush,
        StoreOperation::ReadInPlace { .. }
        | StoreOperation::QueryAllocation { .. }
        | StoreOperation::CompareAndWrite { .. }
        | StoreOperation::WriteUncorrectable { .. } => {
            unreachable!("no host requests it")
        }
    }
}
