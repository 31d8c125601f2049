//! Allocation queries for stores where a query blocks: a thread runs them one at a time, and ends when none is pending.
//!
//! A pending query can be cancelled: it completes at once, and the thread's result is dropped.

use crate::{ByteRange, StoreCompletion, StoreCompletions, StoreContinuation, StoreIo, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::lba_status::{LbaStatusList, condition};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest run of a query: the rest of its range is left to another query.
const QUERY_TIME: Duration = Duration::from_millis(250);
/// Most pending queries.
const WAITING_MAX: usize = 256;

type QueryJob = Box<dyn FnOnce() + Send>;

/// The queries of a store.
#[derive(Default)]
pub(crate) struct StoreAllocationQueries(Arc<Mutex<QueryQueue>>);

#[derive(Default)]
struct QueryQueue {
    waiting: VecDeque<QueryJob>,
    has_thread: bool,
}

impl fmt::Debug for StoreAllocationQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LookUps")
    }
}

impl StoreAllocationQueries {
    /// Starts a query: `job` finds the allocated parts of a range of whole blocks, for a list that fills the buffer.
    pub(crate) fn begin(
        &self,
        (range, lba_shift): (ByteRange, u8),
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
        job: impl FnOnce(&mut AllocationReport<'_>) -> Result<(), Status> + Send + 'static,
    ) {
        let Some(buffer) = buffer else {
            return io.complete(StoreCompletion::new(token, Err(Status::INTERNAL_ERROR), None));
        };
        let bytes = buffer.len();
        let query = Arc::new(PendingQuery {
            buffer: Mutex::new(Some(buffer)),
            completions: io.completions(),
        });
        let token = io.then(token, query.clone());
        let own = query.clone();
        let job = move || {
            if own.is_cancelled() {
                return;
            }
            let mut list = vec![0; bytes];
            let mut found =
                AllocationReport::new(&mut list, range, lba_shift, Instant::now() + QUERY_TIME);
            let result = job(&mut found);
            found.end();
            own.end(token, result.map(|()| &list[..]));
        };
        if !self.submit(Box::new(job)) {
            // A retry may succeed: no Do Not Retry.
            query.end(token, Err(Status::COMMAND_INTERRUPTED));
        }
    }

    /// Queues a query. Returns `false` if that is not possible now.
    fn submit(&self, job: QueryJob) -> bool {
        let mut turns = lock(&self.0);
        if turns.waiting.len() >= WAITING_MAX {
            return false;
        }
        turns.waiting.push_back(job);
        if turns.has_thread {
            return true;
        }
        let shared = self.0.clone();
        let run = move || {
            leave_core();
            while let Some(job) = next(&shared) {
                job();
            }
        };
        turns.has_thread = thread::Builder::new().name("roadtrain-look".into()).spawn(run).is_ok();
        if !turns.has_thread {
            turns.waiting.clear();
        }
        turns.has_thread
    }
}

/// Takes the next query; `None` if there is none, and the thread ends.
fn next(turns: &Mutex<QueryQueue>) -> Option<QueryJob> {
    let mut turns = lock(turns);
    let next = turns.waiting.pop_front();
    turns.has_thread = next.is_some();
    next
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves the thread off the reactor's core, on which it was started: it may run on all cores of the process.
fn leave_core() {
    let process = rustix::process::getpid();
    if let Ok(cpus) = rustix::thread::sched_getaffinity(Some(process)) {
        // On an error it stays on the core.
        let _ = rustix::thread::sched_setaffinity(None, &cpus);
    }
}

/// A query with a pending completion.
struct PendingQuery {
    /// Buffer; `None` once the query has completed.
    buffer: Mutex<Option<Buffer>>,
    completions: StoreCompletions,
}

impl PendingQuery {
    fn is_cancelled(&self) -> bool {
        lock(&self.buffer).is_none()
    }

    fn end(&self, token: StoreToken, list: Result<&[u8], Status>) {
        let Some(mut buffer) = lock(&self.buffer).take() else { return };
        if let Ok(list) = list {
            buffer.copy_from_slice(list);
        }
        self.completions.send(StoreCompletion::new(token, list.map(drop), Some(buffer)));
    }
}

impl StoreContinuation for PendingQuery {
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        io.complete(completion);
    }

    fn cancel(&self, token: StoreToken) {
        self.end(token, Err(Status::ABORT_REQUESTED));
    }
}

/// Result of a query so far, from the start of its range on.
pub(crate) struct AllocationReport<'a> {
    list: LbaStatusList<'a>,
    range: ByteRange,
    lba_shift: u8,
    until: Instant,
    condition: u8,
}

impl<'a> AllocationReport<'a> {
    pub(crate) fn new(
        place: &'a mut [u8],
        range: ByteRange,
        lba_shift: u8,
        until: Instant,
    ) -> Self {
        let list = LbaStatusList::new(place);
        AllocationReport { list, range, lba_shift, until, condition: condition::COMPLETE }
    }

    /// Returns the queried range in bytes: from, to.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.range.offset, self.range.offset + self.range.len)
    }

    /// True if there is time for the part that begins at `at`. If not, the block there is reported as allocated: this
    /// marks how far the query has come.
    pub(crate) fn has_time(&mut self, at: u64) -> bool {
        if Instant::now() < self.until {
            return true;
        }
        if self.add(at, 1) {
            self.condition = condition::UNSPECIFIED;
        }
        false
    }

    /// Adds allocated bytes, behind all earlier ones; every block with one of them counts as allocated. Returns `false`
    /// if the query may stop.
    pub(crate) fn add(&mut self, offset: u64, len: u64) -> bool {
        let (start, end) = self.bounds();
        let (from, to) = (offset.max(start), offset.saturating_add(len).min(end));
        if from >= to {
            return true;
        }
        let first = from >> self.lba_shift;
        let behind = to.div_ceil(1 << self.lba_shift);
        let first = first.max(self.list.end_of_last());
        let has_room = self.list.add(first, behind.saturating_sub(first));
        if !has_room {
            self.condition = condition::NO_ROOM;
        }
        has_room
    }

    pub(crate) fn end(self) {
        self.list.end(self.condition);
    }
}

#[cfg(test)]
mod tests;
