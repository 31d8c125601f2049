//! What is under way at stores for one reactor, and how answers come back to it.

use crate::disk::{DiskTask, Progress};
use crate::due::DueQueue;
use crate::{Completion, Completions, Op, Token};
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::{Ring, UserData};
use roadtrain_system::slab::Slab;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Marks the completions of stores in a reactor's ring: [`UserData::kind`].
pub const RING_KIND: u8 = 16;
/// Marks the kernel's answer when it was asked to give an operation up: there is no such operation.
const CANCELLED: u64 = UserData { kind: RING_KIND, index: u32::MAX, generation: 0 }.pack();

/// What goes on when a store below has answered: see [`Io::then`].
pub trait Then: Send + Sync {
    /// It has, and `completion` is for the operation on top: pass it on with [`Io::complete`], or submit something
    /// else for the same token.
    fn answered(&self, completion: Completion, io: &mut Io<'_>);

    /// Nobody wants the answer any more to what was submitted below with `token`.
    fn cancel(&self, _token: Token) {}
}

/// What a delayed operation is submitted to: see [`Io::delay`].
pub trait Delayed: Send + Sync {
    /// Its time has come.
    fn start(&self, op: Op, buffer: Option<Buffer>, token: Token, io: &mut Io<'_>);
}

/// What a store has of the reactor that calls it.
pub struct Io<'a> {
    ring: &'a mut Ring,
    executor: &'a mut Executor,
}

impl Io<'_> {
    /// Answers.
    #[inline]
    pub fn complete(&mut self, completion: Completion) {
        self.executor.complete(completion);
    }

    /// For answers from another thread.
    #[must_use]
    pub fn completions(&self) -> Completions {
        self.executor.completions.clone()
    }

    /// A token for an operation on a store below: its answer goes to `then`, with the token `outer`.
    #[must_use]
    pub fn then(&mut self, outer: Token, then: Arc<dyn Then>) -> Token {
        let index = self.executor.below.insert((outer, then));
        self.executor.below_token(index)
    }

    /// Submits an operation to `store` when it is `due`.
    pub fn delay(
        &mut self,
        due: Instant,
        store: Arc<dyn Delayed>,
        op: Op,
        buffer: Option<Buffer>,
        token: Token,
    ) {
        let index = self.executor.delayed.insert(Waiting { outer: token, store, op, buffer });
        self.executor.due.push(due, index);
    }

    /// Carries an operation on a disk through the ring.
    pub(crate) fn run(&mut self, task: DiskTask, token: Token) {
        let index = self.executor.disk.insert((token, task));
        let user_data = UserData { kind: RING_KIND, index, generation: 0 }.pack();
        let Some((_, task)) = self.executor.disk.get_mut(index) else { return };
        if let Progress::Done(result) = task.start(self.ring, user_data) {
            self.executor.end_disk(index, result);
        }
    }
}

/// What waits for its time.
struct Waiting {
    outer: Token,
    store: Arc<dyn Delayed>,
    op: Op,
    buffer: Option<Buffer>,
}

/// Keeps what is under way at stores for the thread that owns a ring. A buffer that the kernel uses stays here until
/// the kernel is done with it, whatever becomes of whom it was for.
pub struct Executor {
    /// What the kernel has, and whom its end is for.
    disk: Slab<(Token, DiskTask)>,
    delayed: Slab<Waiting>,
    due: DueQueue,
    /// What stores below have, and whom their answer is for.
    below: Slab<(Token, Arc<dyn Then>)>,
    /// Answers that nobody has looked at.
    answered: VecDeque<Completion>,
    completions: Completions,
}

impl Executor {
    /// Answers from other threads come by `completions`.
    #[must_use]
    pub fn new(completions: Completions) -> Executor {
        Executor {
            disk: Slab::default(),
            delayed: Slab::default(),
            due: DueQueue::default(),
            below: Slab::default(),
            answered: VecDeque::new(),
            completions,
        }
    }

    /// What stores get to submit to. Look at [`next`](Self::next) after that.
    #[inline]
    pub fn io<'a>(&'a mut self, ring: &'a mut Ring) -> Io<'a> {
        Io { ring, executor: self }
    }

    /// Takes an answer, also one that came from another thread. Look at [`next`](Self::next) after that.
    #[inline]
    pub fn complete(&mut self, completion: Completion) {
        self.answered.push_back(completion);
    }

    /// A completion of the ring with [`RING_KIND`]. Look at [`next`](Self::next) after that.
    pub fn resume(&mut self, ring: &mut Ring, index: u32, result: i32) {
        let Some((_, task)) = self.disk.get_mut(index) else { return };
        if let Progress::Done(result) = task.resume(result, ring) {
            self.end_disk(index, result);
        }
    }

    fn end_disk(&mut self, index: u32, result: Result<(), Status>) {
        let Some((outer, task)) = self.disk.get_mut(index) else { return };
        let completion = task.completion(*outer, result);
        self.disk.remove(index);
        self.complete(completion);
    }

    /// Submits what is due by `now`. Look at [`next`](Self::next) after that.
    pub fn expire(&mut self, ring: &mut Ring, now: Instant) {
        while let Some(index) = self.due.pop(now) {
            let Some(Waiting { outer, store, op, buffer }) = self.delayed.take(index) else {
                continue;
            };
            store.start(op, buffer, outer, &mut Io { ring, executor: self });
        }
    }

    /// The next answer for the caller, of those at hand.
    pub fn next(&mut self, ring: &mut Ring) -> Option<Completion> {
        loop {
            let completion = self.answered.pop_front()?;
            if !completion.token.is_executors() {
                return Some(completion);
            }
            self.pass_on(ring, completion);
        }
    }

    /// A store below has answered.
    fn pass_on(&mut self, ring: &mut Ring, completion: Completion) {
        let (index, generation) = completion.token.parts();
        let expected = self.below.is_current(index, generation).then(|| self.below.take(index));
        let Some((outer, then)) = expected.flatten() else {
            return tracing::error!(?completion, "a store has answered twice");
        };
        then.answered(Completion { token: outer, ..completion }, &mut Io { ring, executor: self });
    }

    /// Nobody wants an answer any more: what waits for its time ends, and the kernel is asked to give up what it has.
    /// The answer comes as ever. Stores that do it themselves have to be [told](crate::Store::cancel), too.
    pub fn cancel(&mut self, ring: &mut Ring, token: Token) {
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
            self.complete(Completion::new(token, Err(Status::ABORT_REQUESTED), buffer));
        }
    }

    /// When something is due next: at once if there are answers.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        if self.answered.is_empty() { self.due.next() } else { Some(Instant::default()) }
    }

    /// What waits for its time, and for nothing else.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    fn below_token(&self, index: u32) -> Token {
        Token::below(index, self.below.generation(index))
    }
}
