//! State that a target inherits from the process that served before it.

use super::kept_file::write;
use super::listeners::ListenSocket;
use super::stores::{KEPT_NOWHERE, OpenNamespaces};
use roadtrain_target_proto::reservations::parse_image;
use roadtrain_target_proto::{ConfigError, ConfigObject, TargetControl, TlsUse};
use socket2::{Domain, SockRef, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// State of the previous process; see [`Server::succeed`](super::Server::succeed).
#[derive(Debug, Default)]
pub struct Inherited {
    /// Listening sockets. Those at addresses that are not configured are not used.
    pub sockets: Vec<TcpListener>,
    /// Reservations of all namespaces, also those that do not persist.
    pub reservations: Vec<InheritedReservations>,
}

/// The reservations of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedReservations {
    /// NQN of the subsystem.
    pub nqn: String,
    /// NSID of the namespace.
    pub nsid: u32,
    /// Complete state as text with a checksum. It contains the NGUID of its namespace and is valid for no other.
    pub image: Vec<u8>,
}

impl Inherited {
    /// Checks that the socket accepts TCP connections.
    ///
    /// # Errors
    ///
    /// It does not, or cannot be queried.
    pub fn check_socket(socket: &TcpListener) -> io::Result<()> {
        let socket = SockRef::from(socket);
        let is_tcp = matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6)
            && socket.r#type()? == Type::STREAM;
        if is_tcp && socket.is_listener()? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it takes no connections over TCP"))
    }

    /// Listens at those of `addresses` that have no socket yet, so that the start does not fail later because of them;
    /// for `mptcp` beside TCP, if that is set.
    ///
    /// # Errors
    ///
    /// The first address that is not available.
    pub fn listen(&mut self, addresses: &[SocketAddr], mptcp: bool) -> Result<(), ConfigError> {
        for address in addresses.iter().filter(|address| address.port() != 0) {
            let is_there =
                |socket: &TcpListener| socket.local_addr().is_ok_and(|own| own == *address);
            if !self.sockets.iter().any(is_there) {
                let opened = ListenSocket::open(*address, TlsUse::Off, mptcp);
                let unfit = |error: io::Error| ConfigError::Listen {
                    place: ConfigObject::Listener(*address),
                    problem: error.to_string(),
                };
                self.sockets.push(opened.map_err(unfit)?.socket);
            }
        }
        Ok(())
    }

    pub(super) fn adopt_reservations(&self, target: &mut TargetControl) -> Result<(), ConfigError> {
        for InheritedReservations { nqn, nsid, image } in &self.reservations {
            let (nguid, state) = parse_image(image).map_err(|error| {
                let place = ConfigObject::Namespace(nqn.clone(), *nsid);
                ConfigError::Store { place, problem: format!("its reservations: {error}") }
            })?;
            target.adopt_reservations(nqn, *nsid, &nguid, state);
        }
        Ok(())
    }

    /// Writes the reservations that persist to their file. The other process may have kept them in another one.
    pub(super) fn keep_reservations(
        &self,
        target: &TargetControl,
        stores: &OpenNamespaces,
    ) -> Result<(), ConfigError> {
        for InheritedReservations { nqn, nsid, image } in &self.reservations {
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
                place: ConfigObject::Namespace(nqn.clone(), *nsid),
                problem: format!("its reservations: {error}"),
            })?;
        }
        Ok(())
    }
}
