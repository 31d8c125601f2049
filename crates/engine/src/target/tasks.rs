//! Commands in the backends. A task stays here until the kernel is done with its buffer, whatever becomes of
//! the lane that started it.
//!
//! An emulated SSD's commands wait here, too: their data is moved when their time has come. The reactor looks
//! each turn ([`Tasks::expire`]) and sleeps no longer than [`Tasks::next_due`], so that waiting costs neither
//! a thread nor a system call.
//!
//! A file or device is flushed once at a time, over all reactors: a flush that comes meanwhile waits here for
//! the next one, which another reactor may do for it ([`Tasks::woken`]).

use super::due::DueQueue;
use crate::backend::{Backend, ByteRange, IoOp, IoTask, Progress, Waker};
use crate::buffer::Buffer;
use crate::clock;
use crate::ring::{Ring, UserData};
use roadtrain_proto::target::io::{DSM_RANGE_BYTES, IoCommand};
use roadtrain_proto::target::stability::{Flushed, Ticket, User, Wake};
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Marks a task's completions in the ring.
pub(super) const KIND: u8 = 16;
/// Marks the kernel's answer when it was asked to give a task up: there is no such task.
const CANCELLED: u64 = UserData { kind: KIND, index: u32::MAX, generation: 0 }.pack();
/// What a controller is told whose writes may be lost. To try again would not bring them back.
const LOST: Status = Status::WRITE_FAULT.dnr();
/// Octets that a Compare reads at once.
const COMPARE_BYTES: usize = 64 << 10;

/// Whose command it is: lane index and use, slot.
pub(super) type Owner = ((u32, u32), u16);

/// What there is to do.
pub(super) enum Job {
    /// An I/O command of one namespace; a Flush is `user`'s.
    Execute {
        command: IoCommand,
        backend: Arc<Backend>,
        buffer: Option<Buffer>,
        user: Option<Arc<User>>,
    },
    /// The lane moves the data itself; only an emulated SSD's time has to pass.
    Wait(Arc<Backend>),
    /// Flushes them for `user`, one after the other, whatever one of them says.
    FlushAll { backends: Vec<Arc<Backend>>, user: Option<Arc<User>> },
}

/// A finished command.
pub(super) struct Outcome {
    pub(super) result: Result<(), Status>,
    pub(super) buffer: Option<Buffer>,
}

struct Entry {
    /// `None`: the lane moves the data itself, only the time has to pass.
    task: Option<IoTask>,
    owner: Owner,
    /// Keeps the backend open.
    backend: Arc<Backend>,
    /// A flush of every namespace: those still to come.
    rest: Vec<Arc<Backend>>,
    /// The command's buffer, when the operation itself does not need it.
    spare: Option<Buffer>,
    /// The host has aborted it: nothing more is begun.
    is_cancelled: bool,
    /// Whose flush it is.
    user: Option<Arc<User>>,
    /// A flush of a store that others use, under way.
    flush: Option<Flush>,
    /// What follows when the task is done: Force Unit Access is a flush before or after the operation.
    then: Option<IoTask>,
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
    /// An error: the command that cannot be, with its buffer.
    fn new(owner: Owner, job: Job) -> Result<Entry, Outcome> {
        let (mut then, mut whose) = (None, None);
        let (task, backend, rest, spare) = match job {
            Job::Execute { command, backend, buffer, user } => {
                let (mut op, spare) = operation(&command, &backend, buffer)
                    .map_err(|(status, buffer)| Outcome { result: Err(status), buffer })?;
                let is_late = command.looks_at_stable_data() && backend.flushes().is_some();
                if let (IoOp::WriteZeroes { fua, .. }, Some(_)) = (&mut op, backend.flushes()) {
                    then = std::mem::take(fua).then(|| IoTask::new(IoOp::Flush));
                }
                let mut task = IoTask::new(op);
                if is_late {
                    then = Some(std::mem::replace(&mut task, IoTask::new(IoOp::Flush)));
                } else if task.is_flush() {
                    whose = user;
                }
                (Some(task), backend, Vec::new(), spare)
            }
            Job::Wait(backend) => (None, backend, Vec::new(), None),
            Job::FlushAll { mut backends, user } => match backends.pop() {
                Some(backend) => {
                    whose = user;
                    (Some(IoTask::new(IoOp::Flush)), backend, backends, None)
                }
                None => return Err(Outcome { result: Ok(()), buffer: None }),
            },
        };
        let (user, flush, failed, is_cancelled) = (whose, None, None, false);
        Ok(Entry { task, owner, backend, rest, spare, is_cancelled, user, flush, then, failed })
    }

