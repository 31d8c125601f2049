//! What the simulated target executes commands with: few buffers, and a disk that takes its time.

use crate::disk::{BLOCK_BYTES, Done, SimDisk, Work};
use crate::exclusion::Exclusion;
use crate::marks_file::MarksFile;
use crate::network::ConnId;
use crate::plan::{Plan, Sabotage};
use crate::pool::{Buffer, Pool};
use crate::process::Process;
use crate::rng::Rng;
use crate::transport::{Hold, TargetEnd};
use roadtrain_proto::op::{ByteRange, Op};
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::NamespaceTable;
use roadtrain_target_proto::buffer_shares::BufferShares;
use roadtrain_target_proto::execution::{
    self, Environment, FusedOutcome, Job, Outcome, Step, Task,
};
use roadtrain_target_proto::io::{Geometry, IoCommand};
use roadtrain_target_proto::rate::{RateLimit, Rates};
use roadtrain_target_proto::reservations::{Access, Group};
use roadtrain_target_proto::session::Session;
use roadtrain_target_proto::stability::{Epoch, Flushed, Mark, Stability, Ticket, User, Wake};
use roadtrain_target_proto::uncorrectable::{self, Change, Extents, Marks};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// The commands of a connection.
pub type Execution = execution::Execution<Namespace, Buffer>;

/// A namespace, as a connection sees it.
pub struct Namespace {
    /// Its number: the first is on the disk, of others each octet says which store it is.
    pub nsid: u32,
    /// Its size.
    pub geometry: Geometry,
    /// What a reservation keeps its host from.
    pub access: Option<Arc<Access>>,
    /// What it may do in a second.
    pub limit: Option<Rc<RateLimit>>,
    /// What the connection has written and nobody has flushed.
    pub mark: Option<Arc<Mark>>,
    /// Whose epochs are noted.
    pub stability: Rc<RefCell<Stability<u64>>>,
    /// Storage that lends its memory.
    pub memory: Option<SimDisk>,
}

/// Blocks that cannot be read, by numbers of commands that wait for a change.
type MarksOf = Marks<u64>;

/// Place in the memory that the storage lends, in bytes.
#[derive(Clone, Copy)]
pub struct Place {
    /// From the namespace's start.
    pub offset: u64,
    /// Of the command.
    pub length: u32,
}

impl execution::Place for Place {
    fn length(&self) -> u32 {
        self.length
    }
}

impl execution::Namespace for Namespace {
    type Place = Place;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn class(&self) -> Option<Class> {
        None
    }

    fn in_place(&self, command: &IoCommand) -> Option<Place> {
        self.memory.as_ref()?;
        match *command {
            IoCommand::Read { offset, length, .. } | IoCommand::Write { offset, length, .. } => {
                Some(Place { offset, length })
            }
            _ => None,
        }
    }

    fn refuses(&self, group: Group) -> bool {
        self.access.as_ref().is_some_and(|access| access.refuses(group))
    }

    fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    fn begins(&self, now: Instant, command: &IoCommand) -> Instant {
        self.limit.as_ref().map_or(now, |limit| limit.take(now, command))
    }

    fn give_back(&self, command: &IoCommand) {
        self.limit.iter().for_each(|limit| limit.give_back(command));
    }

    fn is_limited_as(&self, other: &Self) -> bool {
        let which = |namespace: &Self| namespace.limit.as_ref().map(Rc::as_ptr);
        which(self) == which(other)
    }

    /// Nobody marks blocks where the storage lends its memory.
    fn is_marked(&self, _command: &IoCommand) -> bool {
        false
    }

    fn is_announced(&self) -> bool {
        false
    }

    fn put(&self, place: Place, from: u32, octets: &[u8]) {
        let memory = self.memory.as_ref().expect("it has lent the place");
        memory.put(place.offset + u64::from(from), octets);
    }

    fn epoch(&self) -> Option<Epoch> {
        self.mark.is_some().then(|| self.stability.borrow().epoch())
    }

    fn wrote(&self, began: Epoch) {
        self.mark.iter().for_each(|mark| mark.wrote(began));
    }
}

/// What all commands share of the disk that lose what was not flushed.
struct Flushes {
    now: Cell<Instant>,
    stability: Rc<RefCell<Stability<u64>>>,
    /// Who waited for a flush.
    woken: RefCell<Vec<(u64, Wake)>>,
    marks: RefCell<MarksOf>,
    /// Who did not flush itself is not told of a failure.
    forgets: bool,
}

