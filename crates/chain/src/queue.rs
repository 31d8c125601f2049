//! Queues of operations: from any thread to the controller's own thread, and on a target's thread to its guest.

use roadtrain_host_engine::block_operation::BackendRules;
use roadtrain_store::{
    StoreCompletion, StoreCompletions, StoreOperation, StoreToken, guest_completions,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::mailbox::WakeEvent;
use roadtrain_wire::status::Status;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Receiver of an operation's completion.
pub(crate) enum OperationReply {
    /// The reactor of this thread, whose guest executes the operation.
    ThisThread,
    /// A reactor or another caller elsewhere.
    Elsewhere(StoreCompletions),
}

/// Operation of a store.
pub(crate) struct SubmittedOperation {
    pub(crate) nsid: u32,
    pub(crate) rules: BackendRules,
    pub(crate) op: StoreOperation,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) token: StoreToken,
    pub(crate) reply: OperationReply,
}

impl SubmittedOperation {
    /// Completes the operation without an execution.
    pub(crate) fn complete(self, result: Result<(), Status>) {
        self.reply.send(StoreCompletion::new(self.token, result, self.buffer));
    }
}

impl OperationReply {
    #[inline]
    pub(crate) fn send(&self, completion: StoreCompletion) {
        match self {
            OperationReply::ThisThread => guest_completions::complete(completion),
            OperationReply::Elsewhere(completions) => _ = completions.send(completion),
        }
    }
}

/// Queue from any thread to the front on the controller's own thread.
pub(crate) struct OwnQueue {
    /// Operations; `None` once the front takes no more.
    operations: Mutex<Option<VecDeque<SubmittedOperation>>>,
    event: WakeEvent,
}

impl OwnQueue {
    pub(crate) fn new() -> io::Result<OwnQueue> {
        Ok(OwnQueue { operations: Mutex::new(Some(VecDeque::new())), event: WakeEvent::new()? })
    }

    pub(crate) fn event(&self) -> &WakeEvent {
        &self.event
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// Returns the operation if the front takes no more.
    pub(crate) fn put(&self, operation: SubmittedOperation) -> Result<(), SubmittedOperation> {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = &mut *operations else { return Err(operation) };
        let was_empty = open.is_empty();
        open.push_back(operation);
        drop(operations);
        if was_empty {
            self.event.wake();
        }
        Ok(())
    }

    /// Moves all operations to `taken`.
    pub(crate) fn take(&self, taken: &mut VecDeque<SubmittedOperation>) {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.iter_mut().for_each(|open| taken.append(open));
    }

    /// Takes no more operations, if none is left. Returns false if there are some.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = operations.as_ref().is_none_or(VecDeque::is_empty);
        if is_empty {
            *operations = None;
        }
        is_empty
    }

    /// Takes no more operations. Returns those that are left.
    pub(crate) fn close(&self) -> VecDeque<SubmittedOperation> {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        operations.take().unwrap_or_default()
    }
}

/// Operations for a guest on this thread.
type GuestQueue = VecDeque<SubmittedOperation>;

thread_local! {
    /// Queues of the guests on this thread, with the numbers of their controllers. They are few.
    static GUESTS: RefCell<Vec<(u64, GuestQueue)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the queue of the guest of controller `number`.
#[inline]
fn find(guests: &mut [(u64, GuestQueue)], number: u64) -> Option<&mut GuestQueue> {
    guests.iter_mut().find(|(known, _)| *known == number).map(|(_, queue)| queue)
}

/// Gives an operation to the guest of controller `number` on this thread.
///
/// # Errors
/// Returns the operation if there is none.
#[inline]
pub(crate) fn put_local(
    number: u64,
    operation: SubmittedOperation,
) -> Result<(), SubmittedOperation> {
    GUESTS.with_borrow_mut(|guests| match find(guests, number) {
        Some(queue) => {
            queue.push_back(operation);
            Ok(())
        }
        None => Err(operation),
    })
}

/// Opens the queue of the guest of controller `number` on this thread.
pub(crate) fn open_local(number: u64) {
    GUESTS.with_borrow_mut(|guests| guests.push((number, GuestQueue::new())));
}

/// Moves all operations for the guest of controller `number` to `taken`.
#[inline]
pub(crate) fn take_local(number: u64, taken: &mut GuestQueue) {
    GUESTS.with_borrow_mut(|guests| {
        if let Some(queue) = find(guests, number).filter(|queue| !queue.is_empty()) {
            taken.append(queue);
        }
    });
}

/// True if the guest of controller `number` has operations to take.
#[inline]
pub(crate) fn has_local(number: u64) -> bool {
    GUESTS.with_borrow_mut(|guests| find(guests, number).is_some_and(|queue| !queue.is_empty()))
}

/// Closes the queue of the guest of controller `number` on this thread. Returns the operations that are left.
pub(crate) fn close_local(number: u64) -> GuestQueue {
    // A thread that ends may have dropped the table before its guests.
    let closed = GUESTS.try_with(|guests| {
        let mut guests = guests.borrow_mut();
        let at = guests.iter().position(|(known, _)| *known == number)?;
        Some(guests.swap_remove(at).1)
    });
    closed.ok().flatten().unwrap_or_default()
}
