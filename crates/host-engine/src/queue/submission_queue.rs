//! Queue of requests from other threads for a reactor: bounded, woken once per batch.

use super::super::api::{IoCompletion, IoRequest};
use roadtrain_system::mailbox::WakeEvent;
use roadtrain_wire::status::Status;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tracing::error;

thread_local! {
    /// Queue of the reactor that runs on this thread.
    static OWN_QUEUE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the queue of this thread's reactor, if it runs one. Such a thread must never wait for a queue.
pub(super) fn own_queue() -> Option<usize> {
    OWN_QUEUE.get()
}

/// Records that this thread runs the reactor of queue `index`.
pub(super) fn set_own_queue(index: usize) {
    OWN_QUEUE.set(Some(index));
}

/// Receiver of the completions of any number of requests, on their reactors' threads: it must not block there.
pub trait Completer: Send + Sync {
    /// Handles the completion of a request.
    fn complete(&self, completion: IoCompletion);
}

/// Receiver of a request's completion.
pub(super) enum CompletionReply {
    Call(Box<dyn FnOnce(IoCompletion) + Send>),
    Send(Sender<IoCompletion>),
    Completer(Arc<dyn Completer>),
}

impl CompletionReply {
    /// Delivers the completion. A panic in the caller's code does not affect other requests.
    pub(super) fn complete(self, completion: IoCompletion) {
        match self {
            CompletionReply::Send(sender) => drop(sender.send(completion)),
            CompletionReply::Completer(completer) => {
                if catch_unwind(AssertUnwindSafe(|| completer.complete(completion))).is_err() {
                    error!("a completer panicked");
                }
            }
            CompletionReply::Call(call) => {
                if catch_unwind(AssertUnwindSafe(|| call(completion))).is_err() {
                    error!("a completion callback panicked");
                }
            }
        }
    }

    /// Completes a request that was never sent.
    pub(super) fn fail(self, request: IoRequest, status: Status) {
        let IoRequest { token, op, buffer, .. } = request;
        self.complete(IoCompletion { token, op, status, buffer, latency_ns: 0 });
    }
}

/// Request that waits for its reactor.
pub(super) struct QueuedRequest {
    pub(super) request: IoRequest,
    pub(super) reply: CompletionReply,
}

/// Entry that was not taken, with the reason.
pub(super) enum SubmissionRefused {
    Full(QueuedRequest),
    /// The reactor has ended.
    Closed(QueuedRequest),
}

struct SubmissionState {
    entries: VecDeque<QueuedRequest>,
    /// True once it takes no more requests.
    closed: bool,
}

pub(super) struct SubmissionQueue {
    state: Mutex<SubmissionState>,
    room: Condvar,
    event: WakeEvent,
    capacity: usize,
}

impl SubmissionQueue {
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let entries = VecDeque::with_capacity(capacity);
        let state = Mutex::new(SubmissionState { entries, closed: false });
        Ok(SubmissionQueue { state, room: Condvar::new(), event: WakeEvent::new()?, capacity })
    }

    pub(super) fn event(&self) -> &WakeEvent {
        &self.event
    }

    fn lock(&self) -> MutexGuard<'_, SubmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry if there is room.
    pub(super) fn try_put(&self, entry: QueuedRequest) -> Result<(), SubmissionRefused> {
        let state = self.lock();
        match state.entries.len() < self.capacity {
            _ if state.closed => Err(SubmissionRefused::Closed(entry)),
            false => Err(SubmissionRefused::Full(entry)),
            true => {
                self.push(state, entry);
                Ok(())
            }
        }
    }

    /// Adds an entry, and waits for room; a reactor's own thread exceeds the bound instead.
    pub(super) fn put(&self, entry: QueuedRequest) -> Result<(), SubmissionRefused> {
        let mut state = self.lock();
        while !state.closed && state.entries.len() >= self.capacity && own_queue().is_none() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err(SubmissionRefused::Closed(entry));
        }
        self.push(state, entry);
        Ok(())
    }

    /// Adds an entry. Only the first of a batch wakes the reactor, which takes as many as its lanes have room for.
    fn push(&self, mut state: MutexGuard<'_, SubmissionState>, entry: QueuedRequest) {
        let is_first = state.entries.is_empty();
        state.entries.push_back(entry);
        drop(state);
        if is_first {
            self.event.wake();
        }
    }

    /// Moves up to `count` entries to `batch`.
    pub(super) fn take(&self, count: usize, batch: &mut VecDeque<QueuedRequest>) {
        let mut state = self.lock();
        let was_full = state.entries.len() >= self.capacity;
        let count = count.min(state.entries.len());
        batch.extend(state.entries.drain(..count));
        drop(state);
        if was_full && count > 0 {
            self.room.notify_all();
        }
    }

    /// Closes the queue if it is empty. True if it is closed.
    pub(super) fn close_if_empty(&self) -> bool {
        let mut state = self.lock();
        if state.entries.is_empty() {
            state.closed = true;
        }
        let closed = state.closed;
        drop(state);
        self.room.notify_all();
        closed
    }

    /// Closes the queue. Returns its entries.
    pub(super) fn close(&self) -> VecDeque<QueuedRequest> {
        let mut state = self.lock();
        state.closed = true;
        let left = std::mem::take(&mut state.entries);
        drop(state);
        self.room.notify_all();
        left
    }
}
