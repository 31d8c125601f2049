//! A thread that runs a check periodically.

use super::watch::CHECK_INTERVAL;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

/// The thread. Dropping it ends it.
pub(crate) struct Poller {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Starts a thread called `name` that calls `check` every half second.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start(name: &str, mut check: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let (end, ending) = channel();
        let body = move || {
            while ending.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                check();
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(body)?;
        Ok(Poller { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
