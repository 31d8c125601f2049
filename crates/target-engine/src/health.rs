//! Health of a target's reactors. A reactor that ends unexpectedly takes connections, namespaces and timers along, so
//! the operator of the target must know.

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
    /// Message of the first failure.
    failure: Option<String>,
    /// Callback for the first failure.
    tell: Option<Box<dyn FnOnce() + Send>>,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Calls `tell` at the first failure; immediately if a reactor has already failed.
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

/// Reports the end of a reactor's thread, also by a panic. The thread holds it.
pub(super) struct Warden {
    pub(super) health: Arc<Health>,
    pub(super) number: usize,
}

impl Warden {
    /// Reports the result of the reactor.
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
