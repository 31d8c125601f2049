//! Operations of one reactor in flight at stores, and the delivery of their completions.

use crate::disk::{DiskTask, TaskProgress};
use crate::due::DueQueue;
use crate::{StoreCompletion, StoreCompletions, StoreOperation, StoreToken};
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::{ReactorRing, UserData};
use roadtrain_system::slab::Slab;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Kind of the completions of stores in a reactor's ring: [`UserData::kind`].
pub const RING_KIND: u8 = 16;
/// User data of the kernel's replies to cancellations, which belong to no operation.
const CANCELLED: u64 = UserData { kind: RING_KIND, index: u32::MAX, generation: 0 }.pack();

/// Continuation after a store below has completed an operation: see [`StoreIo::then`].
pub trait StoreContinuation: Send + Sync {
    /// Handles a completion of the store below, with the token of the operation on top. Passes it on with
    /// [`StoreIo::complete`], or submits another operation for the same token.
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>);

    /// Cancels the operation that was submitted below with `token`: its completion is no longer needed.
    fn cancel(&self, _token: StoreToken) {}
}

/// Receiver of delayed operations: see [`StoreIo::delay`].
pub trait Delayed: Send + Sync {
    /// Starts an operation at its due time.
    fn start(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    );
}

/// A store's interface to the reactor that calls it.
pub struct StoreIo<'a> {
    ring: &'a mut ReactorRing,
    executor: &'a mut StoreExecutor,
}

impl StoreIo<'_> {
    /// Completes an operation.
    #[inline]
    pub fn complete(&mut self, completion: StoreCompletion) {
        self.executor.complete(completion);
    }

    /// Returns a sender of completions for another thread.
    #[must_use]
    pub fn completions(&self) -> StoreCompletions {
        self.executor.completions.clone()
    }

    /// Returns a number of the executor, unique among those that exist.
    #[inline]
    pub(crate) fn executor(&self) -> usize {
        self.executor.completions.executor()
    }

    /// Returns a token for an operation on a store below: its completion goes to `then`, with the token `outer`.
    #[must_use]
    pub fn then(&mut self, outer: StoreToken, then: Arc<dyn StoreContinuation>) -> StoreToken {
        let index = self.executor.below.insert((outer, then));
        self.executor.below_token(index)
    }

    /// Submits an operation to `store` at the time `due`.
    pub fn delay(
        &mut self,
        due: Instant,
        store: Arc<dyn Delayed>,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
    ) {
        let index = self.executor.delayed.insert(DelayedOp { outer: token, store, op, buffer });
        self.executor.due.push(due, index);
    }

    /// Runs an operation on a disk over the ring.
    pub(crate) fn run(&mut self, task: DiskTask, token: StoreToken) {
        let index = self.executor.disk.insert((token, task));
        let user_data = UserData { kind: RING_KIND, index, generation: 0 }.pack();
        let Some((_, task)) = self.executor.disk.get_mut(index) else { return };
        if let TaskProgress::Done(result) = task.start(self.ring, user_data) {
            self.executor.end_disk(index, result);
        }
    }
}

/// A delayed operation.
struct DelayedOp {
    outer: StoreToken,
    store: Arc<dyn Delayed>,
    op: StoreOperation,
    buffer: Option<Buffer>,
}

/// Keeps the operations in flight at stores for the thread that owns a ring. A buffer that the kernel uses stays here
/// until the kernel is done with it, even if its submitter is gone.
pub struct StoreExecutor {
    /// Operations in the kernel, with the tokens of their submitters.
    disk: Slab<(StoreToken, DiskTask)>,
    delayed: Slab<DelayedOp>,
    due: DueQueue,
    /// Operations at stores below, with the tokens of their submitters.
    below: Slab<(StoreToken, Arc<dyn StoreContinuation>)>,
    /// Completions that the caller has not taken.
    answered: VecDeque<StoreCompletion>,
    completions: StoreCompletions,
}

