//! Health of a target's reactors. A reactor that ends unexpectedly takes connections, namespaces and timers along, so
//! the operator of the target must know.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tracing::error;

/// Shared by a server and its reactors' threads.
#[derive(Default)]
pub(super) struct ReactorHealth {
    state: Mutex<HealthState>,
}

#[derive(Default)]
struct HealthState {
    /// Message of the first failure.
    failure: Option<String>,
    /// Callback for the first failure.
    callback: Option<Box<dyn FnOnce() + Send>>,
}

impl ReactorHealth {
    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Calls `callback` at the first failure; immediately if a reactor has already failed.
    pub(super) fn on_failure(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.callback = Some(Box::new(callback));
            return;
        }
        drop(state);
        callback();
    }

    fn fail(&self, failure: String) {
        error!("{failure}");
        let mut state = self.lock();
        state.failure.get_or_insert(failure);
        let callback = state.callback.take();
        drop(state);
        if let Some(callback) = callback {
            callback();
        }
    }
}

/// Reports the end of a reactor's thread, also by a panic. The thread holds it.
pub(super) struct ReactorExitReporter {
    pub(super) health: Arc<ReactorHealth>,
    pub(super) number: usize,
}

impl ReactorExitReporter {
    /// Reports the result of the reactor.
    pub(super) fn ended(self, result: io::Result<()>) {
        if let Err(error) = result {
            self.health.fail(format!("reactor {} has failed: {error}", self.number));
        }
    }
}

impl Drop for ReactorExitReporter {
    fn drop(&mut self) {
        if thread::panicking() {
            self.health.fail(format!("reactor {} has panicked", self.number));
        }
    }
}
