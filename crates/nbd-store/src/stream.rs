//! Connection to a server: a socket, and TLS above it.

use crate::{NbdServerAddress, NbdServerError};
use roadtrain_tls::{BLOCKS_MAX, Handshake, Incoming, RecordSocket, TlsError, TlsRecords};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of a buffer for records; more than two of the largest.
const RECORDS_BYTES: usize = 128 << 10;
/// Silence after which a server is probed, the interval of probes, and their number.
const PROBE_AFTER: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// Time after which unacknowledged data ends a connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// Reason why a connection cannot be made, or has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NbdStreamError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("the server has closed the connection")]
    Closed,
    #[error("no reply within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("{0}")]
    Server(#[from] NbdServerError),
    #[error("{0}")]
    Files(String),
}

/// Time limit of a connection's beginning.
#[derive(Clone, Copy)]
pub(crate) struct ConnectDeadline {
    timeout: Duration,
    end: Instant,
}

impl ConnectDeadline {
    pub(crate) fn new(timeout: Duration) -> ConnectDeadline {
        ConnectDeadline { timeout, end: Instant::now() + timeout }
    }

    fn left(&self) -> Result<Duration, NbdStreamError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(NbdStreamError::TimedOut(self.timeout)) } else { Ok(left) }
    }
}

/// Non-blocking socket.
enum NbdSocket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl NbdSocket {
    fn connect(
        address: &NbdServerAddress,
        deadline: ConnectDeadline,
    ) -> Result<NbdSocket, NbdStreamError> {
        match address {
            NbdServerAddress::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(NbdSocket::Unix(socket))
            }
            NbdServerAddress::Tcp { host, port } => {
                let mut error = NbdStreamError::Io(ErrorKind::AddrNotAvailable.into());
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, deadline.left()?) {
                        Ok(socket) => {
                            prepare(&socket)?;
                            return Ok(NbdSocket::Tcp(socket));
                        }
                        Err(failure) => error = failure.into(),
                    }
                }
                Err(error)
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            NbdSocket::Unix(socket) => socket.as_fd(),
            NbdSocket::Tcp(socket) => socket.as_fd(),
        }
    }

    /// Waits until the socket is ready for `flags`.
    fn wait(&self, flags: PollFlags, deadline: ConnectDeadline) -> Result<(), NbdStreamError> {
        let left = deadline.left()?;
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.fd(), flags)], Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let probes = socket2::TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_AFTER)
        .with_retries(PROBES);
    let socket = socket2::SockRef::from(socket);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}

impl RecordSocket for NbdSocket {
    type Error = NbdStreamError;

    fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, NbdStreamError> {
        loop {
            let sent = match self {
                NbdSocket::Unix(socket) => socket.write(bytes),
                NbdSocket::Tcp(socket) => socket.write(bytes),
            };
            match sent {
                Ok(sent) => return Ok(Some(sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<Incoming, NbdStreamError> {
        loop {
            let received = match self {
                NbdSocket::Unix(socket) => socket.read(place),
                NbdSocket::Tcp(socket) => socket.read(place),
            };
            match received {
                Ok(0) if !place.is_empty() => return Ok(Incoming::Closed),
                Ok(count) => return Ok(Incoming::Bytes(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Incoming::Nothing);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Connection to a server.
pub(crate) struct NbdStream {
    socket: NbdSocket,
    tls: Option<TlsRecords>,
    /// Records as they are sent or received.
    records: Vec<u8>,
    /// Received bytes that were not read.
    unread: Vec<u8>,
}

impl NbdStream {
    pub(crate) fn connect(
        address: &NbdServerAddress,
        deadline: ConnectDeadline,
    ) -> Result<NbdStream, NbdStreamError> {
        let socket = NbdSocket::connect(address, deadline)?;
        Ok(NbdStream { socket, tls: None, records: Vec::new(), unread: Vec::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// Begins TLS, of which `handshake` is this end.
    pub(crate) fn secure(
        &mut self,
        mut handshake: Handshake,
        deadline: ConnectDeadline,
    ) -> Result<(), NbdStreamError> {
        let mut place = Vec::new();
        loop {
            let outgoing = std::mem::take(handshake.outgoing());
            self.write_all(&outgoing, deadline)?;
            if handshake.is_done() {
                break;
            }
            place.resize(handshake.wanted().max(1), 0);
            self.read_exact(&mut place, deadline)?;
            handshake.receive(&place)?;
        }
        self.tls = Some(TlsRecords::new(handshake.keys(BLOCKS_MAX)?));
        self.records = vec![0; RECORDS_BYTES];
        Ok(())
    }

    /// Receives available bytes into `place`, which holds two records or more.
    pub(crate) fn receive(&mut self, place: &mut [u8]) -> Result<Incoming, NbdStreamError> {
        if !self.unread.is_empty() {
            let count = self.unread.len().min(place.len());
            place[..count].copy_from_slice(&self.unread[..count]);
            self.unread.drain(..count);
            return Ok(Incoming::Bytes(count));
        }
        match &mut self.tls {
            Some(tls) => tls.receive(&mut self.socket, &mut self.records, &mut [place]),
            None => self.socket.receive(place),
        }
    }

    /// Sends as many bytes as the socket takes; returns their number.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, NbdStreamError> {
        let sent = match &mut self.tls {
            Some(tls) => {
                let pieces = std::iter::once(bytes);
                tls.send(&mut self.socket, pieces, bytes.len(), &mut self.records)?
            }
            None => self.socket.send(bytes)?,
        };
        Ok(sent.unwrap_or(0))
    }

    /// True if taken bytes wait for capacity in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsRecords::has_unsent)
    }

    /// Sends taken bytes.
    pub(crate) fn drain(&mut self) -> Result<(), NbdStreamError> {
        match &mut self.tls {
            Some(tls) => tls.drain(&mut self.socket).map(drop),
            None => Ok(()),
        }
    }

    /// Sends a last message, as far as the socket takes it.
    pub(crate) fn close(&mut self, message: &[u8]) {
        if self.send(message).is_ok()
            && let Some(tls) = &mut self.tls
        {
            tls.close_notify(&mut self.socket);
        }
    }

    /// Fills `place`. Without TLS nothing behind it is received.
    pub(crate) fn read_exact(
        &mut self,
        place: &mut [u8],
        deadline: ConnectDeadline,
    ) -> Result<(), NbdStreamError> {
        let mut filled = 0;
        let mut opened = Vec::new();
        while filled < place.len() {
            let incoming = match (&self.tls, self.unread.is_empty()) {
                (Some(_), true) => {
                    opened.resize(RECORDS_BYTES, 0);
                    let incoming = self.receive(&mut opened)?;
                    if let Incoming::Bytes(count) = incoming {
                        self.unread.extend_from_slice(&opened[..count]);
                        continue;
                    }
                    incoming
                }
                _ => self.receive(&mut place[filled..])?,
            };
            match incoming {
                Incoming::Bytes(count) => filled += count,
                Incoming::Closed => return Err(NbdStreamError::Closed),
                Incoming::Nothing => self.socket.wait(PollFlags::IN, deadline)?,
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    pub(crate) fn write_all(
        &mut self,
        mut bytes: &[u8],
        deadline: ConnectDeadline,
    ) -> Result<(), NbdStreamError> {
        while !bytes.is_empty() || self.has_unsent() {
            let sent = self.send(bytes)?;
            bytes = &bytes[sent..];
            if !bytes.is_empty() && sent == 0 || self.has_unsent() {
                self.socket.wait(PollFlags::OUT, deadline)?;
                self.drain()?;
            }
        }
        Ok(())
    }
}