impl execution::Flushes for Flushes {
    fn epoch(&self) -> Epoch {
        self.stability.borrow().epoch()
    }

    fn begin(&self, user: &User) -> Ticket {
        self.stability.borrow_mut().begin(self.now.get(), user)
    }

    fn ended(&self, flushed: Flushed) {
        self.woken.borrow_mut().extend(self.stability.borrow_mut().ended(flushed));
    }

    fn settle(&self, ticket: Ticket, flushed: Flushed) -> bool {
        self.stability.borrow_mut().settle(self.now.get(), ticket, flushed) || self.forgets
    }
}

impl execution::Store for Flushes {
    type Flushes = Flushes;

    fn flushes(&self) -> Option<&Flushes> {
        Some(self)
    }

    fn is_marked(&self, range: &ByteRange) -> bool {
        self.marks.borrow().is_marked(range)
    }

    fn is_to_clear(&self, range: &ByteRange) -> bool {
        self.marks.borrow().is_to_clear(range)
    }
}

/// A command, until it is answered.
struct Entry {
    reactor: usize,
    conn: ConnId,
    slot: u16,
    /// Octets of its buffer.
    bytes: usize,
    task: Task<Rc<Flushes>, Buffer>,
}

/// What the disk has of a command.
struct Part {
    entry: u64,
    op: Op,
    buffer: Option<Buffer>,
}

/// A command that a store has ended.
pub type Ended = (ConnId, u16, Outcome<Buffer>);

/// The disk, what is under way there, and the buffers.
pub struct Stores {
    /// It outlives the target's process.
    pub disk: SimDisk,
    /// As does this.
    marks_file: MarksFile,
    /// Buffers of each reactor, and the shares of them that may wait for hosts.
    pub buffers: Vec<(Pool, BufferShares)>,
    /// Which store the namespaces have that are not on the disk: another one each time the process dies.
    pub extra_store: u8,
    /// Power losses so far: the write verifier.
    pub boots: u64,
    /// Who is to be told of flushes that fail; the waiters are numbers of `entries`.
    pub stability: Rc<RefCell<Stability<u64>>>,
    flushes: Rc<Flushes>,
    /// Of what the namespace in use may do in a second, how much is used.
    pub(crate) limit: Rc<RateLimit>,
    /// Whether it is limited now.
    pub(crate) is_limited: bool,
    entries: BTreeMap<u64, Entry>,
    entry_last: u64,
    /// By the disk's number.
    parts: BTreeMap<u64, Part>,
    /// Commands that are alone with their blocks.
    exclusion: Exclusion,
    plan: Plan,
    rng: Rng,
}

impl Stores {
    pub(crate) fn new(plan: &Plan, disk: SimDisk, rng: Rng) -> Self {
        let flushes = flushes(plan, Extents::default());
        // Aside: the rest of a seed's run stays what it was.
        let marks_file = MarksFile::new(rng.clone().fork());
        Stores {
            disk,
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
            exclusion: Exclusion::default(),
            plan: plan.clone(),
            rng,
        }
    }

    /// The namespace in use is limited, or not any more; hosts hear nothing of it.
    pub(crate) fn change_limit(&mut self, rates: &Rates) {
        self.is_limited = !self.is_limited;
        let rates = if self.is_limited { rates } else { &Rates::UNLIMITED };
        self.limit = Rc::new(RateLimit::new(rates));
    }

