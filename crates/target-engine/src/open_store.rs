//! Store of a namespace, shared by all reactors, with the record of its unflushed writes.

use super::flushes::StoreFlushes;
#[cfg(test)]
use super::kept_file::KeptPlace;
use super::range_locks::Locks;
use super::uncorrectable::{Marked, Uncorrectable};
use roadtrain_store::{BlockOwnership, ByteRange, OwnCommands, SizeWatcher, Store};
use roadtrain_target_proto::execution;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Open store.
pub(crate) struct OpenStore {
    store: Arc<dyn Store>,
    /// Flushes; `None` if writes are always stable, or never stored.
    flushes: Option<Arc<StoreFlushes>>,
    /// Optional commands that the store executes itself.
    own_commands: OwnCommands,
    /// True if the store accepts lent buffers, on the reactor's thread.
    takes_lent: bool,
    /// Ranges that are locked for one operation.
    locks: Locks,
    /// Blocks that are marked as uncorrectable.
    uncorrectable: Uncorrectable,
    /// True after [`OpenStore::close`].
    closed: AtomicBool,
    /// Callback of the store for a possible change of its size.
    watcher: OnceLock<Arc<SizeWatcher>>,
}

impl OpenStore {
    pub(crate) fn new(store: Arc<dyn Store>, uncorrectable: Uncorrectable) -> OpenStore {
        let flushes = store.is_volatile().then(Arc::default);
        let (takes_lent, own_commands) = (store.stays_on_thread(), store.own_commands());
        OpenStore {
            store,
            flushes,
            own_commands,
            takes_lent,
            locks: Locks::default(),
            uncorrectable,
            closed: AtomicBool::new(false),
            watcher: OnceLock::new(),
        }
    }

    /// Opens a store for a test.
    #[cfg(test)]
    pub(crate) fn open_for_test(spec: &roadtrain_store::StoreSpec) -> Arc<OpenStore> {
        let store = roadtrain_store::open(spec).unwrap();
        let marks = Uncorrectable::open(&KeptPlace::NextToStore, Some(spec), &*store).unwrap();
        Arc::new(OpenStore::new(store, marks))
    }

    #[inline]
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// True if no other target can have had the blocks since the store was opened.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.store.ownership(), BlockOwnership::Ours | BlockOwnership::CutOff)
    }

    /// Registers a callback, once, for changes of the store's size by other parties.
    pub(crate) fn watch_size(&self, make_watcher: impl FnOnce() -> Arc<SizeWatcher>) {
        self.watcher.get_or_init(|| {
            let watcher = make_watcher();
            self.store.watch_size(Arc::downgrade(&watcher));
            watcher
        });
    }

    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        self.takes_lent
    }

    /// True if the store executes Compare and Write itself.
    pub(crate) fn compares_and_writes(&self) -> bool {
        self.own_commands.compares_and_writes
    }

    /// Returns the locks of ranges.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns the flushes; `None` if flushes cannot fail.
    #[inline]
    pub(crate) fn flushes(&self) -> Option<&Arc<StoreFlushes>> {
        self.flushes.as_ref()
    }

    /// Flushes the store after the last write, and releases its exclusive lock. Waits for both.
    ///
    /// # Errors
    ///
    /// Writes may be lost, now or by an earlier flush that their host has not received a status about.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(()); // its lock may belong to another target now
        }
        let flushed = self.flush_last();
        self.store.release();
        flushed
    }

    fn flush_last(&self) -> io::Result<()> {
        let Some(flushes) = &self.flushes else { return Ok(()) };
        let is_read_only = self.store.geometry().read_only;
        if is_read_only {
            return Ok(());
        }
        self.store.sync()?;
        match flushes.unreported_hosts() {
            0 => Ok(()),
            hosts => Err(io::Error::other(format!(
                "an earlier flush failed, and {hosts} hosts with unflushed writes have received no error"
            ))),
        }
    }
}

impl execution::TaskStore for OpenStore {
    type TaskFlushes = StoreFlushes;

    #[inline]
    fn flushes(&self) -> Option<&StoreFlushes> {
        self.flushes.as_deref()
    }

    #[inline]
    fn is_marked(&self, range: &ByteRange) -> bool {
        self.uncorrectable.is_marked(range)
    }

    #[inline]
    fn is_to_clear(&self, range: &ByteRange) -> bool {
        self.uncorrectable.is_to_clear(range)
    }

    fn marks(&self) -> bool {
        self.own_commands.marks
    }
}

impl Marked for OpenStore {
    #[inline]
    fn uncorrectable(&self) -> &Uncorrectable {
        &self.uncorrectable
    }

    fn is_ours(&self) -> bool {
        self.store.ownership() == BlockOwnership::Ours
    }
}

impl Drop for OpenStore {
    /// Flushes in a thread if the removed namespace has unflushed writes: a reactor must not wait for that.
    fn drop(&mut self) {
        let is_clean = self.flushes.as_ref().is_none_or(|flushes| flushes.is_clean());
        if is_clean || *self.closed.get_mut() || self.store.geometry().read_only {
            return;
        }
        let place = self.store.location();
        let store = self.store.clone();
        let sync = self.store.last_sync().unwrap_or_else(|| Box::new(move || store.sync()));
        let flush = move || {
            if let Err(error) = sync() {
                tracing::error!(?place, %error, "what was written last may be lost: the last flush has failed");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("roadtrain-flush".into()).spawn(flush)
        {
            tracing::error!(%error, "a namespace that was removed is not flushed");
        }
    }
}
