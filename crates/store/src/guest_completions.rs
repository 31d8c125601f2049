//! Completions of stores whose work runs on the reactor's own thread, as its guest: they need no message.

use crate::StoreCompletion;
use std::cell::RefCell;
use std::collections::VecDeque;

thread_local! {
    static PENDING: RefCell<VecDeque<StoreCompletion>> = const { RefCell::new(VecDeque::new()) };
}

/// Completes an operation that was submitted on this thread. The reactor takes it after the guests' turns.
#[inline]
pub fn complete(completion: StoreCompletion) {
    PENDING.with_borrow_mut(|pending| pending.push_back(completion));
}

/// Returns the next completion of this thread's guests, for the thread's reactor.
#[inline]
#[must_use]
pub fn next() -> Option<StoreCompletion> {
    PENDING.with_borrow_mut(VecDeque::pop_front)
}

/// True if the thread's reactor has completions to take.
#[inline]
#[must_use]
pub fn are_pending() -> bool {
    PENDING.with_borrow(|pending| !pending.is_empty())
}
