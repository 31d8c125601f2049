//! The flushes of a file or block device over all reactors, and the lanes whose writes they cover: who is
//! told that one has failed is decided by [`Stability`].

use roadtrain_system::clock;
use roadtrain_target_proto::execution::{self, Flushes as _};
use roadtrain_target_proto::stability::{Epoch, Flushed, Mark, Stability, Ticket, User, Wake};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Wakes a command that waits for the flush of another one, by its index. `false`: nobody is there any more.
pub(crate) type Waker = Arc<dyn Fn(u32, Wake) -> bool + Send + Sync>;

struct Waiter {
    index: u32,
    waker: Waker,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({})", self.index)
    }
}

/// A store's flushes. The lock is taken for a flush, and when a lane comes or goes; never for other commands.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// As in `state`, for writes.
    epoch: AtomicU64,
    state: Mutex<Stability<Waiter>>,
    /// The last one that ran has failed.
    last_has_failed: AtomicBool,
}

impl Flushes {
    fn with<T>(&self, call: impl FnOnce(&mut Stability<Waiter>) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = call(&mut state);
        self.epoch.store(state.epoch(), Ordering::Release);
        result
    }

    /// Whether the command `index` is to flush now; else it is woken.
    pub(crate) fn join(&self, index: u32, waker: &Waker) -> bool {
        self.with(|state| state.join(Waiter { index, waker: waker.clone() }))
    }

    /// Hosts whose writes may be lost and who were not told.
    pub(crate) fn untold(&self) -> usize {
        self.with(|state| state.untold())
    }

    /// Whether the last flush that ran has failed.
    pub(crate) fn last_has_failed(&self) -> bool {
        self.last_has_failed.load(Ordering::Relaxed)
    }

    /// Whether everything that was written was flushed.
    pub(crate) fn is_clean(&self) -> bool {
        self.with(|state| state.is_clean())
    }
}

impl execution::Flushes for Flushes {
    fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    fn begin(&self, user: &User) -> Ticket {
        self.with(|state| state.begin(clock::now(), user))
    }

    fn ended(&self, mut flushed: Flushed) {
        if flushed != Flushed::NotRun {
            self.last_has_failed.store(flushed != Flushed::Done, Ordering::Relaxed);
        }
        loop {
            let mut leads = true;
            for (Waiter { index, waker }, wake) in self.with(|state| state.ended(flushed)) {
                leads &= waker(index, wake) || wake != Wake::Lead;
            }
            if leads {
                return;
            }
            flushed = Flushed::NotRun; // by a reactor that has ended
        }
    }

    fn settle(&self, ticket: Ticket, flushed: Flushed) -> bool {
        self.with(|state| state.settle(clock::now(), ticket, flushed))
    }
}

/// A lane's writes to a store that no flush has covered.
pub(crate) struct Unflushed {
    flushes: Arc<Flushes>,
    user: Arc<User>,
    mark: Arc<Mark>,
}

impl Unflushed {
    /// A lane of `user`.
    pub(crate) fn new(flushes: &Arc<Flushes>, user: &Arc<User>) -> Unflushed {
        let mark = flushes.with(|state| state.enter(clock::now(), user));
        Unflushed { flushes: flushes.clone(), user: user.clone(), mark }
    }

    /// The admin queue of `user`, about to flush for the last time.
    pub(crate) fn last(flushes: &Arc<Flushes>, user: &Arc<User>) -> Unflushed {
        let mark = flushes.with(|state| state.enter_last(clock::now(), user));
        Unflushed { flushes: flushes.clone(), user: user.clone(), mark }
    }

    /// In which a write that starts now begins.
    pub(crate) fn epoch(&self) -> Epoch {
        self.flushes.epoch()
    }

    /// A write that began in `epoch` is about to be answered with success.
    pub(crate) fn wrote(&self, epoch: Epoch) {
        self.mark.wrote(epoch);
    }

    /// The host has ended its controller in order.
    pub(crate) fn part(&self) {
        self.flushes.with(|state| state.part(clock::now(), &self.user));
    }
}

impl Drop for Unflushed {
    fn drop(&mut self) {
        self.flushes.with(|state| state.leave(clock::now(), &self.user, &self.mark));
    }
}
