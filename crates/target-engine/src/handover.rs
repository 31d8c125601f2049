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
use super::kept_file::write;
use super::listeners::ListenSocket;
use super::order::Order;
use super::server::Server;
use super::stores::{KEPT_NOWHERE, Stores};
use roadtrain_target_proto::reservations::parse_image;
use roadtrain_target_proto::{ConfigError, Place, Target, TlsUse};
use socket2::{Domain, SockRef, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait until nothing holds a store that is given up: what looks at sizes, perhaps.
const RELEASE_WAIT: Duration = Duration::from_secs(2);
const RELEASE_LOOK: Duration = Duration::from_millis(1);

/// What a target has of one before it; see [`Server::succeed`].
#[derive(Debug, Default)]
pub struct Inherited {
    /// Sockets that listen. Those at addresses that are not asked for are not used.
    pub sockets: Vec<TcpListener>,
    /// What namespaces know of reservations, also those that do not persist.
    pub reservations: Vec<Reserved>,
}

/// The reservations of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// NQN of the subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// All that is known, as text with a checksum. It says of which NGUID it is, and is of no other namespace.
    pub image: Vec<u8>,
}

impl Inherited {
    /// Whether that is a socket that takes connections over TCP.
    ///
    /// # Errors
    /// It is not, or cannot be looked at.
    pub fn check_socket(socket: &TcpListener) -> io::Result<()> {
        let socket = SockRef::from(socket);
        let is_tcp = matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6)
            && socket.r#type()? == Type::STREAM;
        if is_tcp && socket.is_listener()? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it takes no connections over TCP"))
    }

    /// Listens at those of `addresses` that are not there yet, so that the rest of the start does not fail for them.
    ///
    /// # Errors
    /// The first that cannot be had.
    pub fn listen(&mut self, addresses: &[SocketAddr]) -> Result<(), ConfigError> {
        for address in addresses.iter().filter(|address| address.port() != 0) {
            let is_there =
                |socket: &TcpListener| socket.local_addr().is_ok_and(|own| own == *address);
            if !self.sockets.iter().any(is_there) {
                let opened = ListenSocket::open(*address, TlsUse::Off);
                let unfit = |error: io::Error| ConfigError::Listen {
                    place: Place::Listener(*address),
                    problem: error.to_string(),
                };
                self.sockets.push(opened.map_err(unfit)?.socket);
            }
        }
        Ok(())
    }

    pub(super) fn adopt_reservations(&self, target: &mut Target) -> Result<(), ConfigError> {
        for Reserved { nqn, nsid, image } in &self.reservations {
            let (nguid, state) = parse_image(image).map_err(|error| {
                let place = Place::Namespace(nqn.clone(), *nsid);
                ConfigError::Store { place, problem: format!("its reservations: {error}") }
            })?;
            target.adopt_reservations(nqn, *nsid, &nguid, state);
        }
        Ok(())
    }

    /// What persists of that is where it is kept from now on: the other process may have kept it elsewhere.
    pub(super) fn keep_reservations(
        &self,
        target: &Target,
        stores: &Stores,
    ) -> Result<(), ConfigError> {
        for Reserved { nqn, nsid, image } in &self.reservations {
            let Ok((nguid, state)) = parse_image(image) else { continue };
            let kept = stores.get(nqn, *nsid).and_then(|open| open.kept.as_ref());
            let known = kept.map(|kept| kept.state.clone()).unwrap_or_default();
            let is_adopted = target.reservations(nqn, *nsid) == Some(&state);
            if !is_adopted || target.reservations_are_kept_as(nqn, *nsid, &known) {
                continue;
            }
            let written = match kept {
                Some(kept) => write(&kept.path, &state.image(&nguid)),
                None => Err(io::Error::other(format!("they {KEPT_NOWHERE}"))),
            };
            written.map_err(|error| ConfigError::Store {
                place: Place::Namespace(nqn.clone(), *nsid),
                problem: format!("its reservations: {error}"),
            })?;
        }
        Ok(())
    }
}

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
    /// The sockets that take connections, for [`Inherited::sockets`]. Whoever has them can take connections, too: not
    /// before [`Server::hand_over`] is done.
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
