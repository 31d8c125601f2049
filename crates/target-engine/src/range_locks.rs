//! Locks of ranges of a store, over all reactors.

use roadtrain_store::ByteRange;
use roadtrain_target_proto::exclusion::RangeLocks;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Progress of an operation that waits for an exclusive range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The operation holds the lock: no other operation uses a part of the range.
    Locked,
    /// Every reactor has acknowledged.
    Alone,
}

/// Notifies an operation, by its index, of a reactor. Returns false if the reactor has ended.
pub(crate) type GrantNotifier = Arc<dyn Fn(u32, Grant) -> bool + Send + Sync>;

/// Operation that waits for a lock.
pub(crate) struct RangeLockWaiter {
    pub(crate) index: u32,
    pub(crate) notify_grant: GrantNotifier,
}

impl fmt::Debug for RangeLockWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({})", self.index)
    }
}

/// Locked ranges of a store. Only exclusive operations take the mutex.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<RangeLocks<RangeLockWaiter>>);

impl Locks {
    /// Requests a lock. Returns its number, and true if it is held now.
    pub(crate) fn lock(&self, range: ByteRange, waiter: RangeLockWaiter) -> (u64, bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lock(range, waiter)
    }

    /// Releases a lock, and the locks of reactors that have ended.
    pub(crate) fn unlock(&self, number: u64) {
        let mut left = vec![number];
        while let Some(number) = left.pop() {
            let granted = self.0.lock().unwrap_or_else(PoisonError::into_inner).unlock(number);
            let has_ended =
                |(_, w): &(u64, RangeLockWaiter)| !(w.notify_grant)(w.index, Grant::Locked);
            left.extend(granted.into_iter().filter(has_ended).map(|(number, _)| number));
        }
    }
}
