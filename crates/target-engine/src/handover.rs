//! A target that ends so that another process goes on: that one gets the sockets, and then everything else.
//!
//! ```text
//! sockets are shared -> no new connections -> ANA inaccessible -> connections end -> flush -> locks are given up
//!                       they wait at the      as in a clean       commands in                 the other one opens
//!                       same sockets          departure           stores are done             the stores
//! ```
//!
//! At no instant both have the stores: the one opens them when the other has closed them.

use super::control::Control;
use super::drain::Leave;
use super::error::ServerError;
use super::export::{Blocks, Export};
use super::inherited::Reserved;
use super::order::Order;
use super::server::Server;
use std::net::TcpListener;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait until nothing holds a store that is given up: what looks at sizes, perhaps.
const RELEASE_WAIT: Duration = Duration::from_secs(2);
const RELEASE_LOOK: Duration = Duration::from_millis(1);

/// Why a target has not ended as it should.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// The stores are given up; something that hosts have written may be lost.
    #[error("{0}")]
    Unsaved(ServerError),
    /// A store does not answer, and is not given up before this process ends.
    #[error("the stores are not given up: {0}")]
    Held(String),
}

impl Server {
    /// The sockets that take connections, for [`Inherited::sockets`](super::Inherited::sockets). Whoever has them can
    /// take connections, too: not before [`Server::hand_over`] is done.
    #[must_use]
    pub fn share_sockets(&self) -> Vec<TcpListener> {
        self.ask(Order::Sockets).flatten().collect()
    }

    /// Ends as [`Server::drain`] and [`Server::shut_down`] do, but closes no socket that connections come to, and has
    /// closed all files and devices when it returns. Stores that were given to it open have to be let go by whoever has
    /// them besides, before. What namespaces know of reservations then. `pause` as there.
    ///
    /// # Errors
    /// Something may be lost, or is not given up.
    pub fn hand_over(
        &self,
        mut pause: impl FnMut(Duration) -> bool,
    ) -> (Vec<Reserved>, Result<(), HandOverError>) {
        self.control.broadcast(|| Order::StopListening);
        self.take_leave(Leave::ToAnother, &mut pause);
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

impl Control {
    /// Of what others have the blocks of, only they know it.
    fn all_reservations(&self) -> Vec<Reserved> {
        let state = self.lock();
        let is_own =
            |nqn: &str, nsid| state.stores.get(nqn, nsid).is_some_and(|open| open.store.is_own());
        let all = state.target.all_reservations().filter(|(nqn, nsid, _)| is_own(nqn, *nsid));
        all.map(|(nqn, nsid, image)| Reserved { nqn: nqn.to_owned(), nsid, image }).collect()
    }

    /// Closes all files and devices, which nobody uses any more.
    fn release(&self) -> Result<(), String> {
        // A change that has begun is over then; none begins that opens anything. Exports have stores open, too.
        for subsystem in &mut self.lock_exports().subsystems {
            let is_open = |export: &Export| matches!(export.blocks, Blocks::Store(_));
            subsystem.namespaces.retain(|export| !is_open(export));
        }
        let stores = std::mem::take(&mut self.lock().stores);
        let held: Vec<_> = stores.all().map(|(_, _, open)| Arc::downgrade(open.store())).collect();
        drop(stores);
        let until = Instant::now() + RELEASE_WAIT;
        while held.iter().any(|store| Weak::strong_count(store) > 0) {
            if Instant::now() >= until {
                return Err("something still uses them".to_owned());
            }
            thread::sleep(RELEASE_LOOK);
        }
        Ok(())
    }
}