    /// Commands under way.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.entries.len()
    }

    /// Memory that the storage lends, if it does.
    pub(crate) fn memory(&self) -> Option<SimDisk> {
        self.plan.lends_memory.then(|| self.disk.clone())
    }

    /// Data of commands in execution of a reactor's lane.
    pub(crate) fn hold<'a>(&'a mut self, reactor: usize, execution: &'a mut Execution) -> Hold<'a> {
        Hold { execution, pool: &mut self.buffers[reactor].0, disk: &self.disk }
    }

    /// The buffers of a reactor.
    pub(crate) fn pool(&mut self, reactor: usize) -> &mut Pool {
        &mut self.buffers[reactor].0
    }

    /// Nothing more of a connection's commands is begun.
    pub(crate) fn cancel_all(&mut self, conn: ConnId) {
        let own = self.entries.values_mut().filter(|entry| entry.conn == conn);
        own.for_each(|entry| entry.task.cancel());
    }

    /// Checks the bytes of a reactor's buffers: its lanes hold `buffered` of them.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self, reactor: usize, buffered: usize) -> Result<(), String> {
        let own = self.entries.values().filter(|entry| entry.reactor == reactor);
        let in_store: usize = own.map(|entry| entry.bytes).sum();
        self.buffers[reactor].0.check(buffered + in_store)
    }

    /// The process ends: nothing is remembered but the disk.
    pub(crate) fn crash(&mut self, now: Instant, power_loss: bool) {
        // What has not ended by now ends with the process.
        self.disk.advance(now);
        self.disk.abandon();
        if power_loss {
            self.disk.lose_power();
            self.boots += u64::from(self.plan.sabotage != Some(Sabotage::SameVerifier));
        }
        self.entries.clear();
        self.parts.clear();
        self.exclusion = Exclusion::default();
        self.flushes = flushes(&self.plan, self.marks_file.crash());
        self.stability = self.flushes.stability.clone();
        self.buffers = buffers(&self.plan);
        self.extra_store = self.rng.between(1, crate::load::STORES.into()) as u8;
    }

    /// When the next operation ends.
    #[must_use]
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.disk.next_at().into_iter().chain(self.marks_file.next_at()).min()
    }

    /// What has ended by now.
    pub(crate) fn advance(&mut self, now: Instant) -> Vec<Ended> {
        self.flushes.now.set(now);
        let mut ended = Vec::new();
        for Done { task, result, lost, is_unforced } in self.disk.advance(now) {
            let Some(Part { entry, op, mut buffer }) = self.parts.remove(&task) else { continue };
            let mut is_equal = true;
            if let (Ok(data), Some(buffer)) = (&result, &mut buffer)
                && !data.is_empty()
            {
                match op {
                    Op::Compare { .. } => is_equal = **buffer == **data,
                    _ => buffer.copy_from_slice(data),
                }
            }
            let result = match result {
                Ok(_) if is_equal => Ok(()),
                Ok(_) => Err(Status::COMPARE_FAILURE.dnr()),
                Err(()) => Err(match op {
                    Op::Flush if lost => Status::WRITE_FAULT.dnr(),
                    Op::Flush => Status::ABORT_REQUESTED, // it has lost nothing
                    _ => Status::INTERNAL_ERROR,
                }),
            };
            ended.extend(self.end_part(entry, result, buffer, is_unforced));
            self.wake(&mut ended);
        }
        self.end_save(now, &mut ended);
        ended
    }

    /// Commands go on for whose flush another one has ended.
    fn wake(&mut self, ended: &mut Vec<Ended>) {
        loop {
            let woken = self.flushes.woken.take();
            if woken.is_empty() {
                return;
            }
            for (entry, wake) in woken {
                let Some(Entry { task, .. }) = self.entries.get_mut(&entry) else { continue };
                let step = task.woken(wake);
                ended.extend(self.take(entry, step));
            }
        }
    }

    /// Starts a command, or says at once what has become of it.
    fn start(
        &mut self,
        now: Instant,
        (reactor, conn, slot): (usize, ConnId, u16),
        bytes: usize,
        task: Result<Task<Rc<Flushes>, Buffer>, Outcome<Buffer>>,
    ) -> Option<Outcome<Buffer>> {
        let task = match task {
            Ok(task) => task,
            Err(outcome) => return Some(outcome),
        };
        self.flushes.now.set(now);
        self.entry_last += 1;
        self.entries.insert(self.entry_last, Entry { reactor, conn, slot, bytes, task });
        self.begin(self.entry_last).map(|(_, _, outcome)| outcome)
    }

    /// Begins the next part of a command.
    fn begin(&mut self, entry: u64) -> Option<Ended> {
        let task = &mut self.entries.get_mut(&entry)?.task;
        let step = task.begin(|flushes| flushes.stability.borrow_mut().join(entry));
        self.take(entry, step)
    }

    /// Does what a command wants.
    fn take(&mut self, entry: u64, step: Step<Buffer>) -> Option<Ended> {
        match step {
            Step::Submit(Op::Flush, _) if self.plan.sabotage == Some(Sabotage::IdleFlush) => {
                self.end_part(entry, Ok(()), None, false)
            }
            Step::Submit(op, buffer) => {
                let (op, buffer) = self.exclusion.hold_back(entry, (op, buffer))?;
                let work = work(&op, buffer.as_deref().unwrap_or_default());
                let work = sabotaged(work, self.plan.sabotage);
                let task = self.disk.start(self.flushes.now.get(), work);
                self.parts.insert(task, Part { entry, op, buffer });
                None
            }
            Step::Wait => None,
            Step::Mark(change) => self.mark(entry, change),
            Step::Exclude(range) => {
                if self.plan.sabotage == Some(Sabotage::NotAlone) {
                    self.exclusion.pretend(entry);
                } else if self.exclusion.ask(entry, range) {
                    self.close(entry);
                }
                None
            }
            Step::Ended(result) => self.end_part(entry, result, None, false),
        }
    }

    /// A command changes the marks.
    fn mark(&mut self, entry: u64, change: Change) -> Option<Ended> {
        let mut steps = Vec::new();
        self.flushes.marks.borrow_mut().submit(change, entry, &mut steps);
        let answer = self.save_marks(steps).pop();
        let is_early =
            self.plan.sabotage == Some(Sabotage::EarlyMark) && matches!(change, Change::Mark(_));
        let answer = answer.or_else(|| is_early.then_some((entry, Ok(()))));
        answer.and_then(|(entry, result)| self.end_part(entry, result, None, false))
    }

    /// A save of marks may have ended.
    fn end_save(&mut self, now: Instant, ended: &mut Vec<Ended>) {
        while let Some(is_saved) = self.marks_file.advance(now) {
            let mut steps = Vec::new();
            self.flushes.marks.borrow_mut().saved(is_saved, &mut steps);
            for (entry, result) in self.save_marks(steps) {
                ended.extend(self.end_part(entry, result, None, false));
                self.wake(ended);
            }
        }
    }

    /// Does what follows from a change of marks; commands that are answered.
    fn save_marks(
        &mut self,
        steps: Vec<uncorrectable::Step<u64>>,
    ) -> Vec<(u64, Result<(), Status>)> {
        let mut answers = Vec::new();
        for step in steps {
            match step {
                uncorrectable::Step::Save(image) => {
                    self.marks_file.save(self.flushes.now.get(), &image);
                }
                uncorrectable::Step::Answer(entry, result) => answers.push((entry, result)),
            }
        }
        answers
    }

    fn end_part(
        &mut self,
        number: u64,
        result: Result<(), Status>,
        buffer: Option<Buffer>,
        is_unforced: bool,
    ) -> Option<Ended> {
        let Entry { conn, slot, task, .. } = self.entries.get_mut(&number)?;
        let whose = (*conn, *slot);
        self.exclusion.ended(number);
        let Some(outcome) = task.ended(result, buffer, is_unforced) else {
            return self.begin(number);
        };
        self.entries.remove(&number);
        let (opened, next) = self.exclusion.release(number);
        for (entry, op, buffer) in opened {
            let ended = self.take(entry, Step::Submit(op, buffer));
            debug_assert!(ended.is_none(), "the disk takes its time");
        }
        next.into_iter().for_each(|entry| self.close(entry));
        Some((whose.0, whose.1, outcome))
    }

    /// No other command has a part of the blocks that one wants to be alone with.
    fn close(&mut self, entry: u64) {
        let Some(range) = self.exclusion.range(entry) else { return };
        let changes = |part: &&Part| {
            let bytes = part.buffer.as_deref().map_or(0, <[u8]>::len) as u64;
            part.op.changed(bytes).is_some_and(|changed| changed.overlaps(&range))
        };
        let under_way = self.parts.values().filter(changes).map(|part| part.entry).collect();
        self.exclusion.close(entry, under_way);
    }

    /// The next command of a reactor that is alone with its blocks by now, and its number.
    pub(crate) fn next_alone(&mut self, reactor: usize) -> Option<(u64, ConnId, u16)> {
        let entries = &self.entries;
        let is_of = |number| entries.get(&number).is_none_or(|entry| entry.reactor == reactor);
        loop {
            let number = self.exclusion.next_alone(is_of)?;
            if let Some(entry) = self.entries.get(&number) {
                return Some((number, entry.conn, entry.slot));
            }
        }
    }

    /// A command is alone with its blocks: it goes on, if it is still `admitted`.
    pub(crate) fn excluded(&mut self, number: u64, admitted: Result<(), Status>) -> Option<Ended> {
        self.entries.get_mut(&number)?.task.excluded(admitted);
        self.begin(number)
    }
}