    fn start(&mut self, ring: &mut Ring, index: u32, waker: &Waker) -> Progress {
        if let Some(flushes) = self.backend.flushes()
            && !self.is_cancelled
            && self.task.as_ref().is_some_and(IoTask::is_flush)
        {
            let ticket = self.user.as_ref().map(|user| flushes.begin(user));
            let leads = flushes.join(index, waker);
            self.flush = Some(Flush { ticket, leads });
            if !leads {
                return Progress::Pending;
            }
        }
        self.run(ring, index)
    }

    fn run(&mut self, ring: &mut Ring, index: u32) -> Progress {
        if self.is_cancelled {
            return Progress::Done(Err(Status::ABORT_REQUESTED));
        }
        let user_data = UserData { kind: KIND, index, generation: 0 }.pack();
        match &mut self.task {
            Some(task) => task.start(&self.backend, ring, user_data),
            None => Progress::Done(Ok(())),
        }
    }

    /// The operation has ended: what its command is told of that.
    fn end(&mut self, result: Result<(), Status>) -> Result<(), Status> {
        let Some(flushes) = self.backend.flushes() else { return result };
        let Some(Flush { ticket, leads }) = self.flush.take() else {
            if result.is_err() && self.task.as_ref().is_some_and(IoTask::took_report) {
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
            self.backend = next;
        }
        self.task = self.then.take().or_else(|| Some(IoTask::new(IoOp::Flush)));
        true
    }
}

pub(super) struct Tasks {
    /// Brings what a flush elsewhere has done to [`Tasks::woken`].
    waker: Waker,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    due: DueQueue,
}

impl Tasks {
    pub(super) fn new(waker: Waker) -> Self {
        Tasks { waker, entries: Vec::new(), free: Vec::new(), due: DueQueue::default() }
    }

    /// Starts a command; `None`: it ends later.
    pub(super) fn start(&mut self, ring: &mut Ring, owner: Owner, job: Job) -> Option<Outcome> {
        let entry = match Entry::new(owner, job) {
            Ok(entry) => entry,
            Err(outcome) => return Some(outcome),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        self.entries[index as usize] = Some(entry);
        let progress = self.launch(ring, index);
        self.advance(ring, index, progress)
    }

    /// Starts a task, at once or when its time has come.
    fn launch(&mut self, ring: &mut Ring, index: u32) -> Progress {
        let Some(entry) = &mut self.entries[index as usize] else { return Progress::Pending };
        match entry.backend.station() {
            Some(station) => {
                self.due.push(station.admit(clock::now()), index);
                Progress::Pending
            }
            None => entry.start(ring, index, &self.waker),
        }
    }

    /// Asks to end a command: what has not begun is not done, and what the kernel has it is asked to give up. It
    /// ends as ever, aborted or otherwise. `false`: it is not here.
    pub(super) fn cancel(&mut self, ring: &mut Ring, owner: Owner) -> bool {
        let is_it =
            |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.owner == owner);
        let Some(index) = self.entries.iter().position(is_it) else { return false };
        let Some(entry) = &mut self.entries[index] else { return false };
        entry.is_cancelled = true;
        if !self.due.hasten(index as u32)
            && let Some(task) = &mut entry.task
        {
            task.cancel(ring, CANCELLED);
        }
        true
    }

    /// A completion of the ring; the command's owner and outcome when it has ended.
    pub(super) fn resume(
        &mut self,
        ring: &mut Ring,
        index: u32,
        result: i32,
    ) -> Option<(Owner, Outcome)> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        let owner = entry.owner;
        let progress = entry.task.as_mut()?.resume(result, ring);
        self.advance(ring, index, progress).map(|outcome| (owner, outcome))
    }

