//! Handover: this target ends and another process continues. That process first gets the sockets, then everything else.
//!
//! ```text
//! sockets are shared -> no new connections -> ANA inaccessible -> connections end -> flush -> locks are released
//!                       they wait at the      as in a clean       commands in                 the other process
//!                       same sockets          shutdown            stores complete             opens the stores
//! ```
//!
//! The two processes never have the stores open at the same time: one opens them after the other has closed them.

use super::control::TargetControlPlane;
use super::drain::DepartureKind;
use super::error::ServerError;
use super::export::{Export, ExportBlocks};
use super::inherited::InheritedReservations;
use super::order::TargetReactorMessage;
use super::server::Server;
use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait until nothing refers to a released store. The thread that checks sizes may still do so.
const RELEASE_WAIT: Duration = Duration::from_secs(2);
const RELEASE_CHECK: Duration = Duration::from_millis(1);

/// Failure of a handover.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// The stores are released, but writes of hosts may be lost.
    #[error("{0}")]
    Unsaved(ServerError),
    /// A store does not respond, so this process keeps it open until it ends.
    #[error("the stores are not released: {0}")]
    Held(String),
}

impl Server {
    /// Returns the sockets that accept connections, for [`Inherited::sockets`](super::Inherited::sockets). Their new
    /// owner can accept connections, too, but must not before [`Server::hand_over`] has returned.
    #[must_use]
    pub fn share_sockets(&self) -> Vec<TcpListener> {
        self.query_reactors(TargetReactorMessage::Sockets).flatten().collect()
    }

    /// Ends as [`Server::drain`] and [`Server::shut_down`] do, but keeps the listening sockets open. It has closed all
    /// files and devices when it returns. Other owners of stores that were passed in open must drop them before.
    /// Returns the reservations of all namespaces. `pause` is as in [`Server::drain`].
    ///
    /// # Errors
    ///
    /// Writes may be lost, or a store is not released.
    pub fn hand_over(
        &self,
        mut pause: impl FnMut(Duration) -> bool,
    ) -> (Vec<InheritedReservations>, Result<(), HandOverError>) {
        self.control.broadcast(|| TargetReactorMessage::StopListening);
        self.drain_paths(DepartureKind::ToAnother, &mut pause);
        let ended = self.shut_down();
        let reservations = self.control.all_reservations();
        let released = match self.is_over() {
            true => self.control.release(),
            false => Err("a reactor waits for its store".to_owned()),
        };
        let result = match (released, ended) {
            (Err(why), _) => Err(HandOverError::Held(why)),
            (Ok(()), Err(unsaved)) => Err(HandOverError::Unsaved(unsaved)),
            (Ok(()), Ok(())) => Ok(()),
        };
        (reservations, result)
    }
}

impl TargetControlPlane {
    /// Returns the reservations of namespaces whose blocks this target owns. For the others only their owner knows
    /// them.
    fn all_reservations(&self) -> Vec<InheritedReservations> {
        let state = self.lock();
        let is_own =
            |nqn: &str, nsid| state.stores.get(nqn, nsid).is_some_and(|open| open.store.is_own());
        let all = state.target.all_reservations().filter(|(nqn, nsid, _)| is_own(nqn, *nsid));
        all.map(|(nqn, nsid, image)| InheritedReservations { nqn: nqn.to_owned(), nsid, image })
            .collect()
    }

    /// Closes all files and devices, after the last use.
    fn release(&self) -> Result<(), String> {
        // Waits for a change that has begun; later ones open nothing. Exports hold open stores, too.
        let mut exports = self.lock_exports();
        for subsystem in &mut Arc::make_mut(&mut exports).subsystems {
            let is_open = |export: &Export| matches!(export.blocks, ExportBlocks::Store(_));
            subsystem.namespaces.retain(|export| !is_open(export));
        }
        drop(exports);
        let stores = std::mem::take(&mut self.lock().stores);
        let held: Vec<_> = stores.all().map(|(_, _, open)| Arc::downgrade(open.store())).collect();
        drop(stores);
        let until = Instant::now() + RELEASE_WAIT;
        while held.iter().any(|store| Weak::strong_count(store) > 0) {
            if Instant::now() >= until {
                return Err("they are still in use".to_owned());
            }
            thread::sleep(RELEASE_CHECK);
        }
        Ok(())
    }
}
