//! What has become of a target's reactors. One that ends without being told to takes connections, namespaces and
//! timers along: whoever runs the target has to know.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tracing::error;

/// Shared by a server and its reactors' threads.
#[derive(Default)]
pub(super) struct Health {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first failure.
    failure: Option<String>,
    /// Who is to be told of it.
    tell: Option<Box<dyn FnOnce() + Send>>,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Calls `tell` at the first failure, at once if that has been.
    pub(super) fn on_failure(&self, tell: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.tell = Some(Box::new(tell));
            return;
        }
        drop(state);
        tell();
    }

    fn fail(&self, failure: String) {
        error!("{failure}");
        let mut state = self.lock();
        state.failure.get_or_insert(failure);
        let tell = state.tell.take();
        drop(state);
        if let Some(tell) = tell {
            tell();
        }
    }
}

/// Held by a reactor's thread: reports how it ends, by a panic as well.
pub(super) struct Warden {
    pub(super) health: Arc<Health>,
    pub(super) number: usize,
}

impl Warden {
    /// The reactor has ended.
    pub(super) fn ended(self, result: io::Result<()>) {
        if let Err(error) = result {
            self.health.fail(format!("reactor {} has failed: {error}", self.number));
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        if thread::panicking() {
            self.health.fail(format!("reactor {} has panicked", self.number));
        }
    }
}
