//! What is under way at stores for one reactor, and how answers come back to it.

use crate::disk::{DiskTask, Progress};
use crate::due::DueQueue;
use crate::{Op, Store};
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::{Ring, UserData};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Marks the completions of stores in a reactor's ring: [`UserData::kind`].
pub const RING_KIND: u8 = 16;
/// Marks the kernel's answer when it was asked to give an operation up: there is no such operation.
const CANCELLED: u64 = UserData { kind: RING_KIND, index: u32::MAX, generation: 0 }.pack();

/// Whose token it is.
const CALLER: u8 = 0;
const EXECUTOR: u8 = 1;

/// Names an operation that was submitted, among all that one executor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// Of an executor's caller: where it keeps the command, and which use of that place it is (24 bits).
    #[inline]
    #[must_use]
    pub fn new(index: u32, generation: u32) -> Token {
        Token(UserData { kind: CALLER, index, generation }.pack())
    }

    /// What it was made of.
    #[inline]
    #[must_use]
    pub fn parts(self) -> (u32, u32) {
        let UserData { index, generation, .. } = UserData::unpack(self.0);
        (index, generation)
    }

    fn is_executors(self) -> bool {
        UserData::unpack(self.0).kind == EXECUTOR
    }
}

/// The answer to an operation.
#[derive(Debug)]
pub struct Completion {
    /// As submitted.
    pub token: Token,
    /// How it went.
    pub result: Result<(), Status>,
    /// As submitted; filled, if it was a read that went well.
    pub buffer: Option<Buffer>,
    /// It has failed in a way that tells of other writes, too: the next flush will not. Of flushes that failed this
    /// need not be said.
    pub took_report: bool,
}

impl Completion {
    /// An answer that tells of nothing else.
    #[must_use]
    pub fn new(token: Token, result: Result<(), Status>, buffer: Option<Buffer>) -> Completion {
        Completion { token, result, buffer, took_report: false }
    }
}

/// Brings answers from other threads to the reactor.
#[derive(Clone)]
pub struct Completions(Arc<dyn Fn(Completion) -> bool + Send + Sync>);

impl Completions {
    /// By `send`, which wakes the reactor and has it call [`Executor::complete`]; `false` when it has ended.
    #[must_use]
    pub fn new(send: impl Fn(Completion) -> bool + Send + Sync + 'static) -> Completions {
        Completions(Arc::new(send))
    }

    /// Answers; `false` when the reactor has ended, and nobody wants to know.
    pub fn send(&self, completion: Completion) -> bool {
        (self.0)(completion)
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}

/// What goes on when a store below has answered: see [`Io::then`].
pub trait Then: Send + Sync {
    /// It has, and `completion` is for the operation on top: pass it on with [`Io::complete`], or submit something
    /// else for the same token.
    fn answered(&self, completion: Completion, io: &mut Io<'_>);

    /// Nobody wants the answer any more to what was submitted below with `token`.
    fn cancel(&self, _token: Token) {}
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
        let index = self.executor.insert(outer, Waiting::Then(then));
        self.executor.token(index)
    }

    /// Submits an operation when it is `due`.
    pub fn delay(
        &mut self,
        due: Instant,
        store: Arc<dyn Store>,
        op: Op,
        buffer: Option<Buffer>,
        token: Token,
    ) {
        let index = self.executor.insert(token, Waiting::Due(Delayed { store, op, buffer }));
        self.executor.due.push(due, index);
    }

    /// Carries an operation on a disk through the ring.
    pub(crate) fn run(&mut self, mut task: DiskTask, token: Token) {
        let index = self.executor.reserve();
        let user_data = UserData { kind: RING_KIND, index, generation: 0 }.pack();
        match task.start(self.ring, user_data) {
            Progress::Pending => {
                let entry = Entry { outer: token, waiting: Waiting::Ring(task) };
                self.executor.entries[index as usize] = Some(entry);
            }
            Progress::Done(result) => {
                self.executor.free.push(index);
                self.executor.complete(task.completion(token, result));
            }
        }
    }
}

/// What waits for something.
struct Entry {
    /// Whom its end is for.
    outer: Token,
    waiting: Waiting,
}

enum Waiting {
    /// For the kernel.
    Ring(DiskTask),
    /// For its time.
    Due(Delayed),
    /// For a store below.
    Then(Arc<dyn Then>),
}

struct Delayed {
    store: Arc<dyn Store>,
    op: Op,
    buffer: Option<Buffer>,
}

/// Keeps what is under way at stores for the thread that owns a ring. A buffer that the kernel uses stays here until
/// the kernel is done with it, whatever becomes of whom it was for.
pub struct Executor {
    entries: Vec<Option<Entry>>,
    /// Which use of its place an entry is.
    generations: Vec<u32>,
    free: Vec<u32>,
    due: DueQueue,
    /// Answers that nobody has looked at.
    answered: VecDeque<Completion>,
    completions: Completions,
}

impl Executor {
    /// Answers from other threads come by `completions`.
    #[must_use]
    pub fn new(completions: Completions) -> Executor {
        Executor {
            entries: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            due: DueQueue::default(),
            answered: VecDeque::new(),
            completions,
        }
    }

