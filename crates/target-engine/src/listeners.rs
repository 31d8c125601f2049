//! Sockets that take connections over TCP.

use roadtrain_target_proto::{ConfigError, Listener, Place, TlsUse};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Longest wait for an address that is still in use, and the pause between two tries.
const BIND_WAIT: Duration = Duration::from_secs(2);
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// Where connections come, and what is asked of them.
pub(super) struct ListenSocket {
    pub(super) socket: TcpListener,
    pub(super) tls: TlsUse,
}

impl ListenSocket {
    pub(super) fn open(address: SocketAddr, tls: TlsUse) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        bind(&socket, address)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(ListenSocket { socket: socket.into(), tls })
    }

    /// A socket that another process, or an earlier target of this one, has listened at.
    fn inherited(socket: &TcpListener, tls: TlsUse) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        Ok(ListenSocket { socket, tls })
    }

    pub(super) fn is_at(&self, address: SocketAddr) -> bool {
        self.socket.local_addr().is_ok_and(|own| own == address)
    }

    /// Refuses connections from now on, though a ring may still watch the socket.
    pub(super) fn close(self) {
        let _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
    }
}

/// Sockets of a configuration that is not in force yet. Dropping them closes them.
pub(super) struct Opened {
    /// All listeners of the configuration, with the ports that the system has chosen.
    pub(super) listeners: Vec<Listener>,
    /// Of those that were not there before.
    pub(super) sockets: Vec<ListenSocket>,
}

/// Opens what is `wanted`, but for what was `asked` for before and is open, and takes of `inherited` what is there.
///
/// # Errors
/// The first address that cannot be had.
pub(super) fn open(
    wanted: &[Listener],
    (asked, open): (&[Listener], &[Listener]),
    inherited: &[TcpListener],
) -> Result<Opened, ConfigError> {
    let mut opened = Opened { listeners: Vec::new(), sockets: Vec::new() };
    for listener in wanted {
        let known = open.iter().find(|open| open.portid == listener.portid);
        if let Some(known) = known.filter(|_| asked.iter().any(|one| one.is_same_place(listener))) {
            opened.listeners.push(Listener { address: known.address, ..*listener });
            continue;
        }
        let is_there = |socket: &&TcpListener| {
            socket.local_addr().is_ok_and(|address| address == listener.address)
        };
        let opening = match inherited.iter().find(is_there) {
            Some(socket) => ListenSocket::inherited(socket, listener.tls),
            None => ListenSocket::open(listener.address, listener.tls),
        };
        let (socket, address) = opening
            .and_then(|new| new.socket.local_addr().map(|address| (new, address)))
            .map_err(|error| {
                let place = Place::Listener(listener.address);
                ConfigError::Listen { place, problem: error.to_string() }
            })?;
        opened.sockets.push(socket);
        opened.listeners.push(Listener { address, ..*listener });
    }
    Ok(opened)
}

/// Binds; an address still in use is tried again for a moment, because the ring of a target that was killed
/// keeps its listener open a little longer than the process lives.
fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    let until = Instant::now() + BIND_WAIT;
    loop {
        match socket.bind(&address.into()) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(BIND_PAUSE);
            }
            result => return result,
        }
    }
}