/// Buffers of the reactors of a process that begins.
fn buffers(plan: &Plan) -> Vec<(Pool, BufferShares)> {
    let new = |_| (Pool::new(plan.pool_bytes), BufferShares::new(plan.pool_bytes));
    (0..plan.reactors.count).map(new).collect()
}

/// Of a process that begins, with the marks that it has found.
fn flushes(plan: &Plan, marks: Extents) -> Rc<Flushes> {
    Rc::new(Flushes {
        now: Cell::default(),
        stability: Rc::default(),
        woken: RefCell::default(),
        marks: RefCell::new(Marks::new(uncorrectable::Place::File, marks)),
        forgets: plan.sabotage == Some(Sabotage::UntoldFailure),
    })
}

/// What a connection's commands are executed with.
pub struct Env<'a, E> {
    pub(crate) now: Instant,
    pub(crate) reactor: usize,
    pub(crate) conn: ConnId,
    pub(crate) end: &'a mut E,
    pub(crate) session: &'a mut Session,
    pub(crate) namespaces: &'a HashMap<u32, Rc<Namespace>>,
    pub(crate) refused: &'a Option<NamespaceTable>,
    pub(crate) stores: &'a mut Stores,
    pub(crate) process: &'a mut Process<E>,
}

impl<E> Env<'_, E> {
    /// Controller and queue.
    fn ids(&self) -> Option<(u16, u16)> {
        self.session.queue().map(|connected| (connected.cntlid, connected.qid))
    }

    /// The answer to a command is lost.
    fn forgets(&mut self) -> bool {
        self.stores.plan.sabotage == Some(Sabotage::ForgottenCommand)
            && self.ids().is_some_and(|(_, qid)| qid > 0)
            && self.stores.rng.chance(1)
    }

    /// The target does no I/O now.
    fn refuses(&self) -> Option<Status> {
        let mut refusals = self.stores.plan.refusals.iter();
        refusals.find(|(times, _)| times.contains(&self.now)).map(|(_, status)| *status)
    }

    fn compare_and_write(
        &mut self,
        slot: u16,
        commands: (&IoCommand, &IoCommand),
        namespace: &Namespace,
        buffers: (Buffer, Buffer),
    ) -> Option<Outcome<Buffer>> {
        let bytes = buffers.0.len() + buffers.1.len();
        if let Some(status) = self.refuses() {
            let (expected, data) = buffers;
            let fused = FusedOutcome { compared: false, buffer: Some(data) };
            let (buffer, fused) = (Some(expected), Some(Box::new(fused)));
            return Some(Outcome { result: Err(status), buffer, copied: 0, fused });
        }
        let place = (self.stores.flushes.clone(), &namespace.geometry);
        let task = Task::compare_and_write(commands, place, buffers);
        self.stores.start(self.now, (self.reactor, self.conn, slot), bytes, task)
    }

    fn flush(&mut self, slot: u16) -> Option<Outcome<Buffer>> {
        let task = Task::flush_all(vec![self.stores.flushes.clone()], self.session.user().cloned());
        self.stores.start(self.now, (self.reactor, self.conn, slot), 0, task)
    }
}

