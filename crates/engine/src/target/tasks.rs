//! Commands in the stores. What is under way there is the executor's; here is whose command it is, and what follows
//! when a part of it has ended.
//!
//! A store that loses what was not flushed is flushed once at a time, over all reactors: a flush that comes meanwhile
//! waits here for the next one, which another reactor may do for it ([`Tasks::woken`]).

use super::flushes::Waker;
use super::open_store::OpenStore;
use crate::buffer::Buffer;
use crate::ring::{Ring, UserData};
use roadtrain_proto::target::execution;
use roadtrain_proto::target::io::{DSM_RANGE_BYTES, IoCommand};
use roadtrain_proto::target::stability::{Flushed, Ticket, User, Wake};
use roadtrain_proto::time::Instant;
use roadtrain_store::{ByteRange, Completion, Completions, Executor, Geometry, Op, Token};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a controller is told whose writes may be lost. To try again would not bring them back.
const LOST: Status = Status::WRITE_FAULT.dnr();

/// Whose command it is: lane index and use, slot.
pub(super) type Owner = ((u32, u32), u16);

/// What there is to do.
pub(super) enum Job {
    /// An I/O command of one namespace; a Flush is `user`'s.
    Execute {
        command: IoCommand,
        store: Arc<OpenStore>,
        buffer: Option<Buffer>,
        user: Option<Arc<User>>,
    },
    /// The lane moves the data itself, when the store says so.
    Announce(Arc<OpenStore>, ByteRange),
    /// Flushes them for `user`, one after the other, whatever one of them says.
    FlushAll { stores: Vec<Arc<OpenStore>>, user: Option<Arc<User>> },
}

/// What has become of a command.
pub(super) type Outcome = execution::Outcome<Buffer>;

/// A finished command and whose it is.
pub(super) type Ended = (Owner, Outcome);

struct Entry {
    owner: Owner,
    /// Keeps the store open.
    store: Arc<OpenStore>,
    /// What is submitted next.
    op: Option<Op>,
    /// What follows when that is done: Force Unit Access is a flush before or after the operation.
    then: Option<Op>,
    /// A flush of every namespace: those still to come.
    rest: Vec<Arc<OpenStore>>,
    /// The command's buffer while no operation has it.
    buffer: Option<Buffer>,
    /// Octets that the buffer is to have when a read has ended well.
    reads: usize,
    /// The host has aborted it: nothing more is begun.
    is_cancelled: bool,
    /// Whose flush it is.
    user: Option<Arc<User>>,
    /// A flush of a store that others use, under way.
    flush: Option<Flush>,
    /// The first failure of a flush of every namespace.
    failed: Option<Status>,
}

struct Flush {
    /// `None`: nobody's but its own command's.
    ticket: Option<Ticket>,
    /// It flushes itself.
    leads: bool,
}

impl Entry {
    fn new(owner: Owner, store: Arc<OpenStore>, op: Op) -> Entry {
        Entry {
            owner,
            store,
            op: Some(op),
            then: None,
            rest: Vec::new(),
            buffer: None,
            reads: 0,
            is_cancelled: false,
            user: None,
            flush: None,
            failed: None,
        }
    }

    /// An error: the command that cannot be, with its buffer.
    fn of(owner: Owner, job: Job) -> Result<Entry, Outcome> {
        match job {
            Job::Execute { command, store, buffer, user } => {
                Entry::execute(owner, &command, store, buffer, user)
            }
            Job::Announce(store, range) => Ok(Entry::new(owner, store, Op::ReadInPlace { range })),
            Job::FlushAll { stores: mut rest, user } => match rest.pop() {
                Some(store) => Ok(Entry { rest, user, ..Entry::new(owner, store, Op::Flush) }),
                None => Err(Outcome { result: Ok(()), buffer: None }),
            },
        }
    }

