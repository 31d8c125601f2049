//! One operation that waits, or that takes several operations of the store below.

use super::{AdmissionWaiter, EmulatedBlocks, OperationKey};
use crate::{StoreCompletion, StoreContinuation, StoreIo, StoreOperation, StoreToken};
use roadtrain_proto::read_modify_write::{RmwStep, RmwTask};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::status::Status;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Work of a task, which begins once it is admitted.
pub(super) enum EmulatedWork {
    /// The store below executes the operation as it is.
    Whole(StoreOperation),
    /// The store below executes several operations.
    Parts(RmwTask),
}

/// An operation on its way. It stays on the thread of its reactor; others only hold its key.
pub(super) struct EmulatedTask {
    own: Weak<EmulatedTask>,
    blocks: Arc<EmulatedBlocks>,
    key: OperationKey,
    state: Mutex<TaskState>,
}

struct TaskState {
    work: EmulatedWork,
    /// Buffer of the operation.
    buffer: Option<Buffer>,
    /// Physical blocks, while the store below does not have them.
    bounce: Option<Buffer>,
    is_waiting: bool,
    is_cancelled: bool,
    /// True if the store below left a forced write to a flush.
    is_unforced: bool,
}

impl EmulatedTask {
    pub(super) fn new(
        blocks: &Arc<EmulatedBlocks>,
        key: OperationKey,
        work: EmulatedWork,
        buffer: Option<Buffer>,
    ) -> Arc<EmulatedTask> {
        let state = TaskState {
            work,
            buffer,
            bounce: None,
            is_waiting: false,
            is_cancelled: false,
            is_unforced: false,
        };
        Arc::new_cyclic(|own| EmulatedTask {
            own: own.clone(),
            blocks: blocks.clone(),
            key,
            state: Mutex::new(state),
        })
    }

    /// Returns the waiter whose completion begins the task.
    pub(super) fn wait(self: &Arc<Self>, io: &mut StoreIo<'_>) -> AdmissionWaiter {
        self.lock().is_waiting = true;
        let token = io.then(self.key.1, self.clone());
        AdmissionWaiter { completions: io.completions(), token }
    }

    /// Begins the task, which is admitted.
    pub(super) fn begin(&self, io: &mut StoreIo<'_>) {
        let mut state = self.lock();
        let TaskState { work, buffer, bounce, is_cancelled, .. } = &mut *state;
        if *is_cancelled {
            drop(state);
            return self.finish(Err(Status::ABORT_REQUESTED), io);
        }
        match work {
            EmulatedWork::Whole(op) => {
                let (op, buffer) = (*op, buffer.take());
                drop(state);
                self.submit(op, buffer, io);
            }
            EmulatedWork::Parts(rmw) => {
                let mut physical = Buffer::alloc(rmw.bounce_bytes() as usize);
                let step = rmw.begin(&mut physical, buffer.as_deref().unwrap_or_default());
                *bounce = Some(physical);
                drop(state);
                self.take(step, io);
            }
        }
    }

    /// Takes a completion of the store below.
    fn proceed(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        let mut state = self.lock();
        state.is_unforced |= completion.is_unforced;
        let TaskState { work, buffer, bounce, is_cancelled, .. } = &mut *state;
        let step = match work {
            EmulatedWork::Whole(_) => {
                *buffer = completion.buffer;
                RmwStep::Done(completion.result)
            }
            EmulatedWork::Parts(rmw) => {
                let returned = completion.buffer.or_else(|| bounce.take());
                let mut physical = returned.unwrap_or_else(|| Buffer::alloc(0));
                physical.set_len(rmw.bounce_bytes() as usize);
                let data = buffer.as_deref_mut().unwrap_or_default();
                let step = rmw.advance(completion.result, &mut physical, data);
                *bounce = Some(physical);
                match step {
                    RmwStep::Done(_) => step,
                    _ if *is_cancelled => RmwStep::Done(Err(Status::ABORT_REQUESTED)),
                    _ => step,
                }
            }
        };
        drop(state);
        self.take(step, io);
    }

    /// Carries out a step.
    fn take(&self, step: RmwStep, io: &mut StoreIo<'_>) {
        let (op, range) = match step {
            RmwStep::Read(range) => (StoreOperation::Read { offset: range.offset }, range),
            RmwStep::Write(range, fua) => {
                (StoreOperation::Write { offset: range.offset, fua }, range)
            }
            RmwStep::WriteZeroes(range, deallocate) => {
                let op = StoreOperation::WriteZeroes { range, deallocate };
                return self.submit(op, None, io);
            }
            RmwStep::Done(result) => return self.finish(result, io),
        };
        let mut physical = self.lock().bounce.take();
        if let Some(physical) = &mut physical {
            physical.set_len(range.len as usize);
        }
        self.submit(op, physical, io);
    }

    fn submit(&self, op: StoreOperation, buffer: Option<Buffer>, io: &mut StoreIo<'_>) {
        // Its caller has an Arc of it.
        let Some(own) = self.own.upgrade() else { return };
        let token = io.then(self.key.1, own);
        self.blocks.below.submit(op, buffer, token, io);
    }

    fn finish(&self, result: Result<(), Status>, io: &mut StoreIo<'_>) {
        let mut state = self.lock();
        let (buffer, is_unforced) = (state.buffer.take(), state.is_unforced && result.is_ok());
        state.bounce = None;
        drop(state);
        self.blocks.end(self.key, io);
        io.complete(StoreCompletion { token: self.key.1, result, buffer, is_unforced });
    }

    fn lock(&self) -> MutexGuard<'_, TaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreContinuation for EmulatedTask {
    fn answered(&self, completion: StoreCompletion, io: &mut StoreIo<'_>) {
        let was_waiting = std::mem::take(&mut self.lock().is_waiting);
        match (was_waiting, completion.result) {
            (true, Ok(())) => self.begin(io),
            (true, Err(status)) => self.finish(Err(status), io),
            (false, _) => self.proceed(completion, io),
        }
    }

    /// Cancels the operation. One that waits ends at once; one that was admitted starts no further step.
    fn cancel(&self, token: StoreToken) {
        let mut state = self.lock();
        state.is_cancelled = true;
        if !state.is_waiting {
            return self.blocks.below.cancel(token);
        }
        if let Some(waiter) = self.blocks.stop_waiting(self.key) {
            let aborted = Err(Status::ABORT_REQUESTED);
            waiter.completions.send(StoreCompletion::new(waiter.token, aborted, None));
        }
    }
}
