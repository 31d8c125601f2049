//! A byte stream to a peer: the socket of a connection, plain or with TLS.
//!
//! Plain TCP is one kind, TLS by the kernel or in user space the others: one match per call, none per byte. So this
//! interface requires nothing that a TLS socket cannot do. Unwanted bytes are read, not truncated; nothing is peeked
//! at; the number of unread bytes is returned only where it is known.

mod kernel_tls;
mod tls;

use kernel_tls::KernelTls;
pub use roadtrain_tls::Incoming;
use roadtrain_tls::TlsSessionKeys;
use rustix::buffer::Buffer;
use rustix::io::Errno;
pub use rustix::net::RecvFlags;
use rustix::net::{self, SendAncillaryBuffer, SendFlags};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use tls::TlsStream;

/// Bytes discarded at once, and the limit of calls, for unread bytes of a peer at the end of a connection.
const DISCARD_BYTES: usize = 64 << 10;
const DISCARD_CALLS_MAX: u32 = 256;

/// A connected stream.
pub enum ConnectionStream {
    /// TCP.
    Plain(OwnedFd),
    /// TLS records over TCP, which the kernel seals and opens.
    KernelTls(Box<KernelTls>),
    /// TLS records over TCP, sealed and opened in user space.
    Tls(Box<TlsStream>),
}

impl AsFd for ConnectionStream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ConnectionStream::Plain(socket) => socket.as_fd(),
            ConnectionStream::KernelTls(tls) => tls.as_fd(),
            ConnectionStream::Tls(tls) => tls.as_fd(),
        }
    }
}

impl ConnectionStream {
    /// A stream on a socket whose handshake has made `keys`: the kernel seals and opens records where it can.
    pub fn secured(socket: OwnedFd, keys: TlsSessionKeys) -> io::Result<ConnectionStream> {
        Ok(match KernelTls::new(socket, &keys)? {
            Ok(tls) => ConnectionStream::KernelTls(Box::new(tls)),
            Err(socket) => ConnectionStream::Tls(Box::new(TlsStream::new(socket, keys))),
        })
    }

    /// Returns the place where records are sealed and opened: `none`, `kernel`, `user space`.
    pub fn records(&self) -> &'static str {
        match self {
            ConnectionStream::Plain(_) => "none",
            ConnectionStream::KernelTls(_) => "kernel",
            ConnectionStream::Tls(_) => "user space",
        }
    }

    /// True if bytes arrive as the peer has sent them, without decryption.
    #[inline]
    pub fn is_plain(&self) -> bool {
        matches!(self, ConnectionStream::Plain(_))
    }

    /// Returns the descriptor, for readiness only.
    #[inline]
    pub fn fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// Receives once into `places`, without waiting.
    ///
    /// # Safety
    /// They name writable memory that nothing else uses meanwhile.
    #[inline(always)]
    pub unsafe fn receive(&mut self, places: &mut [libc::iovec]) -> io::Result<Incoming> {
        // SAFETY: the places are writable by this function's contract.
        unsafe {
            match (self, &*places) {
                (ConnectionStream::Plain(socket), [place]) => {
                    let start = place.iov_base.cast::<MaybeUninit<u8>>();
                    let bytes = from_raw_parts_mut(start, place.iov_len);
                    receive_bytes(socket.as_fd(), bytes, RecvFlags::empty())
                }
                (ConnectionStream::Plain(socket), _) => {
                    receive(socket.as_raw_fd(), &mut message_of(places))
                }
                (ConnectionStream::KernelTls(tls), _) => tls.receive(places),
                (ConnectionStream::Tls(tls), _) => tls.receive(places),
            }
        }
    }

    /// True if more may be available at once after a receive of `got` bytes into `room` bytes.
    #[inline]
    pub fn is_full(&self, got: usize, room: usize) -> bool {
        match self {
            ConnectionStream::Plain(_) => got == room,
            ConnectionStream::KernelTls(tls) => tls.is_full(),
            ConnectionStream::Tls(tls) => tls.is_full(),
        }
    }

    /// Sends once, without waiting; returns the bytes taken, or `None` when the socket is full.
    ///
    /// # Safety
    /// They name readable memory.
    #[inline(always)]
    pub unsafe fn send(&mut self, pieces: &[libc::iovec]) -> io::Result<Option<usize>> {
        // SAFETY: the pieces are readable by this function's contract.
        unsafe {
            match self {
                ConnectionStream::Plain(socket) => send(socket.as_fd(), pieces),
                ConnectionStream::KernelTls(tls) => {
                    if !tls.prepare()? {
                        return Ok(None);
                    }
                    let sent = send(tls.as_fd(), pieces)?;
                    tls.sent(sent.unwrap_or(0))?;
                    Ok(sent)
                }
                ConnectionStream::Tls(tls) => tls.send(pieces),
            }
        }
    }

    /// True if bytes that [`ConnectionStream::send`] has taken wait for capacity in the socket.
    pub fn has_unsent(&self) -> bool {
        match self {
            ConnectionStream::Plain(_) | ConnectionStream::KernelTls(_) => false,
            ConnectionStream::Tls(tls) => tls.has_unsent(),
        }
    }

    /// Sends the bytes that [`ConnectionStream::send`] has taken. False if some still wait for capacity in the socket.
    #[inline]
    pub fn drain(&mut self) -> io::Result<bool> {
        match self {
            ConnectionStream::Plain(_) | ConnectionStream::KernelTls(_) => Ok(true),
            ConnectionStream::Tls(tls) => tls.drain(),
        }
    }

    /// Returns the bytes that a receive would return at once; `None` where that is unknown: a TLS socket holds records.
    pub fn unread(&self) -> Option<usize> {
        let ConnectionStream::Plain(socket) = self else { return None };
        let mut unread: libc::c_int = 0;
        // SAFETY: the kernel writes an int there.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut unread) };
        (done == 0).then_some(unread as usize)
    }

    /// True if the peer has ended the stream, though earlier bytes may be unread.
    #[inline]
    pub fn is_hung_up(&self) -> bool {
        any_hung_up(&[self.fd()])
    }

    /// Ends the stream in order: bytes already sent still reach the peer. Closing with unread bytes would reset the
    /// connection and lose the last of them, so this function reads them.
    pub fn end(&mut self) {
        match self {
            ConnectionStream::Plain(_) => {}
            ConnectionStream::KernelTls(tls) => tls.close_notify(),
            ConnectionStream::Tls(tls) => tls.close_notify(),
        }
        self.end_half();
    }

    /// Ends the stream in order, without a TLS alert.
    pub fn end_half(&self) {
        // SAFETY: plain system call on our own descriptor.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) };
        let mut unwanted = Vec::new();
        for _ in 0..DISCARD_CALLS_MAX {
            unwanted.resize(DISCARD_BYTES, 0u8);
            let got = receive_bytes(self.as_fd(), &mut unwanted[..], RecvFlags::empty());
            if !matches!(got, Ok(Incoming::Bytes(_))) {
                return;
            }
        }
    }

    /// Makes closing abrupt (RST): nothing more of this connection reaches the peer.
    #[inline]
    pub fn reset_on_close(&self) {
        let _ = socket2::SockRef::from(self).set_linger(Some(std::time::Duration::ZERO));
    }

    /// Makes closing orderly (FIN): bytes already sent reach the peer first.
    #[inline]
    pub fn linger_on_close(&self) {
        let _ = socket2::SockRef::from(self).set_linger(None);
    }
}