    fn execute(
        owner: Owner,
        command: &IoCommand,
        store: Arc<OpenStore>,
        buffer: Option<Buffer>,
        user: Option<Arc<User>>,
    ) -> Result<Entry, Outcome> {
        let op = match operation(command, &store, buffer.as_ref()) {
            Ok(op) => op,
            Err(status) => return Err(Outcome { result: Err(status), buffer }),
        };
        let loses = store.flushes().is_some();
        let user = user.filter(|_| op == Op::Flush);
        let reads = match *command {
            IoCommand::Read { length, .. } => length as usize,
            _ => 0,
        };
        let mut entry = Entry { buffer, reads, user, ..Entry::new(owner, store, op) };
        if command.reads_stable_data() && loses {
            entry.then = entry.op.replace(Op::Flush);
        } else if let (Some(Op::WriteZeroes { fua, .. }), true) = (&mut entry.op, loses) {
            entry.then = std::mem::take(fua).then_some(Op::Flush);
        }
        Ok(entry)
    }

    /// Whether the next operation is to be submitted now: a flush may have to wait for another one.
    fn may_begin(&mut self, index: u32, waker: &Waker) -> bool {
        let Some(flushes) = self.store.flushes() else { return true };
        if self.is_cancelled || self.op != Some(Op::Flush) {
            return true;
        }
        let ticket = self.user.as_ref().map(|user| flushes.begin(user));
        let leads = flushes.join(index, waker);
        self.flush = Some(Flush { ticket, leads });
        leads
    }

    /// An operation has ended: what its command is told of that.
    fn end(&mut self, result: Result<(), Status>, took_report: bool) -> Result<(), Status> {
        let Some(flushes) = self.store.flushes() else { return result };
        let Some(Flush { ticket, leads }) = self.flush.take() else {
            if result.is_err() && took_report {
                flushes.failed();
            }
            return result;
        };
        let flushed = match result {
            Ok(()) => Flushed::Done,
            Err(status) if status.is(Status::ABORT_REQUESTED) => Flushed::NotRun,
            Err(_) => Flushed::Failed,
        };
        if leads {
            flushes.ended(flushed);
        }
        let is_good = ticket.is_none_or(|ticket| flushes.settle(ticket, flushed));
        // An earlier flush has failed, and this controller hears of it now.
        if is_good { result } else { result.and(Err(LOST)) }
    }

    /// Whether there is more to do for the command, of which a part has ended.
    fn goes_on(&mut self, result: Result<(), Status>) -> bool {
        self.failed = self.failed.or(result.err());
        let has_more = !self.rest.is_empty() || self.then.is_some() && result.is_ok();
        if has_more && self.is_cancelled {
            self.failed = self.failed.or(Some(Status::ABORT_REQUESTED));
        }
        if !has_more || self.is_cancelled {
            return false;
        }
        if let Some(next) = self.rest.pop() {
            self.store = next;
        }
        self.op = self.then.take().or(Some(Op::Flush));
        true
    }

    fn outcome(&mut self) -> Outcome {
        let is_whole = self.buffer.as_ref().map_or(0, |buffer| buffer.len()) >= self.reads;
        let result = match self.failed {
            Some(status) => Err(status),
            None if is_whole => Ok(()),
            None => Err(Status::INTERNAL_ERROR), // the store has kept what it was to fill
        };
        Outcome { result, buffer: self.buffer.take() }
    }
}

pub(super) struct Tasks {
    /// Brings what a flush elsewhere has done to [`Tasks::woken`].
    waker: Waker,
    executor: Executor,
    entries: Vec<Option<Entry>>,
    /// Which use of its place an entry is.
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Commands that have ended while another one was begun.
    ended: VecDeque<Ended>,
}