    /// A flush for which a command waits has ended, or the command is to flush itself; its owner and outcome
    /// when it has ended by that.
    pub(super) fn woken(
        &mut self,
        ring: &mut Ring,
        index: u32,
        wake: Wake,
    ) -> Option<(Owner, Outcome)> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        let (owner, flush) = (entry.owner, entry.flush.as_mut()?);
        let progress = match wake {
            Wake::Lead => {
                flush.leads = true;
                entry.run(ring, index)
            }
            Wake::Ended(Flushed::Done) => Progress::Done(Ok(())),
            Wake::Ended(_) => Progress::Done(Err(LOST)),
        };
        self.advance(ring, index, progress).map(|outcome| (owner, outcome))
    }

    /// Does what is due by `now`: the owner and outcome of the first command that ends by that.
    pub(super) fn expire(&mut self, ring: &mut Ring, now: Instant) -> Option<(Owner, Outcome)> {
        while let Some(index) = self.due.pop(now) {
            let Some(entry) = &mut self.entries[index as usize] else { continue };
            let owner = entry.owner;
            let progress = entry.start(ring, index, &self.waker);
            if let Some(outcome) = self.advance(ring, index, progress) {
                return Some((owner, outcome));
            }
        }
        None
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.next()
    }

    fn advance(&mut self, ring: &mut Ring, index: u32, mut progress: Progress) -> Option<Outcome> {
        loop {
            let Progress::Done(result) = progress else { return None };
            let entry = self.entries[index as usize].as_mut()?;
            let result = entry.end(result);
            if !entry.goes_on(result) {
                let result = entry.failed.map_or(Ok(()), Err);
                if let Some(then) = entry.then.take() {
                    entry.task = Some(then); // it has the buffer
                }
                let buffer = match entry.task.as_mut().and_then(IoTask::take_op) {
                    Some(IoOp::Read { buffer, .. } | IoOp::Write { buffer, .. }) => Some(buffer),
                    Some(IoOp::Compare { expected, .. }) => Some(expected),
                    _ => entry.spare.take(),
                };
                self.entries[index as usize] = None;
                self.free.push(index);
                return Some(Outcome { result, buffer });
            }
            progress = self.launch(ring, index);
        }
    }

    /// Tasks under way.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Of these, those that the ring will tell of.
    pub(super) fn in_ring(&self) -> usize {
        self.count() - self.due.len()
    }
}

impl Drop for Tasks {
    /// The kernel may still use the buffers of tasks that did not end: they are lost rather than reused.
    fn drop(&mut self) {
        if self.count() > 0 {
            tracing::warn!(count = self.count(), "the backend does not answer");
            std::mem::forget(std::mem::take(&mut self.entries));
        }
    }
}

type Failed = (Status, Option<Buffer>);

/// The backend's operation for a command, and the buffer that it does not need any more.
fn operation(
    command: &IoCommand,
    backend: &Backend,
    buffer: Option<Buffer>,
) -> Result<(IoOp, Option<Buffer>), Failed> {
    let missing = (Status::INTERNAL_ERROR, None);
    Ok(match *command {
        IoCommand::Read { offset, .. } => {
            (IoOp::Read { offset, buffer: buffer.ok_or(missing)? }, None)
        }
        IoCommand::Write { offset, fua, .. } => {
            (IoOp::Write { offset, buffer: buffer.ok_or(missing)?, fua }, None)
        }
        IoCommand::Compare { offset, length, .. } => {
            let scratch = (!backend.is_immediate())
                .then(|| Buffer::alloc((length as usize).min(COMPARE_BYTES)));
            (IoOp::Compare { offset, expected: buffer.ok_or(missing)?, scratch }, None)
        }
        IoCommand::WriteZeroes { offset, length, deallocate, fua } => {
            let range = ByteRange { offset, len: length };
            (IoOp::WriteZeroes { range, fua, deallocate }, buffer)
        }
        IoCommand::DatasetManagement { ranges: count, deallocate, .. } => {
            let list = buffer.ok_or(missing)?;
            match ranges(&list, count, backend) {
                Ok(ranges) if deallocate => (IoOp::Discard { ranges }, Some(list)),
                Ok(_) => (IoOp::Discard { ranges: Box::default() }, Some(list)),
                Err(status) => return Err((status, Some(list))),
            }
        }
        IoCommand::Flush => (IoOp::Flush, buffer),
    })
}