impl<E: TargetEnd> Environment<Namespace, Buffer> for Env<'_, E> {
    const BUFFER_BYTES_MAX: u32 = 1 << 20;

    fn now(&self) -> Instant {
        self.now
    }

    fn session(&mut self) -> &mut Session {
        self.session
    }

    fn keeps_order(&mut self) -> bool {
        self.end.keeps_order()
    }

    /// Nobody wants to be alone with blocks where the storage lends its memory.
    fn is_closed(&self, _namespace: &Namespace, _command: &IoCommand) -> bool {
        false
    }

    fn namespace(&mut self, nsid: u32) -> Option<Rc<Namespace>> {
        self.namespaces.get(&nsid).cloned()
    }

    fn refusal(&self, nsid: u32) -> Option<Status> {
        self.refused.as_ref()?.refusal(nsid)
    }

    fn take(&mut self, bytes: u32) -> Option<Buffer> {
        self.stores.pool(self.reactor).take(bytes)
    }

    fn take_reserved(&mut self, bytes: u32) -> Option<Buffer> {
        self.stores.pool(self.reactor).take_reserved(bytes)
    }

    fn make(&mut self, bytes: u32) -> Buffer {
        self.stores.pool(self.reactor).make(bytes)
    }

    fn give(&mut self, buffer: Buffer) {
        self.stores.pool(self.reactor).give(buffer);
    }

    fn respond(&mut self, slot: u16, status: Status, result: u64) {
        if !self.forgets() {
            self.end.respond(self.now, slot, status, result);
        }
    }

    fn respond_with_data(&mut self, slot: u16, bytes: u32, result: u64) {
        if !self.forgets() {
            self.end.respond_with_data(self.now, slot, bytes, result);
        }
    }

    fn request_data(&mut self, slot: u16, bytes: u32) {
        self.end.request_data(self.now, slot, bytes);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.end.set_class(slot, class);
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.end.deliver_whole(slot, block_bytes);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.end.unanswered(cid)
    }

    fn awaits_data(&mut self, slot: u16) -> bool {
        self.end.awaits_data(slot)
    }

    fn reserve(&mut self, slot: u16, sqe: &Sqe, data: &[u8]) {
        let cntlid = self.ids().map_or(0, |(cntlid, _)| cntlid);
        self.process.reserve(cntlid, sqe, data, (self.reactor, (self.conn, slot)));
    }

    fn has_data_digest(&self) -> bool {
        self.end.has_data_digest()
    }

    fn set_in_store(&mut self, commands: u32) {
        self.end.set_in_store(commands);
    }

    fn start(&mut self, slot: u16, job: Job<'_, Namespace, Buffer>) -> Option<Outcome<Buffer>> {
        if let Job::CompareAndWrite { compare, write, namespace, buffers } = job {
            return self.compare_and_write(slot, (&compare, &write), namespace, buffers);
        }
        if let Job::LookUp { wanted, mut buffer } = job {
            // The disk does not know.
            buffer.iter_mut().for_each(|buffer| wanted.call_allocated(buffer));
            return Some(Outcome::new(Ok(()), buffer));
        }
        let Job::Execute { command, namespace, mut buffer } = job else { return self.flush(slot) };
        if let Some(status) = self.refuses() {
            return Some(Outcome::new(Err(status), buffer));
        }
        if namespace.nsid != 1 {
            buffer.iter_mut().for_each(|buffer| buffer.fill(self.stores.extra_store));
            return Some(Outcome::new(Ok(()), buffer));
        }
        let bytes = buffer.as_deref().map_or(0, <[u8]>::len);
        let place = (self.stores.flushes.clone(), &namespace.geometry);
        let task = Task::execute(&command, place, buffer, self.session.user());
        self.stores.start(self.now, (self.reactor, self.conn, slot), bytes, task)
    }

    /// The disk is not to be hurried: only what has not begun ends by that.
    fn cancel(&mut self, slot: u16) -> bool {
        let is_it = |entry: &&mut Entry| (entry.conn, entry.slot) == (self.conn, slot);
        let entry = self.stores.entries.values_mut().find(is_it);
        entry.map(|entry| entry.task.cancel()).is_some()
    }

    fn quiesce(&mut self) -> bool {
        self.ids().is_none_or(|(cntlid, _)| self.process.quiesce(cntlid))
    }

    fn quiesced(&mut self) {
        self.session.queue().into_iter().for_each(|own| self.process.quiesced(own));
    }

    fn shut_down(&mut self, flushed: Result<(), Status>) {
        if let (Ok(()), Some(user)) = (flushed, self.session.user()) {
            self.stores.stability.borrow_mut().part(self.now, user);
        }
    }

    fn aborted(&mut self, id: u32, aborted: bool) {
        self.ids().into_iter().for_each(|(cntlid, _)| self.process.aborted(cntlid, id, aborted));
    }
}