impl Tasks {
    /// Answers of stores from other threads go by `completions` to [`Tasks::completed`].
    pub(super) fn new(waker: Waker, completions: Completions) -> Self {
        Tasks {
            waker,
            executor: Executor::new(completions),
            entries: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    /// Starts a command; `None`: it ends later.
    pub(super) fn start(&mut self, ring: &mut Ring, owner: Owner, job: Job) -> Option<Outcome> {
        let entry = match Entry::of(owner, job) {
            Ok(entry) => entry,
            Err(outcome) => return Some(outcome),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.generations.push(0);
            (self.entries.len() - 1) as u32
        });
        self.entries[index as usize] = Some(entry);
        self.launch(ring, index);
        while let Some(completion) = self.executor.next(ring) {
            let is_it = completion.token.parts().0 == index;
            let Some(ended) = self.advance(ring, completion) else { continue };
            if is_it {
                return Some(ended.1);
            }
            self.ended.push_back(ended);
        }
        None
    }

    /// Submits a command's next operation, unless it has to wait for another one's flush.
    fn launch(&mut self, ring: &mut Ring, index: u32) {
        let Some(entry) = &mut self.entries[index as usize] else { return };
        if entry.may_begin(index, &self.waker) {
            self.run(ring, index);
        }
    }

    fn run(&mut self, ring: &mut Ring, index: u32) {
        let token = self.token(index);
        let Some(entry) = &mut self.entries[index as usize] else { return };
        let Some(op) = entry.op.take().filter(|_| !entry.is_cancelled) else {
            let aborted = Err(Status::ABORT_REQUESTED);
            return self.executor.complete(Completion::new(token, aborted, None));
        };
        let moves = matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Compare { .. });
        let mut buffer = if moves { entry.buffer.take() } else { None };
        if !entry.store.takes_lent() {
            buffer = buffer.map(own);
        }
        self.executor.submit(ring, &**entry.store.store(), (op, buffer), token);
    }

    fn token(&self, index: u32) -> Token {
        Token::new(index, self.generations[index as usize])
    }

    /// Asks to end a command: what has not begun is not done, and what its store has it is asked to give up. It
    /// ends as ever, aborted or otherwise. `false`: it is not here.
    pub(super) fn cancel(&mut self, ring: &mut Ring, owner: Owner) -> bool {
        let is_it =
            |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.owner == owner);
        let Some(index) = self.entries.iter().position(is_it) else { return false };
        let token = self.token(index as u32);
        let Some(entry) = &mut self.entries[index] else { return false };
        entry.is_cancelled = true;
        entry.store.store().cancel(token);
        self.executor.cancel(ring, token);
        true
    }

    /// A completion of the ring; the command's owner and outcome when one has ended.
    pub(super) fn resume(&mut self, ring: &mut Ring, index: u32, result: i32) -> Option<Ended> {
        self.executor.resume(ring, index, result);
        self.next(ring)
    }

    /// A store has answered from another thread.
    pub(super) fn completed(&mut self, ring: &mut Ring, completion: Completion) -> Option<Ended> {
        self.executor.complete(completion);
        self.next(ring)
    }

    /// A flush for which a command waits has ended, or the command is to flush itself; its owner and outcome
    /// when one has ended by that.
    pub(super) fn woken(&mut self, ring: &mut Ring, index: u32, wake: Wake) -> Option<Ended> {
        let flush = self.entries.get_mut(index as usize)?.as_mut()?.flush.as_mut()?;
        let result = match wake {
            Wake::Lead => {
                flush.leads = true;
                self.run(ring, index);
                return self.next(ring);
            }
            Wake::Ended(Flushed::Done) => Ok(()),
            Wake::Ended(_) => Err(LOST),
        };
        self.executor.complete(Completion::new(self.token(index), result, None));
        self.next(ring)
    }

    /// Does what is due by `now`: the owner and outcome of the first command that has ended. To be called until there
    /// is none.
    pub(super) fn expire(&mut self, ring: &mut Ring, now: Instant) -> Option<Ended> {
        self.executor.expire(ring, now);
        self.next(ring)
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.ended.is_empty() { self.executor.next_due() } else { Some(Instant::default()) }
    }

    /// The next command that has ended.
    fn next(&mut self, ring: &mut Ring) -> Option<Ended> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        loop {
            let completion = self.executor.next(ring)?;
            if let Some(ended) = self.advance(ring, completion) {
                return Some(ended);
            }
        }
    }

    /// A store has answered: the command's owner and outcome if that was all.
    fn advance(&mut self, ring: &mut Ring, completion: Completion) -> Option<Ended> {
        let (index, generation) = completion.token.parts();
        let is_expected = self.generations.get(index as usize) == Some(&generation);
        let Some(Some(entry)) = self.entries.get_mut(index as usize).filter(|_| is_expected) else {
            tracing::error!(?completion, "a store has answered twice");
            return None;
        };
        let Completion { result, buffer, took_report, .. } = completion;
        entry.buffer = buffer.or(entry.buffer.take());
        let result = entry.end(result, took_report);
        self.generations[index as usize] = (generation + 1) & UserData::GENERATION_MASK;
        if entry.goes_on(result) {
            self.launch(ring, index);
            return None;
        }
        let ended = (entry.owner, entry.outcome());
        self.entries[index as usize] = None; // where it is: it is large
        self.free.push(index);
        Some(ended)
    }

    /// Tasks under way.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Of these, those that the ring will tell of.
    pub(super) fn in_ring(&self) -> usize {
        self.count().saturating_sub(self.executor.waiting())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if self.count() > 0 {
            tracing::warn!(count = self.count(), "the store does not answer");
        }
    }
}

