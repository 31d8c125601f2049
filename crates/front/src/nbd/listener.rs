//! The listening socket of a server, and the file of a Unix one.

use super::address::NbdAddress;
use roadtrain_reactor::tuning::{probe_silent_peer, tune_socket};
use roadtrain_system::platform::listen_problem;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most connections waiting to be accepted.
const BACKLOG: i32 = 128;

/// Message of a server that refuses to listen.
const NOT_LOCAL: &str = "without TLS any client that can connect would have the disk: use --nbd-tls-psk or \
    --nbd-tls-certificates, a Unix socket, the loopback, or --nbd-insecure if all clients on the network may have it";

/// Clients whose connections a server accepts over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NbdClients {
    /// Clients on this machine: the server listens on the loopback only.
    #[default]
    Local,
    /// Any client that can reach the server.
    Anyone,
    /// Clients that TLS admits.
    Secured,
}

/// A listening socket; its file, if it has one, is removed with it.
#[derive(Debug)]
pub(crate) struct FrontListener {
    socket: Socket,
    address: NbdAddress,
    file: Option<SocketFile>,
}

impl FrontListener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// `AddrInUse` if a live server has the address, or its path is a file of another kind. `Unsupported` if clients on
    /// other machines could connect that are not allowed.
    pub(crate) fn bind(address: &NbdAddress, clients: NbdClients) -> io::Result<Self> {
        let listener = match address {
            NbdAddress::Unix(path) => Self::bind_unix(path),
            NbdAddress::Tcp { host, port } => Self::bind_tcp(host, *port, clients),
        };
        listener.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
    }

    /// Listens at `path`.
    ///
    /// # Errors
    /// Returns the errors of [`FrontListener::bind`].
    pub(crate) fn bind_unix(path: &Path) -> io::Result<Self> {
        let at = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        match socket.bind(&at) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path, &at)?;
                socket.bind(&at)?;
            }
            bound => bound?,
        }
        let file = Some(SocketFile::of(path)?);
        Self::listen(socket, NbdAddress::Unix(path.to_owned()), file)
    }

    fn bind_tcp(host: &str, port: u16, clients: NbdClients) -> io::Result<Self> {
        let mut error = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            if clients == NbdClients::Local && !address.ip().to_canonical().is_loopback() {
                error = io::Error::new(ErrorKind::Unsupported, NOT_LOCAL);
                continue;
            }
            match Self::bind_tcp_address(address) {
                Ok(listener) => return Ok(listener),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    fn bind_tcp_address(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into()).map_err(|error| {
            let problem = listen_problem(address, &error);
            io::Error::new(error.kind(), problem)
        })?;
        // The actual port, if the system chose it.
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        let address = NbdAddress::Tcp { host: bound.ip().to_string(), port: bound.port() };
        Self::listen(socket, address, None)
    }

    fn listen(socket: Socket, address: NbdAddress, file: Option<SocketFile>) -> io::Result<Self> {
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(FrontListener { socket, address, file })
    }

    /// Returns the listening address, with the port that the system chose.
    pub(crate) fn address(&self) -> &NbdAddress {
        &self.address
    }

    /// Accepts the next connection, with its peer address over TCP; `None` if no connection waits.
    pub(crate) fn accept(&self) -> io::Result<Option<(Socket, Option<SocketAddr>)>> {
        let (socket, peer) = match self.socket.accept() {
            Ok((socket, peer)) => (socket, peer.as_socket()),
            Err(error) if is_passing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(true)?;
        if self.file.is_none() {
            tune_socket(&socket)?;
            // A client may be idle for ever, but one that is gone is not kept.
            probe_silent_peer(&socket)?;
        }
        Ok(Some((socket, peer)))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for FrontListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// True for errors of a connection that is gone or not there: the listener itself works.
fn is_passing(error: &io::Error) -> bool {
    use ErrorKind::*;
    matches!(
        error.kind(),
        WouldBlock
            | Interrupted
            | ConnectionAborted
            | NetworkDown
            | NetworkUnreachable
            | HostUnreachable
            | PermissionDenied
    )
}

/// Removes the socket file that a dead server left.
fn remove_stale(path: &Path, at: &SockAddr) -> io::Result<()> {
    let in_use = |what| Err(io::Error::new(ErrorKind::AddrInUse, what));
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("exists and is not a socket");
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(at) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // Connected, or its queue is full.
        _ => in_use("another server listens there"),
    }
}

/// Removes the file of a Unix socket when dropped, unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        // The drop must work in another working directory too.
        let path = std::path::absolute(path)?;
        let metadata = std::fs::symlink_metadata(&path)?;
        Ok(SocketFile { path, device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Ok(metadata) = std::fs::symlink_metadata(&self.path) else { return };
        if (metadata.dev(), metadata.ino()) == (self.device, self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(directory: &tempfile::TempDir) -> NbdAddress {
        NbdAddress::Unix(directory.path().join("a.sock"))
    }

    #[test]
    fn the_socket_file_goes_with_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let address = unix(&directory);
        let listener = FrontListener::bind(&address, NbdClients::Local).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let error = FrontListener::bind(&address, NbdClients::Local).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains("another server listens there"), "{error}");
        drop(listener);
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_dead_servers_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        FrontListener::bind(&unix(&directory), NbdClients::Local).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.sock"), "precious").unwrap();
        let error = FrontListener::bind(&unix(&directory), NbdClients::Local).unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(std::fs::read(directory.path().join("a.sock")).unwrap(), b"precious");
    }

    #[test]
    fn a_replaced_file_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let listener = FrontListener::bind(&unix(&directory), NbdClients::Local).unwrap();
        let path = directory.path().join("a.sock");
        // Made before the old one is removed, so that the inode differs.
        std::fs::write(directory.path().join("new"), "").unwrap();
        std::fs::rename(directory.path().join("new"), &path).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[test]
    fn a_chosen_port_is_returned() {
        let address = "nbd:tcp:127.0.0.1:0".parse().unwrap();
        let listener = FrontListener::bind(&address, NbdClients::Local).unwrap();
        let NbdAddress::Tcp { host, port } = listener.address() else { panic!("not TCP") };
        assert_eq!(host, "127.0.0.1");
        assert_ne!(*port, 0);
        let error = FrontListener::bind_tcp_address(([127, 0, 0, 1], *port).into()).unwrap_err();
        let owner = format!("process {} (", std::process::id());
        assert!(error.to_string().starts_with(&owner), "{error}");
    }

    /// Clients on other machines get the disk only if that was configured.
    #[test]
    fn only_the_loopback_is_listened_on() {
        let bind = |text: &str, clients| {
            let bound = FrontListener::bind(&text.parse().unwrap(), clients);
            bound.map(drop).map_err(|error| (error.kind(), error.to_string()))
        };
        for text in ["nbd:tcp:0.0.0.0:0", "nbd:tcp:[::]:0", "nbd:tcp:192.0.2.1:0"] {
            let (kind, message) = bind(text, NbdClients::Local).unwrap_err();
            assert_eq!(kind, ErrorKind::Unsupported);
            assert!(
                message.contains("Unix socket") && message.contains("--nbd-insecure"),
                "{message}"
            );
        }
        for (text, clients) in [
            ("nbd:tcp:127.0.0.1:0", NbdClients::Local),
            ("nbd:tcp:localhost:0", NbdClients::Local),
            ("nbd:tcp:0.0.0.0:0", NbdClients::Anyone),
        ] {
            assert_eq!(bind(text, clients), Ok(()), "{text}");
        }
    }
}
