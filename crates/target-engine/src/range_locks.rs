//! Locks of ranges of a store, over all reactors.

use roadtrain_store::ByteRange;
use roadtrain_target_proto::exclusion::RangeLocks;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What an operation that wants to be alone is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// No other one wants a part of the range any more.
    Locked,
    /// Every reactor has acknowledged.
    Alone,
}

/// Tells the operation of that index of a reactor. `false`: the reactor has ended.
pub(crate) type Teller = Arc<dyn Fn(u32, Grant) -> bool + Send + Sync>;

/// Who waits for a lock.
pub(crate) struct Waiter {
    pub(crate) index: u32,
    pub(crate) tell: Teller,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({})", self.index)
    }
}

/// Who is alone with which range of a store. The lock is taken for such operations only.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<RangeLocks<Waiter>>);

impl Locks {
    /// Takes a lock, or waits for it: its number, and `true` when it is held now.
    pub(crate) fn lock(&self, range: ByteRange, who: Waiter) -> (u64, bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lock(range, who)
    }

    /// Gives a lock back. Those of reactors that have ended are given back, too.
    pub(crate) fn unlock(&self, number: u64) {
        let mut left = vec![number];
        while let Some(number) = left.pop() {
            let granted = self.0.lock().unwrap_or_else(PoisonError::into_inner).unlock(number);
            let has_ended = |(_, w): &(u64, Waiter)| !(w.tell)(w.index, Grant::Locked);
            left.extend(granted.into_iter().filter(has_ended).map(|(number, _)| number));
        }
    }
}