/// The same octets where nobody else writes.
fn own(buffer: Buffer) -> Buffer {
    if !buffer.is_lent() {
        return buffer;
    }
    let mut own = Buffer::alloc(buffer.len());
    own.copy_from_slice(&buffer);
    own
}

/// A store's operation for a command.
fn operation(
    command: &IoCommand,
    store: &OpenStore,
    buffer: Option<&Buffer>,
) -> Result<Op, Status> {
    Ok(match *command {
        IoCommand::Read { offset, .. } => Op::Read { offset },
        IoCommand::Write { offset, fua, .. } => Op::Write { offset, fua },
        IoCommand::Compare { offset, .. } => Op::Compare { offset },
        IoCommand::WriteZeroes { offset, length, deallocate, fua } => {
            Op::WriteZeroes { range: ByteRange { offset, len: length }, fua, deallocate }
        }
        IoCommand::DatasetManagement { ranges: count, deallocate, .. } => {
            let list = buffer.ok_or(Status::INTERNAL_ERROR)?;
            let ranges = ranges(list, count, &store.store().geometry())?;
            Op::Discard { ranges: if deallocate { ranges } else { Box::default() } }
        }
        IoCommand::Flush => Op::Flush,
    })
}

/// The first `count` ranges of a Dataset Management command, checked against the capacity.
fn ranges(list: &[u8], count: u32, geometry: &Geometry) -> Result<Box<[ByteRange]>, Status> {
    let (entries, _) = list.as_chunks::<{ DSM_RANGE_BYTES as usize }>();
    let parse = |entry: &[u8; 16]| {
        let word = |at: usize| {
            u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
        };
        let (blocks, slba) = (u64::from(word(4)), u64::from(word(8)) | u64::from(word(12)) << 32);
        match slba.checked_add(blocks) {
            Some(end) if end <= geometry.blocks => Ok(ByteRange {
                offset: slba << geometry.lba_shift,
                len: blocks << geometry.lba_shift,
            }),
            _ => Err(Status::LBA_OUT_OF_RANGE.dnr()),
        }
    };
    let named = entries.iter().take(count as usize).map(parse);
    named.filter(|range| !matches!(range, Ok(r) if r.len == 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use roadtrain_store::{StoreKind, StoreSpec};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(3600);

    struct Harness {
        ring: Ring,
        tasks: Tasks,
        ssd: Arc<OpenStore>,
    }

    impl Harness {
        fn new(parallel: u16) -> Harness {
            let kind = StoreKind::Ssd { size: 1 << 20, service: LONG, parallel };
            let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
            Harness {
                ring: Ring::new(4).unwrap(),
                tasks: Tasks::new(Arc::new(|_, _| false), Completions::new(|_| false)),
                ssd: Arc::new(OpenStore::new(roadtrain_store::open(&spec).unwrap())),
            }
        }

        fn start(&mut self, slot: u16, command: &IoCommand, buffer: Option<Buffer>) {
            let (command, store) = (*command, self.ssd.clone());
            let job = Job::Execute { command, store, buffer, user: None };
            self.begin(slot, job);
        }

        fn begin(&mut self, slot: u16, job: Job) {
            let ended = self.tasks.start(&mut self.ring, ((0, 0), slot), job);
            assert!(ended.is_none(), "slot {slot} does not wait");
        }

        /// Slots that end by `now`, in order.
        fn expire(&mut self, now: Instant) -> Vec<u16> {
            let expire = || self.tasks.expire(&mut self.ring, now);
            let ended = std::iter::from_fn(expire).inspect(|(_, o)| assert!(o.result.is_ok()));
            ended.map(|((_, slot), _)| slot).collect()
        }

        fn first_octet(&self) -> u8 {
            let start = self.ssd.store().in_place().unwrap();
            let start = start.read_range(0, 512).unwrap();
            // SAFETY: the store's own, which only this thread uses.
            unsafe { *start }
        }
    }

    #[test]
    fn an_emulated_ssd_moves_data_when_its_time_has_come() {
        let mut harness = Harness::new(1);
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        let write = IoCommand::Write { offset: 0, length: 512, fua: false };
        let begin = clock::now();
        harness.start(0, &write, Some(buffer));
        let due = harness.tasks.next_due().unwrap();
        assert!(due >= begin + LONG);
        assert_eq!((harness.expire(Instant(due.0 - 1)), harness.first_octet()), (vec![], 0));
        assert_eq!((harness.tasks.count(), harness.tasks.in_ring()), (1, 0));
        assert_eq!((harness.expire(due), harness.first_octet()), (vec![0], 7));
        assert_eq!((harness.tasks.count(), harness.tasks.next_due()), (0, None));
    }

    #[test]
    fn what_waits_for_an_emulated_ssd_can_be_cancelled() {
        let mut harness = Harness::new(1);
        let write = IoCommand::Write { offset: 0, length: 512, fua: false };
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        harness.start(0, &write, Some(buffer));
        harness.start(1, &IoCommand::Flush, None);
        assert!(harness.tasks.cancel(&mut harness.ring, ((0, 0), 0)));
        assert!(!harness.tasks.cancel(&mut harness.ring, ((0, 1), 1)), "another use of the lane");
        let ended = harness.tasks.expire(&mut harness.ring, clock::now());
        let ((_, slot), outcome) = ended.expect("it ends at once");
        assert_eq!((slot, outcome.result), (0, Err(Status::ABORT_REQUESTED)));
        assert!(outcome.buffer.is_some() && harness.first_octet() == 0, "it was not written");
        assert_eq!(harness.expire(Instant(u64::MAX)), [1]);
    }

    #[test]
    fn a_command_goes_and_comes_with_its_buffer() {
        let kind = StoreKind::Memory { size: 1 << 20 };
        let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
        let store = Arc::new(OpenStore::new(roadtrain_store::open(&spec).unwrap()));
        let mut harness = Harness::new(1);
        let mut run = |job| {
            let outcome = harness.tasks.start(&mut harness.ring, ((3, 1), 9), job);
            outcome.expect("memory answers at once")
        };
        let job =
            |command, buffer| Job::Execute { command, store: store.clone(), buffer, user: None };
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        let write = IoCommand::Write { offset: 512, length: 512, fua: false };
        let written = run(job(write, Some(buffer)));
        assert!(written.result.is_ok() && written.buffer.is_some());
        let read = IoCommand::Read { offset: 512, length: 512, fua: false };
        assert_eq!(run(job(read, Some(Buffer::alloc(512)))).buffer.unwrap()[..], [7; 512]);
        assert!(run(job(read, None)).result.is_err(), "a read without a buffer");
        let spare = run(job(IoCommand::Flush, Some(Buffer::alloc(512))));
        assert!(spare.buffer.is_some(), "what the operation did not need");
        for stores in [vec![], vec![store.clone(); 2]] {
            assert!(run(Job::FlushAll { stores, user: None }).result.is_ok());
        }
        assert_eq!(harness.tasks.count(), 0);
    }

    #[test]
    fn an_emulated_ssd_takes_every_command_in_turn() {
        let mut harness = Harness::new(2);
        let begin = clock::now();
        for slot in 0..4 {
            harness.start(slot, &IoCommand::Flush, None);
        }
        let ssd = harness.ssd.clone();
        harness.begin(4, Job::Announce(ssd.clone(), ByteRange { offset: 0, len: 512 }));
        harness.begin(5, Job::FlushAll { stores: vec![ssd.clone(), ssd], user: None });
        let soon = begin + LONG / 2;
        assert_eq!(harness.expire(soon + LONG), [0, 1]);
        assert_eq!(harness.expire(soon + LONG * 2), [2, 3]);
        assert_eq!(harness.expire(soon + LONG * 3), [4]);
        assert_eq!(harness.tasks.count(), 1, "the flush is at its second namespace");
        assert_eq!(harness.expire(Instant(u64::MAX)), [5]);
    }
}
