//! Flushes of a file or block device over all reactors, and the lanes whose writes they cover. [`Stability`] decides
//! which hosts receive the status of a failed flush.

use roadtrain_system::clock;
use roadtrain_target_proto::execution::{self, Flushes as _};
use roadtrain_target_proto::stability::{
    Epoch, FlushTicket, Flushed, Stability, StoreUser, Wake, WriteMark,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Wakes a command, by its index, that waits for the flush of another one. Returns false if its reactor has ended.
pub(crate) type Waker = Arc<dyn Fn(u32, Wake) -> bool + Send + Sync>;

struct FlushWaiter {
    index: u32,
    waker: Waker,
}

impl std::fmt::Debug for FlushWaiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({})", self.index)
    }
}

/// Flushes of a store. Only a flush and the arrival or departure of a lane take the lock; other commands never do.
#[derive(Debug, Default)]
pub(crate) struct StoreFlushes {
    /// Copy of the epoch in `state`, for writes.
    epoch: AtomicU64,
    state: Mutex<Stability<FlushWaiter>>,
    /// True if the last flush that ran has failed.
    last_has_failed: AtomicBool,
}

impl StoreFlushes {
    fn with<T>(&self, call: impl FnOnce(&mut Stability<FlushWaiter>) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = call(&mut state);
        self.epoch.store(state.epoch(), Ordering::Release);
        result
    }

    /// True if the command `index` shall flush now. Otherwise `waker` wakes it later.
    pub(crate) fn join(&self, index: u32, waker: &Waker) -> bool {
        self.with(|state| state.join(FlushWaiter { index, waker: waker.clone() }))
    }

    /// Returns the number of hosts whose writes may be lost and who have received no status about it.
    pub(crate) fn unreported_hosts(&self) -> usize {
        self.with(|state| state.unreported_hosts())
    }

    /// True if the last flush that ran has failed.
    pub(crate) fn last_has_failed(&self) -> bool {
        self.last_has_failed.load(Ordering::Relaxed)
    }

    /// True if every write has been flushed.
    pub(crate) fn is_clean(&self) -> bool {
        self.with(|state| state.is_clean())
    }
}

impl execution::Flushes for StoreFlushes {
    fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    fn begin(&self, user: &StoreUser) -> FlushTicket {
        self.with(|state| state.begin(clock::now(), user))
    }

    fn ended(&self, mut flushed: Flushed) {
        if flushed != Flushed::NotRun {
            self.last_has_failed.store(flushed != Flushed::Done, Ordering::Relaxed);
        }
        loop {
            let mut leads = true;
            for (FlushWaiter { index, waker }, wake) in self.with(|state| state.ended(flushed)) {
                leads &= waker(index, wake) || wake != Wake::Lead;
            }
            if leads {
                return;
            }
            flushed = Flushed::NotRun; // the reactor of that command has ended
        }
    }

    fn settle(&self, ticket: FlushTicket, flushed: Flushed) -> bool {
        self.with(|state| state.settle(clock::now(), ticket, flushed))
    }
}

/// Writes of a lane to a store that no flush has covered.
pub(crate) struct Unflushed {
    flushes: Arc<StoreFlushes>,
    user: Arc<StoreUser>,
    mark: Arc<WriteMark>,
}

impl Unflushed {
    /// Registers a lane of `user`.
    pub(crate) fn new(flushes: &Arc<StoreFlushes>, user: &Arc<StoreUser>) -> Unflushed {
        let mark = flushes.with(|state| state.enter(clock::now(), user));
        Unflushed { flushes: flushes.clone(), user: user.clone(), mark }
    }

    /// Registers the admin queue of `user`, which is about to flush for the last time.
    pub(crate) fn last(flushes: &Arc<StoreFlushes>, user: &Arc<StoreUser>) -> Unflushed {
        let mark = flushes.with(|state| state.enter_last(clock::now(), user));
        Unflushed { flushes: flushes.clone(), user: user.clone(), mark }
    }

    /// Returns the epoch of a write that starts now.
    pub(crate) fn epoch(&self) -> Epoch {
        self.flushes.epoch()
    }

    /// Records a write that began in `epoch`, before its success is reported.
    pub(crate) fn wrote(&self, epoch: Epoch) {
        self.mark.wrote(epoch);
    }

    /// Removes the user after an orderly shutdown of its controller.
    pub(crate) fn shut_down(&self) {
        self.flushes.with(|state| state.end_reports(clock::now(), &self.user));
    }
}

impl Drop for Unflushed {
    fn drop(&mut self) {
        self.flushes.with(|state| state.leave(clock::now(), &self.user, &self.mark));
    }
}
