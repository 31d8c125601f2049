//! Queue from the threads of the target to the thread of a store.

use roadtrain_store::{StoreCompletion, StoreCompletions, StoreOperation, StoreToken};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::mailbox::WakeEvent;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Recipient of an operation's completion.
#[derive(Debug)]
pub(crate) struct NbdRecipient {
    pub(crate) token: StoreToken,
    pub(crate) completions: StoreCompletions,
}

/// Submitted operation.
#[derive(Debug)]
pub(crate) struct QueuedOperation {
    pub(crate) op: StoreOperation,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) recipient: NbdRecipient,
}

impl QueuedOperation {
    /// Completes it without executing it.
    pub(crate) fn refuse(self, status: Status) {
        let NbdRecipient { token, completions } = self.recipient;
        completions.send(StoreCompletion::new(token, Err(status), self.buffer));
    }
}

/// Queue of operations, until it is closed.
pub(crate) struct NbdQueue {
    state: Mutex<NbdQueueState>,
    event: WakeEvent,
}

#[derive(Default)]
struct NbdQueueState {
    operations: VecDeque<QueuedOperation>,
    is_closed: bool,
}

impl NbdQueue {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new() -> io::Result<NbdQueue> {
        Ok(NbdQueue { state: Mutex::default(), event: WakeEvent::new()? })
    }

    fn lock(&self) -> MutexGuard<'_, NbdQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the event that wakes the thread.
    pub(crate) fn event(&self) -> &WakeEvent {
        &self.event
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// Returns it if the queue is closed.
    pub(crate) fn put(&self, operation: QueuedOperation) -> Result<(), QueuedOperation> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(operation);
        }
        let is_first = state.operations.is_empty();
        state.operations.push_back(operation);
        drop(state);
        if is_first {
            self.event.wake();
        }
        Ok(())
    }

    /// Takes all operations. `None` once the queue is closed, and they are taken.
    pub(crate) fn take(&self) -> Option<VecDeque<QueuedOperation>> {
        let mut state = self.lock();
        let operations = std::mem::take(&mut state.operations);
        (!state.is_closed || !operations.is_empty()).then_some(operations)
    }

    /// Closes the queue: the thread ends.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.event.wake();
    }
}