fn sabotaged(work: Work, sabotage: Option<Sabotage>) -> Work {
    match (work, sabotage) {
        (Work::Write { slba, data, .. }, Some(Sabotage::IgnoredFua)) => {
            Work::Write { slba, data, fua: false }
        }
        (Work::Write { slba, mut data, fua }, Some(Sabotage::TornBlock)) => {
            data[BLOCK_BYTES / 2..BLOCK_BYTES].fill(0);
            Work::Write { slba, data, fua }
        }
        (work, _) => work,
    }
}

/// What the disk does for an operation with `data`.
fn work(op: &Op, data: &[u8]) -> Work {
    let lba = |offset: u64| offset / BLOCK_BYTES as u64;
    match *op {
        Op::Read { offset } | Op::Compare { offset } => {
            Work::Read { slba: lba(offset), blocks: lba(data.len() as u64) }
        }
        Op::Write { offset, fua } => Work::Write { slba: lba(offset), data: data.to_vec(), fua },
        Op::WriteZeroes { range, .. } | Op::Discard { range } => {
            let (slba, data) = (lba(range.offset), vec![0; range.len as usize]);
            Work::Write { slba, data, fua: false }
        }
        Op::Flush => Work::Flush,
        Op::ReadInPlace { .. } | Op::LookUp { .. } => unreachable!("no host asks for it"),
    }
}
