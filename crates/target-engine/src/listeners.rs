//! Sockets that accept TCP connections.

use roadtrain_system::platform::{listen_problem, listening_at, mptcp};
use roadtrain_target_proto::{ConfigError, ConfigObject, TargetListener, TlsUse};
use socket2::{Domain, SockRef, Socket};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Longest wait for an address in use, and the delay between two attempts.
const BIND_WAIT: Duration = Duration::from_secs(2);
const BIND_PAUSE: Duration = Duration::from_millis(50);
/// Longest wait for an address that a living process uses. That process may be about to end.
const LIVING_WAIT: Duration = Duration::from_millis(200);

/// Listening socket and its use of TLS.
pub(super) struct ListenSocket {
    pub(super) socket: TcpListener,
    pub(super) tls: TlsUse,
}

impl ListenSocket {
    /// Listens at the address, for MPTCP beside TCP if `mptcp` is set and the kernel offers it.
    pub(super) fn open(address: SocketAddr, tls: TlsUse, mptcp: bool) -> io::Result<Self> {
        let socket = mptcp::stream_socket(Domain::for_address(address), mptcp)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        bind(&socket, address)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(ListenSocket { socket: socket.into(), tls })
    }

    /// Clones a listening socket of another process, or of an earlier target of this process.
    fn inherited(socket: &TcpListener, tls: TlsUse) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        Ok(ListenSocket { socket, tls })
    }

    pub(super) fn is_at(&self, address: SocketAddr) -> bool {
        self.socket.local_addr().is_ok_and(|own| own == address)
    }

    /// Refuses connections from now on, even if a ring still watches the socket.
    pub(super) fn close(self) {
        let _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
    }
}

/// Sockets of a configuration that is not in force yet. Dropping them closes them.
pub(super) struct OpenedListeners {
    /// All listeners of the configuration, with the ports that the system has chosen.
    pub(super) listeners: Vec<TargetListener>,
    /// Sockets of the new listeners.
    pub(super) sockets: Vec<ListenSocket>,
}

/// Opens the `wanted` listeners, for `mptcp` or for TCP only. Keeps the `configured` ones that are open, and uses
/// `inherited` sockets as they are.
///
/// # Errors
///
/// The first address that is not available.
pub(super) fn open(
    wanted: &[TargetListener],
    (configured, open): (&[TargetListener], &[TargetListener]),
    (inherited, mptcp): (&[TcpListener], bool),
) -> Result<OpenedListeners, ConfigError> {
    let mut opened = OpenedListeners { listeners: Vec::new(), sockets: Vec::new() };
    for listener in wanted {
        let known = open.iter().find(|open| open.portid == listener.portid);
        if let Some(known) =
            known.filter(|_| configured.iter().any(|one| one.is_same_listener(listener)))
        {
            opened.listeners.push(TargetListener { address: known.address, ..*listener });
            continue;
        }
        let is_there = |socket: &&TcpListener| {
            socket.local_addr().is_ok_and(|address| address == listener.address)
        };
        let opening = match inherited.iter().find(is_there) {
            Some(socket) => {
                report_protocol(socket, listener.address, mptcp);
                ListenSocket::inherited(socket, listener.tls)
            }
            None => ListenSocket::open(listener.address, listener.tls, mptcp),
        };
        let (socket, address) = opening
            .and_then(|new| new.socket.local_addr().map(|address| (new, address)))
            .map_err(|error| {
                let place = ConfigObject::Listener(listener.address);
                ConfigError::Listen { place, problem: listen_problem(listener.address, &error) }
            })?;
        opened.sockets.push(socket);
        opened.listeners.push(TargetListener { address, ..*listener });
    }
    Ok(opened)
}

/// Warns if an inherited socket is not for MPTCP as configured: its protocol cannot change.
fn report_protocol(socket: &TcpListener, address: SocketAddr, mptcp: bool) {
    let has_mptcp = mptcp::is_mptcp(socket);
    if has_mptcp != mptcp {
        let (is, to) = if has_mptcp { ("takes", "end") } else { ("does not take", "begin") };
        warn!("{address} {is} MPTCP, as the process before has opened it: restart to {to} that");
    }
}

/// Binds the socket. Retries while the address is in use: the ring of a target that was killed keeps its listener open
/// a little longer than the process. Waiting for a process that continues is in vain.
fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let error = match socket.bind(&address.into()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
            result => return result,
        };
        let lives = || listening_at(address).is_some_and(|there| !there.is_ending);
        let waited = begun.elapsed();
        if waited >= BIND_WAIT || (waited >= LIVING_WAIT && lives()) {
            return Err(error);
        }
        thread::sleep(BIND_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_had_says_why() {
        let failed = |address: SocketAddr| {
            let error = ListenSocket::open(address, TlsUse::Off, false).err().unwrap();
            listen_problem(address, &error)
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let begun = Instant::now();
        let in_use = failed(address);
        assert!(in_use.starts_with(&format!("process {} (", std::process::id())), "{in_use}");
        assert!(begun.elapsed() < BIND_WAIT, "the process does not end");
        assert!(failed("192.0.2.1:4420".parse().unwrap()).contains("no address of this machine"));
    }
}
