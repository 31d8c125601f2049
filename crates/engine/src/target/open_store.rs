//! A namespace's store as all reactors share it: with an account of what was written to it and not flushed.

use super::flushes::Flushes;
use roadtrain_store::Store;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open store.
#[derive(Debug)]
pub(crate) struct OpenStore {
    store: Arc<dyn Store>,
    /// `None`: what was written stays, or never was anywhere.
    flushes: Option<Flushes>,
    /// Takes buffers that others write, on the reactor's thread.
    takes_lent: bool,
    /// [`OpenStore::close`] was called.
    closed: AtomicBool,
}

impl OpenStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> OpenStore {
        let flushes = store.is_volatile().then(Flushes::default);
        let takes_lent = store.stays_on_thread();
        OpenStore { store, flushes, takes_lent, closed: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        self.takes_lent
    }

    /// Who is to be told of failed flushes; `None`: none fails.
    #[inline]
    pub(crate) fn flushes(&self) -> Option<&Flushes> {
        self.flushes.as_ref()
    }

    /// Brings everything to stable storage: nobody writes any more. Waits for that.
    ///
    /// # Errors
    /// What was written may be lost, now or earlier without its host being told.
    pub(crate) fn close(&self) -> io::Result<()> {
        let Some(flushes) = &self.flushes else { return Ok(()) };
        let is_read_only = self.store.geometry().read_only;
        if is_read_only || self.closed.swap(true, Ordering::Relaxed) {
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

impl Drop for OpenStore {
    /// Its namespace is gone, perhaps with writes that nobody has flushed. A reactor must not wait for that.
    fn drop(&mut self) {
        let is_clean = self.flushes.as_ref().is_none_or(Flushes::is_clean);
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