impl StoreExecutor {
    /// Makes an executor; completions from other threads come through `completions`.
    #[must_use]
    pub fn new(completions: StoreCompletions) -> StoreExecutor {
        StoreExecutor {
            disk: Slab::default(),
            delayed: Slab::default(),
            due: DueQueue::default(),
            below: Slab::default(),
            answered: VecDeque::new(),
            completions,
        }
    }

    /// Returns the interface for a submission to a store. The caller checks [`next`](Self::next) after that.
    #[inline]
    pub fn io<'a>(&'a mut self, ring: &'a mut ReactorRing) -> StoreIo<'a> {
        StoreIo { ring, executor: self }
    }

    /// Takes a completion, also one from another thread. The caller checks [`next`](Self::next) after that.
    #[inline]
    pub fn complete(&mut self, completion: StoreCompletion) {
        self.answered.push_back(completion);
    }

    /// Handles a completion of the ring with [`RING_KIND`]. The caller checks [`next`](Self::next) after that.
    pub fn resume(&mut self, ring: &mut ReactorRing, index: u32, result: i32) {
        let Some((_, task)) = self.disk.get_mut(index) else { return };
        if let TaskProgress::Done(result) = task.resume(result, ring) {
            self.end_disk(index, result);
        }
    }

    fn end_disk(&mut self, index: u32, result: Result<(), Status>) {
        let Some((outer, task)) = self.disk.get_mut(index) else { return };
        let completion = task.completion(*outer, result);
        self.disk.remove(index);
        self.complete(completion);
    }

    /// Submits the operations that are due by `now`. The caller checks [`next`](Self::next) after that.
    pub fn expire(&mut self, ring: &mut ReactorRing, now: Instant) {
        while let Some(index) = self.due.pop(now) {
            let Some(DelayedOp { outer, store, op, buffer }) = self.delayed.take(index) else {
                continue;
            };
            store.start(op, buffer, outer, &mut StoreIo { ring, executor: self });
        }
    }

    /// Returns the next completion for the caller, of those that have arrived.
    pub fn next(&mut self, ring: &mut ReactorRing) -> Option<StoreCompletion> {
        loop {
            let completion = self.answered.pop_front()?;
            if !completion.token.is_executors() {
                return Some(completion);
            }
            self.pass_on(ring, completion);
        }
    }

    /// Passes the completion of a store below to its continuation.
    fn pass_on(&mut self, ring: &mut ReactorRing, completion: StoreCompletion) {
        let (index, generation) = completion.token.parts();
        let expected = self.below.is_current(index, generation).then(|| self.below.take(index));
        let Some((outer, then)) = expected.flatten() else {
            return tracing::error!(?completion, "a store has answered twice");
        };
        then.answered(
            StoreCompletion { token: outer, ..completion },
            &mut StoreIo { ring, executor: self },
        );
    }

    /// Cancels an operation whose completion is no longer needed: a delayed one ends, and the kernel is requested to
    /// abort its part. The completion comes as usual. Stores with threads of their own need
    /// [`cancel`](crate::Store::cancel), too.
    pub fn cancel(&mut self, ring: &mut ReactorRing, token: StoreToken) {
        if let Some(index) = self.disk.find(|(outer, _)| *outer == token) {
            let task = self.disk.get_mut(index);
            return task.into_iter().for_each(|(_, task)| task.cancel(ring, CANCELLED));
        }
        if let Some(index) = self.below.find(|(outer, _)| *outer == token) {
            let below = self.below_token(index);
            if let Some((_, then)) = self.below.get_mut(index) {
                then.cancel(below);
            }
            return self.cancel(ring, below);
        }
        if let Some(index) = self.delayed.find(|delayed| delayed.outer == token) {
            self.due.remove(index);
            let buffer = self.delayed.take(index).and_then(|delayed| delayed.buffer);
            self.complete(StoreCompletion::new(token, Err(Status::ABORT_REQUESTED), buffer));
        }
    }

    /// Returns the time of the next due operation: now if completions are pending.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        if self.answered.is_empty() { self.due.next() } else { Some(Instant::default()) }
    }

    /// Returns the number of delayed operations that are not due.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    fn below_token(&self, index: u32) -> StoreToken {
        StoreToken::below(index, self.below.generation(index))
    }
}