/// The first `count` ranges of a Dataset Management command, checked against the capacity.
fn ranges(list: &[u8], count: u32, backend: &Backend) -> Result<Box<[ByteRange]>, Status> {
    let geometry = backend.geometry();
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
    use crate::backend::{BackendKind, BackendSpec};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(3600);

    struct Rig {
        ring: Ring,
        tasks: Tasks,
        ssd: Arc<Backend>,
    }

    impl Rig {
        fn new(parallel: u16) -> Rig {
            let kind = BackendKind::Ssd { size: 1 << 20, service: LONG, parallel };
            let spec = BackendSpec { kind, lba_bytes: 512, read_only: false };
            Rig {
                ring: Ring::new(4).unwrap(),
                tasks: Tasks::new(Arc::new(|_, _| false)),
                ssd: Arc::new(Backend::open(&spec).unwrap()),
            }
        }

        fn start(&mut self, slot: u16, command: &IoCommand, buffer: Option<Buffer>) {
            let (command, backend) = (*command, self.ssd.clone());
            let job = Job::Execute { command, backend, buffer, user: None };
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
            let start = self.ssd.read_range(0, 512).unwrap();
            // SAFETY: the backend's own, which only this thread uses.
            unsafe { *start }
        }
    }

    #[test]
    fn an_emulated_ssd_moves_data_when_its_time_has_come() {
        let mut rig = Rig::new(1);
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        let write = IoCommand::Write { offset: 0, length: 512, fua: false };
        let begin = clock::now();
        rig.start(0, &write, Some(buffer));
        let due = rig.tasks.next_due().unwrap();
        assert!(due >= begin + LONG);
        assert_eq!((rig.expire(Instant(due.0 - 1)), rig.first_octet()), (vec![], 0));
        assert_eq!((rig.tasks.count(), rig.tasks.in_ring()), (1, 0));
        assert_eq!((rig.expire(due), rig.first_octet()), (vec![0], 7));
        assert_eq!((rig.tasks.count(), rig.tasks.next_due()), (0, None));
    }

    #[test]
    fn what_waits_for_an_emulated_ssd_can_be_cancelled() {
        let mut rig = Rig::new(1);
        let write = IoCommand::Write { offset: 0, length: 512, fua: false };
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        rig.start(0, &write, Some(buffer));
        rig.start(1, &IoCommand::Flush, None);
        assert!(rig.tasks.cancel(&mut rig.ring, ((0, 0), 0)));
        assert!(!rig.tasks.cancel(&mut rig.ring, ((0, 1), 1)), "another use of the lane");
        let ended = rig.tasks.expire(&mut rig.ring, clock::now());
        let ((_, slot), outcome) = ended.expect("it ends at once");
        assert_eq!((slot, outcome.result), (0, Err(Status::ABORT_REQUESTED)));
        assert!(outcome.buffer.is_some() && rig.first_octet() == 0, "it was not written");
        assert_eq!(rig.expire(Instant(u64::MAX)), [1]);
    }

    /// The kernel has it, and gives it up: a pipe into which nobody writes.
    #[test]
    fn what_the_kernel_has_can_be_cancelled() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        crate::target::tests::make_fifo(&path);
        let kind = BackendKind::Fifo { path, size: 1 << 20 };
        let spec = BackendSpec { kind, lba_bytes: 512, read_only: false };
        let backend = Arc::new(Backend::open(&spec).unwrap());
        let (mut ring, mut tasks) = (Ring::new(4).unwrap(), Tasks::new(Arc::new(|_, _| false)));
        for round in 0..3 {
            let command = IoCommand::Read { offset: 0, length: 4096, fua: false };
            let buffer = Some(Buffer::alloc(4096));
            let backend = backend.clone();
            let job = Job::Execute { command, backend, buffer, user: None };
            assert!(tasks.start(&mut ring, ((0, 0), round), job).is_none());
            ring.submit_and_wait(0, None).unwrap();
            assert!(tasks.cancel(&mut ring, ((0, 0), round)));
            let outcome = loop {
                ring.submit_and_wait(1, Some(Duration::from_secs(60))).unwrap();
                let cqe = ring.next_completion().expect("the kernel gives it up");
                let index = UserData::unpack(cqe.user_data).index;
                if let Some((_, outcome)) = tasks.resume(&mut ring, index, cqe.result) {
                    break outcome;
                }
            };
            assert_eq!(outcome.result, Err(Status::ABORT_REQUESTED));
            assert!(outcome.buffer.is_some() && tasks.count() == 0);
        }
    }

    #[test]
    fn an_emulated_ssd_takes_every_command_in_turn() {
        let mut rig = Rig::new(2);
        let begin = clock::now();
        for slot in 0..4 {
            rig.start(slot, &IoCommand::Flush, None);
        }
        let ssd = rig.ssd.clone();
        rig.begin(4, Job::Wait(ssd.clone()));
        rig.begin(5, Job::FlushAll { backends: vec![ssd.clone(), ssd], user: None });
        let soon = begin + LONG / 2;
        assert_eq!(rig.expire(soon + LONG), [0, 1]);
        assert_eq!(rig.expire(soon + LONG * 2), [2, 3]);
        assert_eq!(rig.expire(soon + LONG * 3), [4]);
        assert_eq!(rig.tasks.count(), 1, "the flush is at its second namespace");
        assert_eq!(rig.expire(Instant(u64::MAX)), [5]);
    }
}