    /// Submits an operation. Look at [`next`](Self::next) after that.
    #[inline]
    pub fn submit(
        &mut self,
        ring: &mut Ring,
        store: &dyn Store,
        (op, buffer): (Op, Option<Buffer>),
        token: Token,
    ) {
        store.submit(op, buffer, token, &mut Io { ring, executor: self });
    }

    /// Takes an answer, also one that came from another thread. Look at [`next`](Self::next) after that.
    #[inline]
    pub fn complete(&mut self, completion: Completion) {
        self.answered.push_back(completion);
    }

    /// A completion of the ring with [`RING_KIND`]. Look at [`next`](Self::next) after that.
    pub fn resume(&mut self, ring: &mut Ring, index: u32, result: i32) {
        let Some(Some(entry)) = self.entries.get_mut(index as usize) else { return };
        let Waiting::Ring(task) = &mut entry.waiting else { return };
        let Progress::Done(result) = task.resume(result, ring) else { return };
        if let Some(Entry { outer, waiting: Waiting::Ring(task) }) = self.remove(index) {
            self.complete(task.completion(outer, result));
        }
    }

    /// Submits what is due by `now`. Look at [`next`](Self::next) after that.
    pub fn expire(&mut self, ring: &mut Ring, now: Instant) {
        while let Some(index) = self.due.pop(now) {
            if let Some(Entry { outer, waiting: Waiting::Due(delayed) }) = self.remove(index) {
                let Delayed { store, op, buffer } = delayed;
                store.submit(op, buffer, outer, &mut Io { ring, executor: self });
            }
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
        let is_expected = self.generations.get(index as usize) == Some(&generation)
            && matches!(
                self.entries.get(index as usize),
                Some(Some(Entry { waiting: Waiting::Then(_), .. }))
            );
        if !is_expected {
            return tracing::error!(?completion, "a store has answered twice");
        }
        if let Some(Entry { outer, waiting: Waiting::Then(then) }) = self.remove(index) {
            let completion = Completion { token: outer, ..completion };
            then.answered(completion, &mut Io { ring, executor: self });
        }
    }

    /// Nobody wants an answer any more: what waits for its time ends, and the kernel is asked to give up what it has.
    /// The answer comes as ever. Stores that do it themselves have to be [told](Store::cancel), too.
    pub fn cancel(&mut self, ring: &mut Ring, token: Token) {
        let is_it = |entry: &Option<Entry>| entry.as_ref().is_some_and(|e| e.outer == token);
        let Some(index) = self.entries.iter().position(is_it) else { return };
        let below = self.token(index as u32);
        match &mut self.entries[index] {
            Some(Entry { waiting: Waiting::Ring(task), .. }) => task.cancel(ring, CANCELLED),
            Some(Entry { waiting: Waiting::Then(then), .. }) => {
                then.cancel(below);
                self.cancel(ring, below);
            }
            Some(Entry { waiting: Waiting::Due(_), .. }) => {
                self.due.remove(index as u32);
                if let Some(Entry { waiting: Waiting::Due(delayed), .. }) =
                    self.remove(index as u32)
                {
                    let aborted = Err(Status::ABORT_REQUESTED);
                    self.complete(Completion::new(token, aborted, delayed.buffer));
                }
            }
            None => {}
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

    fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.generations.push(0);
            (self.entries.len() - 1) as u32
        })
    }

    fn insert(&mut self, outer: Token, waiting: Waiting) -> u32 {
        let index = self.reserve();
        self.entries[index as usize] = Some(Entry { outer, waiting });
        index
    }

    fn remove(&mut self, index: u32) -> Option<Entry> {
        let entry = self.entries[index as usize].take()?;
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) & UserData::GENERATION_MASK;
        self.free.push(index);
        Some(entry)
    }

    fn token(&self, index: u32) -> Token {
        let generation = self.generations[index as usize];
        Token(UserData { kind: EXECUTOR, index, generation }.pack())
    }
}
