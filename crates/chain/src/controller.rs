//! Connected controllers, shared by the stores of the same subsystem.

use crate::front::{ChainFront, FrontQueue};
use crate::queue::{OperationReply, OwnQueue, SubmittedOperation, put_local};
use roadtrain_host_engine::{HostConfig, HostControlError, HostController, HostControllerView};
use roadtrain_store::StoreCompletions;
use roadtrain_system::guest::GuestSpawner;
use roadtrain_wire::status::Status;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// Controllers that are connected, with the parameters that they were connected with.
static CONTROLLERS: Mutex<Vec<(String, Weak<ChainController>)>> = Mutex::new(Vec::new());
/// Last number of a controller. No number is used twice: the guests of a controller may outlive it.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Connected controller.
pub(crate) struct ChainController {
    /// Number by which its guests' queues are found.
    number: u64,
    view: HostControllerView,
    own: Arc<OwnQueue>,
    /// Controller, until it is closed.
    controller: Mutex<Option<HostController>>,
    /// Number of stores that use it.
    users: AtomicUsize,
}

impl ChainController {
    /// Returns the controller that was connected with the same parameters, or connects one. `key` has all parameters.
    ///
    /// # Errors
    /// Any failure of the first connection; later losses are repaired.
    pub(crate) fn shared(
        key: &str,
        config: &HostConfig,
        threads: Option<&Arc<dyn GuestSpawner>>,
    ) -> Result<Arc<ChainController>, HostControlError> {
        // The lock is kept: two stores of one subsystem that open at the same time share a controller.
        let mut all = CONTROLLERS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, controller)| controller.strong_count() > 0);
        let key = format!("{key} {:?}", threads.map(|threads| Arc::as_ptr(threads).cast::<()>()));
        let known = all.iter().filter(|(known, _)| *known == key);
        let known = known.filter_map(|(_, controller)| controller.upgrade());
        for controller in known {
            if controller.join() {
                return Ok(controller);
            }
        }
        let controller = Arc::new(ChainController::connect(config, threads)?);
        all.push((key, Arc::downgrade(&controller)));
        Ok(controller)
    }

    fn connect(
        config: &HostConfig,
        threads: Option<&Arc<dyn GuestSpawner>>,
    ) -> Result<ChainController, HostControlError> {
        let own = OwnQueue::new()
            .map_err(|source| HostControlError::System { what: "eventfd", source })?;
        let own = Arc::new(own);
        let lanes = 1 + threads.map_or(0, |threads| threads.count());
        let config = HostConfig {
            lanes: u32::try_from(lanes).unwrap_or(1),
            reactors: Some(lanes),
            express: false, // all requests have one class
            ..config.clone()
        };
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed);
        let queue = own.clone();
        let threads = threads.map(|threads| &**threads);
        let controller = HostController::connect_beside(config, threads, move |reactor, _| {
            let queue = match reactor.index {
                0 => FrontQueue::Own { queue: queue.clone(), is_watched: false },
                _ => FrontQueue::Guest { number, is_open: false },
            };
            Box::new(ChainFront::new(queue))
        })?;
        let view = controller.view().clone();
        let (controller, users) = (Mutex::new(Some(controller)), AtomicUsize::new(1));
        Ok(ChainController { number, view, own, controller, users })
    }

    /// Counts one more user. Returns false if it is closed.
    fn join(&self) -> bool {
        let add = |users| (users > 0).then_some(users + 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    pub(crate) fn view(&self) -> &HostControllerView {
        &self.view
    }

    /// Submits an operation on a thread that may have a guest of this controller.
    #[inline]
    pub(crate) fn submit(
        &self,
        operation: SubmittedOperation,
        completions: impl FnOnce() -> StoreCompletions,
    ) {
        if let Err(mut operation) = put_local(self.number, operation) {
            operation.reply = OperationReply::Elsewhere(completions());
            self.submit_elsewhere(operation);
        }
    }

    /// Submits an operation to the controller's own thread.
    pub(crate) fn submit_elsewhere(&self, operation: SubmittedOperation) {
        if let Err(operation) = self.own.put(operation) {
            operation.complete(Err(Status::ANA_INACCESSIBLE));
        }
    }

    /// Ends the use by one store. The last one closes the controller, and waits for that.
    pub(crate) fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(controller) = controller else { return };
        controller.stop();
        controller.join();
    }

    /// Ends the use by one store as [`leave`](ChainController::leave) does, without waiting.
    pub(crate) fn leave_later(self: &Arc<ChainController>) {
        let controller = self.clone();
        let leave = move || controller.leave();
        if let Err(error) = thread::Builder::new().name("roadtrain-detach".into()).spawn(leave) {
            tracing::error!(%error, "a controller stays connected: no thread can end it");
        }
    }
}