/// Flags of sends: never block, and return an error instead of a signal when the peer has gone.
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Receives once into one buffer, without waiting. `recv` costs the kernel less than `recvmsg`, and is no point where
/// the thread may be cancelled: 70 instructions less in user space.
#[inline]
pub fn receive_bytes(
    socket: BorrowedFd<'_>,
    bytes: impl Buffer<u8>,
    flags: RecvFlags,
) -> io::Result<Incoming> {
    match net::recv(socket, bytes, RecvFlags::DONTWAIT | flags) {
        Ok((_, 0)) => Ok(Incoming::Closed),
        Ok((_, got)) => Ok(Incoming::Bytes(got)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Incoming::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// # Safety
/// The pieces name readable memory.
#[inline]
unsafe fn send(socket: BorrowedFd<'_>, pieces: &[libc::iovec]) -> io::Result<Option<usize>> {
    // SAFETY: by this function's contract, and an `IoSlice` is an iovec.
    unsafe {
        match pieces {
            [piece] => send_bytes(socket, from_raw_parts(piece.iov_base.cast(), piece.iov_len)),
            _ => {
                let slices = from_raw_parts(pieces.as_ptr().cast(), pieces.len());
                let mut ancillary = SendAncillaryBuffer::default();
                taken(net::sendmsg(socket, slices, &mut ancillary, SEND_FLAGS))
            }
        }
    }
}

/// Sends once from one buffer, without waiting; returns the bytes taken, or `None` when the socket is full.
#[inline]
pub fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    taken(net::send(socket, bytes, SEND_FLAGS))
}

#[inline]
fn taken(sent: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match sent {
        Ok(sent) => Ok(Some(sent)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::INTR) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

fn message_of(places: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = places.as_mut_ptr();
    message.msg_iovlen = places.len();
    message
}

/// # Safety
/// The memory that the message names is writable.
unsafe fn receive(socket: RawFd, message: &mut libc::msghdr) -> io::Result<Incoming> {
    // SAFETY: by this function's contract.
    let got = unsafe { libc::recvmsg(socket, message, libc::MSG_DONTWAIT) };
    match got {
        0 => Ok(Incoming::Closed),
        got if got > 0 => Ok(Incoming::Bytes(got as usize)),
        _ => {
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Incoming::Nothing),
                _ => Err(error),
            }
        }
    }
}

/// True if the peer has ended the connection of one of `sockets`, even if earlier bytes are unread.
pub fn any_hung_up(sockets: &[RawFd]) -> bool {
    let poll = |&fd| libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    let mut polls: Vec<libc::pollfd> = sockets.iter().map(poll).collect();
    // SAFETY: `polls` is a valid array of that length.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_system::platform::mptcp;
    use socket2::Domain;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    pub(crate) fn pair() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        (far, listener.accept().unwrap().0.into())
    }

    pub(crate) fn wait_readable(stream: &ConnectionStream) {
        let mut polls = [libc::pollfd { fd: stream.fd(), events: libc::POLLIN, revents: 0 }];
        // SAFETY: `polls` is a valid array of that length.
        assert_eq!(unsafe { libc::poll(polls.as_mut_ptr(), 1, 30_000) }, 1);
    }

    pub(crate) fn receive(stream: &mut ConnectionStream, bytes: &mut [u8]) -> io::Result<Incoming> {
        let iov_base = bytes.as_mut_ptr().cast();
        // SAFETY: `bytes` is ours.
        unsafe { stream.receive(&mut [libc::iovec { iov_base, iov_len: bytes.len() }]) }
    }

    pub(crate) fn send(stream: &mut ConnectionStream, bytes: &[u8]) -> io::Result<Option<usize>> {
        let iov_base = bytes.as_ptr().cast_mut().cast();
        // SAFETY: `bytes` is readable, and only read.
        unsafe { stream.send(&[libc::iovec { iov_base, iov_len: bytes.len() }]) }
    }

    /// Checks receive, unread bytes, send, and the end of the stream.
    #[test]
    fn bytes_come_and_go() {
        let (mut far, socket) = pair();
        let mut stream = ConnectionStream::Plain(socket);
        let mut bytes = [0; 16];
        assert_eq!(receive(&mut stream, &mut bytes).unwrap(), Incoming::Nothing);
        far.write_all(b"hello").unwrap();
        wait_readable(&stream);
        assert_eq!(stream.unread(), Some(5));
        assert_eq!(receive(&mut stream, &mut bytes).unwrap(), Incoming::Bytes(5));
        assert_eq!(&bytes[..5], b"hello");
        assert_eq!(send(&mut stream, &bytes[..5]).unwrap(), Some(5));
        far.read_exact(&mut bytes[5..10]).unwrap();
        assert_eq!(&bytes[5..10], b"hello");
        assert!(!stream.is_hung_up());
        drop(far);
        wait_readable(&stream);
        assert!(stream.is_hung_up());
        assert_eq!(receive(&mut stream, &mut bytes).unwrap(), Incoming::Closed);
    }

    /// Unread bytes of the peer do not cost it the last reply.
    #[test]
    fn an_orderly_end_lets_the_last_bytes_arrive() {
        /// Fits every receive buffer.
        const UNREAD: usize = 20_000;
        let (mut far, socket) = pair();
        let mut stream = ConnectionStream::Plain(socket);
        far.write_all(&[7; UNREAD]).unwrap();
        wait_readable(&stream);
        assert_eq!(send(&mut stream, b"last").unwrap(), Some(4));
        let deadline = Instant::now() + Duration::from_secs(30);
        while stream.unread() != Some(UNREAD) {
            assert!(Instant::now() < deadline, "{:?} bytes are unread", stream.unread());
            std::thread::yield_now();
        }
        stream.end();
        drop(stream);
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"last");
    }

    #[test]
    fn a_reset_is_an_error_at_the_other_end() {
        let (mut far, socket) = pair();
        let stream = ConnectionStream::Plain(socket);
        stream.reset_on_close();
        drop(stream);
        assert_eq!(far.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    /// Data that an earlier process has written must not arrive later: over MPTCP, too.
    #[test]
    fn a_reset_over_mptcp_takes_back_what_was_not_received() {
        let sockets = [(); 2].map(|()| mptcp::stream_socket(Domain::IPV4, true).unwrap());
        let [listener, near] = sockets;
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(1).unwrap();
        near.connect(&listener.local_addr().unwrap()).unwrap();
        let mut far = TcpStream::from(listener.accept().unwrap().0);
        far.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut stream = ConnectionStream::Plain(near.into());
        let bytes = vec![1; 1 << 20];
        let mut sent = 0;
        while let Some(taken) = send(&mut stream, &bytes).unwrap() {
            sent += taken;
        }
        stream.reset_on_close();
        drop(stream);
        let mut got = Vec::new();
        let error = far.read_to_end(&mut got).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(got.len() < sent, "all of {sent} bytes");
    }
}
