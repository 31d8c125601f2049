//! Changes of namespaces that hosts request: a thread of the program that embeds the target executes them.

use super::TargetControlPlane;
use roadtrain_target_proto::NamespaceRequest;
use roadtrain_wire::status::Status;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;

/// A request: its number, the subsystem, and the change.
pub(super) type NamespaceTask = (u64, Arc<str>, NamespaceRequest);

impl TargetControlPlane {
    /// Starts a thread that executes requests one after the other by `execute`. The thread ends with this value.
    pub(crate) fn manage_namespaces(
        &self,
        execute: impl Fn(&str, &NamespaceRequest) -> Result<u32, Status> + Send + 'static,
    ) -> io::Result<()> {
        let (requests, inbox) = channel::<NamespaceTask>();
        let weak = self.weak.clone();
        let work = move || {
            while let Ok((id, nqn, request)) = inbox.recv() {
                let outcome = execute(&nqn, &request);
                let Some(control) = weak.upgrade() else { return };
                let mut state = control.lock();
                state.target.namespace_request_done(id, outcome);
                control.publish(state);
            }
        };
        thread::Builder::new().name("roadtrain-ns-mgmt".into()).spawn(work)?;
        *self.lock_requests() = Some(requests);
        Ok(())
    }

    /// Ends the thread after the request that it executes.
    pub(super) fn end_namespace_requests(&self) {
        drop(self.lock_requests().take());
    }

    /// Queues a request. Returns true if it will be executed.
    pub(super) fn queue_request(&self, request: NamespaceTask) -> bool {
        self.lock_requests().as_ref().is_some_and(|requests| requests.send(request).is_ok())
    }

    fn lock_requests(&self) -> std::sync::MutexGuard<'_, Option<Sender<NamespaceTask>>> {
        self.namespace_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
