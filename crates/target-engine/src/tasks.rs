//! Commands in the stores. The executor runs their operations, [`StoreTask`] has the steps of a command, and this
//! module has the owners.
//!
//! A flush of a store may wait for the flush of another reactor, which may cover it ([`Tasks::woken`]).

use super::exclusion::{
    CloseAcknowledgement, ClosedRange, ExclusionChannels, Exclusions, HeldBackWrite,
};
use super::flushes::Waker;
use super::open_store::OpenStore;
use super::range_locks::Grant;
use super::uncorrectable::{MarkWaiter, Uncorrectable};
use roadtrain_proto::time::Instant;
use roadtrain_store::{StoreCompletion, StoreCompletions, StoreExecutor, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::ReactorRing;
use roadtrain_system::slab::Slab;
use roadtrain_target_proto::execution::{self, TaskStep};
use roadtrain_target_proto::stability::Wake;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Owner of a command: index and generation of its lane, and its slot.
pub(super) type TaskOwner = ((u32, u32), u16);

/// Command in the stores.
pub(super) type StoreTask = execution::CommandTask<Arc<OpenStore>, Buffer>;

/// Outcome of a command.
pub(super) type TaskOutcome = execution::StoreOutcome<Buffer>;

/// Completed command and its owner.
pub(super) type CompletedTask = (TaskOwner, TaskOutcome);

pub(super) struct Tasks {
    /// Passes the result of another reactor's flush to [`Tasks::woken`].
    waker: Waker,
    executor: StoreExecutor,
    /// Passes completions from other threads to [`Tasks::completed`].
    completions: StoreCompletions,
    /// Exclusive ranges of this reactor and of others.
    pub(super) exclusions: Exclusions,
    /// Commands by index. Each operation of a command has its own generation.
    tasks: Slab<(TaskOwner, StoreTask)>,
    /// Commands that completed while another one was started.
    ended: VecDeque<CompletedTask>,
}

impl Tasks {
    /// Creates an empty table. `completions` passes completions of stores from other threads to [`Tasks::completed`].
    pub(super) fn new(
        waker: Waker,
        completions: StoreCompletions,
        channels: ExclusionChannels,
    ) -> Self {
        let (executor, tasks) = (StoreExecutor::new(completions.clone()), Slab::default());
        let exclusions = Exclusions::new(channels);
        Tasks { waker, executor, completions, exclusions, tasks, ended: VecDeque::new() }
    }

    /// Starts a command. Returns its outcome, or `None` if it completes later.
    pub(super) fn start(
        &mut self,
        ring: &mut ReactorRing,
        owner: TaskOwner,
        task: StoreTask,
    ) -> Option<TaskOutcome> {
        let index = self.tasks.insert((owner, task));
        self.begin(ring, index);
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

    /// Begins the next step of a command.
    fn begin(&mut self, ring: &mut ReactorRing, index: u32) {
        let Some((_, task)) = self.tasks.get_mut(index) else { return };
        let step = task.begin(|flushes| flushes.join(index, &self.waker));
        self.take(ring, index, step);
    }

    /// Executes a step of a command.
    fn take(&mut self, ring: &mut ReactorRing, index: u32, step: TaskStep<Buffer>) {
        let token = self.token(index);
        let Some((_, task)) = self.tasks.get_mut(index) else { return };
        match step {
            TaskStep::Submit(mut op, mut buffer) => {
                let store = task.store();
                if !self.exclusions.is_empty() {
                    let admitted = self.exclusions.hold_back(store, index, (op, buffer));
                    let Some(admitted) = admitted else { return };
                    (op, buffer) = admitted;
                }
                if !store.takes_lent() {
                    buffer = buffer.map(copy_if_lent);
                }
                store.store().submit(op, buffer, token, &mut self.executor.io(ring));
            }
            TaskStep::Wait => {}
            TaskStep::Mark(change) => {
                let completions = self.completions.clone();
                let waiter = MarkWaiter { token, completions };
                Uncorrectable::change(task.store(), change, Some(waiter));
            }
            TaskStep::Exclude(range) => self.exclusions.request(task.store(), index, range),
            TaskStep::Ended(result) => {
                self.executor.complete(StoreCompletion::new(token, result, None))
            }
        }
    }

    fn token(&self, index: u32) -> StoreToken {
        StoreToken::new(index, self.tasks.generation(index))
    }

    /// Requests the cancellation of a command: pending operations are dropped, and its store shall abort the others.
    /// The command completes as usual, aborted or not. Returns false if it is not in this table.
    pub(super) fn cancel(&mut self, ring: &mut ReactorRing, owner: TaskOwner) -> bool {
        let Some(index) = self.tasks.find(|(other, _)| *other == owner) else { return false };
        let token = self.token(index);
        let Some((_, task)) = self.tasks.get_mut(index) else { return false };
        task.cancel();
        if let Some(HeldBackWrite { buffer, .. }) = self.exclusions.forget(index) {
            let aborted = Err(Status::ABORT_REQUESTED);
            self.executor.complete(StoreCompletion::new(token, aborted, buffer));
            return true;
        }
        task.store().store().cancel(token);
        self.executor.cancel(ring, token);
        true
    }

    /// Requests the cancellation of all commands of a lane.
    pub(super) fn cancel_all(&mut self, ring: &mut ReactorRing, lane: (u32, u32)) {
        let own = self.tasks.iter().filter(|(_, (owner, _))| owner.0 == lane);
        let owners: Vec<TaskOwner> = own.map(|(_, (owner, _))| *owner).collect();
        for owner in owners {
            self.cancel(ring, owner);
        }
    }

    /// Handles a completion of the ring. Returns the command that has completed, if any.
    pub(super) fn resume(
        &mut self,
        ring: &mut ReactorRing,
        index: u32,
        result: i32,
    ) -> Option<CompletedTask> {
        self.executor.resume(ring, index, result);
        self.next(ring)
    }

    /// Handles a completion of a store from another thread.
    pub(super) fn completed(
        &mut self,
        ring: &mut ReactorRing,
        completion: StoreCompletion,
    ) -> Option<CompletedTask> {
        self.executor.complete(completion);
        self.next(ring)
    }

    /// Continues a command that waits for another flush: that has ended, or the command must flush itself. Returns the
    /// command that has completed, if any.
    pub(super) fn woken(
        &mut self,
        ring: &mut ReactorRing,
        index: u32,
        wake: Wake,
    ) -> Option<CompletedTask> {
        let step = self.tasks.get_mut(index)?.1.woken(wake);
        self.take(ring, index, step);
        self.next(ring)
    }

    /// Returns the owner of an operation.
    pub(super) fn owner(&self, index: u32) -> Option<TaskOwner> {
        self.tasks.get(index).map(|(owner, _)| *owner)
    }

    /// Continues an operation that waits for an exclusive range. `admitted` is the status once it has the range.
    pub(super) fn granted(
        &mut self,
        ring: &mut ReactorRing,
        (index, grant): (u32, Grant),
        admitted: Result<(), Status>,
    ) -> Option<CompletedTask> {
        match grant {
            Grant::Locked => self.exclusions.locked(index),
            Grant::Alone => {
                self.tasks.get_mut(index)?.1.excluded(admitted);
                self.begin(ring, index);
            }
        }
        self.next(ring)
    }

    /// Closes a range to writes. The caller drops the result once no in-place access changes the range.
    pub(super) fn close(
        &mut self,
        closed: &ClosedRange,
        closing: Arc<CloseAcknowledgement>,
    ) -> Option<Arc<CloseAcknowledgement>> {
        let tasks = &self.tasks;
        self.exclusions.close(closed, closing, |store, range| {
            let changes = |task: &StoreTask| {
                Arc::ptr_eq(task.store(), store)
                    && task.changes().is_some_and(|changed| changed.overlaps(range))
            };
            tasks.iter().filter(|(_, (_, task))| changes(task)).map(|(index, _)| index).collect()
        })
    }

    /// Opens a range, and begins the writes that were held back. [`Tasks::expire`] returns the commands that complete
    /// by that.
    pub(super) fn open(&mut self, ring: &mut ReactorRing, closed: &ClosedRange) {
        for (index, HeldBackWrite { op, buffer, .. }) in self.exclusions.open(closed) {
            self.take(ring, index, TaskStep::Submit(op, buffer));
        }
    }

    /// Runs what is due by `now`. Returns the first command that has completed. The caller repeats this until `None`.
    pub(super) fn expire(&mut self, ring: &mut ReactorRing, now: Instant) -> Option<CompletedTask> {
        self.executor.expire(ring, now);
        self.next(ring)
    }

    /// Returns the next time at which something is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.ended.is_empty() { self.executor.next_due() } else { Some(Instant::default()) }
    }

    /// Returns the next completed command.
    fn next(&mut self, ring: &mut ReactorRing) -> Option<CompletedTask> {
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

    /// Handles the completion of an operation. Returns the command if it has completed.
    fn advance(
        &mut self,
        ring: &mut ReactorRing,
        completion: StoreCompletion,
    ) -> Option<CompletedTask> {
        let (index, generation) = completion.token.parts();
        let is_expected = self.tasks.is_current(index, generation);
        let Some((owner, task)) = self.tasks.get_mut(index).filter(|_| is_expected) else {
            tracing::error!(?completion, "a store has completed an operation twice");
            return None;
        };
        let StoreCompletion { result, buffer, is_unforced, .. } = completion;
        if !self.exclusions.is_empty() {
            self.exclusions.ended(index);
        }
        let Some(outcome) = task.ended(result, buffer, is_unforced) else {
            self.tasks.renew(index);
            self.begin(ring, index);
            return None;
        };
        let (ended, is_alone) = ((*owner, outcome), task.is_exclusive());
        if is_alone {
            self.exclusions.release(index);
        }
        self.tasks.remove(index);
        Some(ended)
    }

    /// Returns the number of commands in the stores.
    pub(super) fn count(&self) -> usize {
        self.tasks.count()
    }

    /// Returns the number of those that wait for completions of the ring.
    pub(super) fn in_ring(&self) -> usize {
        self.count().saturating_sub(self.executor.waiting())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if self.count() > 0 {
            tracing::warn!(count = self.count(), "the store has not completed its commands");
        }
    }
}

/// Copies a lent buffer into one that no other party writes to.
fn copy_if_lent(buffer: Buffer) -> Buffer {
    if !buffer.is_lent() {
        return buffer;
    }
    let mut own = Buffer::alloc(buffer.len());
    own.copy_from_slice(&buffer);
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_store::{ByteRange, StoreKind, StoreSpec};
    use roadtrain_system::clock;
    use roadtrain_target_proto::io::{BlockGeometry, TargetIoCommand};
    use std::time::Duration;

    const GEOMETRY: BlockGeometry =
        BlockGeometry { lba_shift: 9, blocks: 2048, read_only: false, transfer_bytes_max: 1 << 20 };

    const LONG: Duration = Duration::from_secs(3600);

    struct TasksHarness {
        ring: ReactorRing,
        tasks: Tasks,
        ssd: Arc<OpenStore>,
    }

    impl TasksHarness {
        fn new(parallel: u16) -> TasksHarness {
            let kind = StoreKind::Ssd { size: 1 << 20, service: LONG, parallel };
            let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
            TasksHarness {
                ring: ReactorRing::new(4).unwrap(),
                tasks: Tasks::new(
                    Arc::new(|_, _| false),
                    StoreCompletions::new(|_| false),
                    ExclusionChannels {
                        number: 0,
                        notify: Arc::new(|_| {}),
                        notify_grant: Arc::new(|_, _| false),
                    },
                ),
                ssd: OpenStore::open_for_test(&spec),
            }
        }

        fn start(&mut self, slot: u16, command: &TargetIoCommand, buffer: Option<Buffer>) {
            let task = StoreTask::execute(command, (self.ssd.clone(), &GEOMETRY), buffer, None);
            self.begin(slot, task.unwrap());
        }

        fn begin(&mut self, slot: u16, task: StoreTask) {
            let ended = self.tasks.start(&mut self.ring, ((0, 0), slot), task);
            assert!(ended.is_none(), "slot {slot} does not wait");
        }

        /// Returns the slots that complete by `now`, in order.
        fn expire(&mut self, now: Instant) -> Vec<u16> {
            let expire = || self.tasks.expire(&mut self.ring, now);
            let ended = std::iter::from_fn(expire).inspect(|(_, o)| assert!(o.result.is_ok()));
            ended.map(|((_, slot), _)| slot).collect()
        }

        fn first_byte(&self) -> u8 {
            let start = self.ssd.store().in_place().unwrap();
            let start = start.read_range(0, 512).unwrap();
            // SAFETY: the memory belongs to the store, which only this thread uses.
            unsafe { *start }
        }
    }

    #[test]
    fn an_emulated_ssd_moves_data_when_its_time_has_come() {
        let mut harness = TasksHarness::new(1);
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        let write = TargetIoCommand::Write { offset: 0, length: 512, fua: false };
        let begin = clock::now();
        harness.start(0, &write, Some(buffer));
        let due = harness.tasks.next_due().unwrap();
        assert!(due >= begin + LONG);
        assert_eq!((harness.expire(Instant(due.0 - 1)), harness.first_byte()), (vec![], 0));
        assert_eq!((harness.tasks.count(), harness.tasks.in_ring()), (1, 0));
        assert_eq!((harness.expire(due), harness.first_byte()), (vec![0], 7));
        assert_eq!((harness.tasks.count(), harness.tasks.next_due()), (0, None));
    }

    #[test]
    fn what_waits_for_an_emulated_ssd_can_be_cancelled() {
        let mut harness = TasksHarness::new(1);
        let write = TargetIoCommand::Write { offset: 0, length: 512, fua: false };
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        harness.start(0, &write, Some(buffer));
        harness.start(1, &TargetIoCommand::Flush, None);
        assert!(harness.tasks.cancel(&mut harness.ring, ((0, 0), 0)));
        assert!(!harness.tasks.cancel(&mut harness.ring, ((0, 1), 1)), "another use of the lane");
        let ended = harness.tasks.expire(&mut harness.ring, clock::now());
        let ((_, slot), outcome) = ended.expect("it ends at once");
        assert_eq!((slot, outcome.result), (0, Err(Status::ABORT_REQUESTED)));
        assert!(outcome.buffer.is_some() && harness.first_byte() == 0, "it was not written");
        assert_eq!(harness.expire(Instant(u64::MAX)), [1]);
    }

    #[test]
    fn a_command_goes_and_comes_with_its_buffer() {
        let kind = StoreKind::Memory { size: 1 << 20 };
        let spec = StoreSpec { kind, lba_bytes: 512, read_only: false };
        let store = OpenStore::open_for_test(&spec);
        let mut harness = TasksHarness::new(1);
        let mut run = |task: Result<StoreTask, TaskOutcome>| match task {
            Ok(task) => {
                let outcome = harness.tasks.start(&mut harness.ring, ((3, 1), 9), task);
                outcome.expect("memory answers at once")
            }
            Err(outcome) => outcome,
        };
        let task = |command, buffer| {
            StoreTask::execute(&command, (store.clone(), &GEOMETRY), buffer, None)
        };
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        let write = TargetIoCommand::Write { offset: 512, length: 512, fua: false };
        let written = run(task(write, Some(buffer)));
        assert!(written.result.is_ok() && written.buffer.is_some());
        let read = TargetIoCommand::Read { offset: 512, length: 512, fua: false };
        assert_eq!(run(task(read, Some(Buffer::alloc(512)))).buffer.unwrap()[..], [7; 512]);
        assert!(run(task(read, None)).result.is_err(), "a read without a buffer");
        let spare = run(task(TargetIoCommand::Flush, Some(Buffer::alloc(512))));
        assert!(spare.buffer.is_some(), "what the operation did not need");
        for stores in [vec![], vec![store.clone(); 2]] {
            assert!(run(StoreTask::flush_all(stores, None)).result.is_ok());
        }
        assert_eq!(harness.tasks.count(), 0);
    }

    #[test]
    fn an_emulated_ssd_takes_every_command_in_turn() {
        let mut harness = TasksHarness::new(2);
        let begin = clock::now();
        for slot in 0..4 {
            harness.start(slot, &TargetIoCommand::Flush, None);
        }
        let ssd = harness.ssd.clone();
        harness.begin(4, StoreTask::announce(ssd.clone(), ByteRange { offset: 0, len: 512 }));
        harness.begin(5, StoreTask::flush_all(vec![ssd.clone(), ssd], None).unwrap());
        let soon = begin + LONG / 2;
        assert_eq!(harness.expire(soon + LONG), [0, 1]);
        assert_eq!(harness.expire(soon + LONG * 2), [2, 3]);
        assert_eq!(harness.expire(soon + LONG * 3), [4]);
        assert_eq!(harness.tasks.count(), 1, "the flush is at its second namespace");
        assert_eq!(harness.expire(Instant(u64::MAX)), [5]);
    }
}
