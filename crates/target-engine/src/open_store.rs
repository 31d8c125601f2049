//! A namespace's store as all reactors share it: with an account of what was written to it and not flushed.

use super::flushes::Flushes;
#[cfg(test)]
use super::kept_file::KeptPlace;
use super::range_locks::Locks;
use super::uncorrectable::{Marked, Uncorrectable};
use roadtrain_store::{ByteRange, Custody, SizeWatcher, Store};
use roadtrain_target_proto::execution;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// An open store.
pub(crate) struct OpenStore {
    store: Arc<dyn Store>,
    /// `None`: what was written stays, or never was anywhere.
    flushes: Option<Arc<Flushes>>,
    /// Takes buffers that others write, on the reactor's thread.
    takes_lent: bool,
    /// Who is alone with which range.
    locks: Locks,
    /// Blocks that cannot be read.
    uncorrectable: Uncorrectable,
    /// [`OpenStore::close`] was called.
    closed: AtomicBool,
    /// What the store calls when its size may be another one.
    watcher: OnceLock<Arc<SizeWatcher>>,
}

impl OpenStore {
    pub(crate) fn new(store: Arc<dyn Store>, uncorrectable: Uncorrectable) -> OpenStore {
        let flushes = store.is_volatile().then(Arc::default);
        let takes_lent = store.stays_on_thread();
        OpenStore {
            store,
            flushes,
            takes_lent,
            locks: Locks::default(),
            uncorrectable,
            closed: AtomicBool::new(false),
            watcher: OnceLock::new(),
        }
    }

    /// As a test wants it.
    #[cfg(test)]
    pub(crate) fn of(spec: &roadtrain_store::StoreSpec) -> Arc<OpenStore> {
        let store = roadtrain_store::open(spec).unwrap();
        let marks = Uncorrectable::open(&KeptPlace::Beside, Some(spec), &*store).unwrap();
        Arc::new(OpenStore::new(store, marks))
    }

    #[inline]
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whether nobody else can have had the blocks since it was opened.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.store.custody(), Custody::Ours | Custody::CutOff)
    }

    /// Has `tell` called, once set, when others may have given the store another size.
    pub(crate) fn watch_size(&self, tell: impl FnOnce() -> Arc<SizeWatcher>) {
        self.watcher.get_or_init(|| {
            let watcher = tell();
            self.store.watch_size(Arc::downgrade(&watcher));
            watcher
        });
    }

    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        self.takes_lent
    }

    /// Who is alone with which range of it.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Who is to be told of failed flushes; `None`: none fails.
    #[inline]
    pub(crate) fn flushes(&self) -> Option<&Arc<Flushes>> {
        self.flushes.as_ref()
    }

    /// Brings everything to stable storage, and lets others have the store: nobody writes any more. Waits for that.
    ///
    /// # Errors
    /// What was written may be lost, now or earlier without its host being told.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(()); // its lock may be another target's by now
        }
        let flushed = self.flush_last();
        self.store.give_up();
        flushed
    }

    fn flush_last(&self) -> io::Result<()> {
        let Some(flushes) = &self.flushes else { return Ok(()) };
        let is_read_only = self.store.geometry().read_only;
        if is_read_only {
            return Ok(());
        }
        self.store.sync()?;
        match flushes.untold() {
            0 => Ok(()),
            hosts => Err(io::Error::other(format!(
                "an earlier flush had failed, and {hosts} of the hosts that wrote were not told"
            ))),
        }
    }
}

impl execution::Store for OpenStore {
    type Flushes = Flushes;

    #[inline]
    fn flushes(&self) -> Option<&Flushes> {
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
}

impl Marked for OpenStore {
    #[inline]
    fn uncorrectable(&self) -> &Uncorrectable {
        &self.uncorrectable
    }

    fn is_ours(&self) -> bool {
        self.store.custody() == Custody::Ours
    }
}

impl Drop for OpenStore {
    /// Its namespace is gone, perhaps with writes that nobody has flushed. A reactor must not wait for that.
    fn drop(&mut self) {
        let is_clean = self.flushes.as_ref().is_none_or(|flushes| flushes.is_clean());
        if is_clean || *self.closed.get_mut() || self.store.geometry().read_only {
            return;
        }
        let place = self.store.place();
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
