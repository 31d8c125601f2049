//! A stream of octets to a peer: what connections need of a socket, whatever secures it.
//!
//! Plain TCP is one, a socket whose records the kernel encrypts (kTLS) is another. TLS in user space would be a third
//! variant: a match per call, none per octet. So nothing here is asked of a socket that a TLS socket cannot do: octets
//! that are not wanted are read, not truncated; nothing is peeked at; how much is unread is told only where it can be
//! known.

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::task::Poll;

/// Octets read at once, and in all, of what a peer had sent before its connection ended.
const DISCARD_BYTES: usize = 64 << 10;
const DISCARD_CALLS_MAX: u32 = 256;

/// `SOL_TLS`: the level of kTLS's control messages.
const SOL_TLS: libc::c_int = 282;
/// Its control message that says of which type the received record is.
const TLS_GET_RECORD_TYPE: libc::c_int = 2;
/// Type of records that carry what applications send; others are alerts and handshakes.
const APPLICATION_DATA: u8 = 23;

/// Room for one control message, aligned as the kernel wants it.
type ControlBuffer = [u64; 8];

/// What a receive call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// So many octets.
    Octets(usize),
    /// Nothing now.
    Nothing,
    /// The peer has ended its half.
    Closed,
}

/// A connected stream.
pub(crate) enum Stream {
    /// TCP.
    Plain(OwnedFd),
    /// TCP whose records the kernel decrypts and encrypts.
    #[cfg_attr(not(test), expect(dead_code, reason = "no handshake makes one yet"))]
    Records(OwnedFd),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Plain(socket) | Stream::Records(socket) => socket.as_fd(),
        }
    }
}

impl Stream {
    /// For readiness alone.
    pub(crate) fn fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// Goes on with the handshake that secures it; pending: call again when it is readable.
    pub(crate) fn handshake(&mut self) -> io::Result<Poll<()>> {
        match self {
            Stream::Plain(_) | Stream::Records(_) => Ok(Poll::Ready(())),
        }
    }

    /// One receive call into `places`, without waiting.
    ///
    /// # Safety
    /// They name writable memory that nothing else uses meanwhile.
    #[inline]
    pub(crate) unsafe fn receive(&self, places: &mut [libc::iovec]) -> io::Result<Incoming> {
        // SAFETY: the places are writable by this function's contract.
        unsafe {
            match (self, &*places) {
                (Stream::Plain(socket), [place]) => receive_into(socket.as_fd(), place),
                (Stream::Plain(_), _) => receive(self.fd(), &mut message_of(places)),
                (Stream::Records(_), _) => receive_records(self.fd(), &mut message_of(places)),
            }
        }
    }

    /// One send call, without waiting: how many octets it took; `None` when there is no room.
    ///
    /// # Safety
    /// They name readable memory.
    #[inline]
    pub(crate) unsafe fn send(&self, pieces: &[libc::iovec]) -> io::Result<Option<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // SAFETY: the pieces are readable by this function's contract, and an `IoSlice` is an iovec.
        let sent = unsafe {
            match pieces {
                [piece] => {
                    net::send(self, from_raw_parts(piece.iov_base.cast(), piece.iov_len), flags)
                }
                _ => {
                    let slices = from_raw_parts(pieces.as_ptr().cast(), pieces.len());
                    net::sendmsg(self, slices, &mut SendAncillaryBuffer::default(), flags)
                }
            }
        };
        match sent {
            Ok(sent) => Ok(Some(sent)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Octets that a receive would bring at once; `None` where that cannot be known: what waits in a TLS socket is
    /// records, not octets.
    pub(crate) fn unread(&self) -> Option<usize> {
        let Stream::Plain(socket) = self else { return None };
        let mut unread: libc::c_int = 0;
        // SAFETY: the kernel writes an int there.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut unread) };
        (done == 0).then_some(unread as usize)
    }

    /// The peer has ended it, though what it sent before may be unread.
    pub(crate) fn is_hung_up(&self) -> bool {
        any_hung_up(&[self.fd()])
    }

    /// The orderly end: what was sent still reaches the peer. Closing with octets unread would reset the connection
    /// and take the last of it along, so they are read.
    pub(crate) fn end(&mut self) {
        // SAFETY: plain system call on our own descriptor.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) };
        let mut unwanted = Vec::new();
        for _ in 0..DISCARD_CALLS_MAX {
            unwanted.resize(DISCARD_BYTES, 0u8);
            let iov_base = unwanted.as_mut_ptr().cast();
            let mut place = [libc::iovec { iov_base, iov_len: unwanted.len() }];
            // SAFETY: the vector is ours.
            if !matches!(unsafe { self.receive(&mut place) }, Ok(Incoming::Octets(_))) {
                return;
            }
        }
    }

    /// Makes the closing abrupt (RST): nothing of this connection reaches the peer any more.
    pub(crate) fn reset_on_close(&self) {
        let _ = socket2::SockRef::from(self).set_linger(Some(std::time::Duration::ZERO));
    }

    /// Makes the closing orderly (FIN): what was sent reaches the peer first.
    pub(crate) fn linger_on_close(&self) {
        let _ = socket2::SockRef::from(self).set_linger(None);
    }
}

/// The kernel has less to do with one place than with a message, and there is no point where the thread may be
/// cancelled: 70 instructions less in user space.
///
/// # Safety
/// The place is writable.
#[inline]
unsafe fn receive_into(socket: BorrowedFd<'_>, place: &libc::iovec) -> io::Result<Incoming> {
    let start = place.iov_base.cast::<MaybeUninit<u8>>();
    // SAFETY: by this function's contract.
    let octets = unsafe { from_raw_parts_mut(start, place.iov_len) };
    match net::recv(socket, octets, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Ok(Incoming::Closed),
        Ok((_, got)) => Ok(Incoming::Octets(got)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Incoming::Nothing),
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
/// What the message names is writable.
unsafe fn receive(socket: RawFd, message: &mut libc::msghdr) -> io::Result<Incoming> {
    // SAFETY: by this function's contract.
    let got = unsafe { libc::recvmsg(socket, message, libc::MSG_DONTWAIT) };
    match got {
        0 => Ok(Incoming::Closed),
        got if got > 0 => Ok(Incoming::Octets(got as usize)),
        _ => {
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Incoming::Nothing),
                _ => Err(error),
            }
        }
    }
}

/// Receives of one type of record at a time: what is no data of the peer's application must not be taken for it.
///
/// # Safety
/// What the message names is writable.
unsafe fn receive_records(socket: RawFd, message: &mut libc::msghdr) -> io::Result<Incoming> {
    let mut control: ControlBuffer = Default::default();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: by this function's contract; the control buffer is as long as the message says.
    let incoming = unsafe { receive(socket, message) }?;
    // SAFETY: the kernel has filled the control buffer as the message says now.
    match unsafe { record_type(message) } {
        None | Some(APPLICATION_DATA) => Ok(incoming),
        Some(kind) => {
            let what = format!("a TLS record of type {kind} where data was expected");
            Err(io::Error::new(ErrorKind::InvalidData, what))
        }
    }
}

/// The type of the record received, if the kernel says one.
///
/// # Safety
/// The message's control buffer is filled as it says.
unsafe fn record_type(message: &libc::msghdr) -> Option<u8> {
    // SAFETY: by this function's contract the macros stay within the control buffer.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (SOL_TLS, TLS_GET_RECORD_TYPE) {
                return Some(libc::CMSG_DATA(header).read());
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

/// Whether the peer has ended the connection of one of `sockets`, even if octets before the end are unread.
pub(crate) fn any_hung_up(sockets: &[RawFd]) -> bool {
    let poll = |&fd| libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    let mut polls: Vec<libc::pollfd> = sockets.iter().map(poll).collect();
    // SAFETY: `polls` is a valid array of that length.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn pair() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        (far, listener.accept().unwrap().0.into())
    }

    fn wait_readable(stream: &Stream) {
        let mut polls = [libc::pollfd { fd: stream.fd(), events: libc::POLLIN, revents: 0 }];
        // SAFETY: `polls` is a valid array of that length.
        assert_eq!(unsafe { libc::poll(polls.as_mut_ptr(), 1, 30_000) }, 1);
    }

    fn receive(stream: &Stream, octets: &mut [u8]) -> io::Result<Incoming> {
        let iov_base = octets.as_mut_ptr().cast();
        // SAFETY: `octets` is ours.
        unsafe { stream.receive(&mut [libc::iovec { iov_base, iov_len: octets.len() }]) }
    }

    /// Every stream receives, says what is unread where it knows, sends, and notices the end.
    #[test]
    fn octets_come_and_go() {
        let kinds: [fn(OwnedFd) -> Stream; 2] = [Stream::Plain, Stream::Records];
        for make in kinds {
            let (mut far, socket) = pair();
            let mut stream = make(socket);
            assert!(matches!(stream.handshake(), Ok(Poll::Ready(()))));
            let mut octets = [0; 16];
            assert_eq!(receive(&stream, &mut octets).unwrap(), Incoming::Nothing);
            far.write_all(b"hello").unwrap();
            wait_readable(&stream);
            let is_plain = matches!(stream, Stream::Plain(_));
            assert_eq!(stream.unread(), is_plain.then_some(5));
            assert_eq!(receive(&stream, &mut octets).unwrap(), Incoming::Octets(5));
            assert_eq!(&octets[..5], b"hello");
            let iov_base = octets.as_mut_ptr().cast();
            // SAFETY: `octets` is ours.
            let sent = unsafe { stream.send(&[libc::iovec { iov_base, iov_len: 5 }]) };
            assert_eq!(sent.unwrap(), Some(5));
            far.read_exact(&mut octets[5..10]).unwrap();
            assert_eq!(&octets[5..10], b"hello");
            assert!(!stream.is_hung_up());
            drop(far);
            wait_readable(&stream);
            assert!(stream.is_hung_up());
            assert_eq!(receive(&stream, &mut octets).unwrap(), Incoming::Closed);
        }
    }

    /// What the peer sent and nobody has read does not take the last answer along.
    #[test]
    fn an_orderly_end_lets_the_last_octets_arrive() {
        /// Fits every receive buffer.
        const UNREAD: usize = 20_000;
        let (mut far, socket) = pair();
        let mut stream = Stream::Plain(socket);
        far.write_all(&[7; UNREAD]).unwrap();
        wait_readable(&stream);
        let mut last = *b"last";
        let iov_base = last.as_mut_ptr().cast();
        // SAFETY: `last` is ours.
        let sent = unsafe { stream.send(&[libc::iovec { iov_base, iov_len: 4 }]) };
        assert_eq!(sent.unwrap(), Some(4));
        let deadline = Instant::now() + Duration::from_secs(30);
        while stream.unread() != Some(UNREAD) {
            assert!(Instant::now() < deadline, "{:?} octets are unread", stream.unread());
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
        let stream = Stream::Plain(socket);
        stream.reset_on_close();
        drop(stream);
        assert_eq!(far.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    /// A message with one control message, as the kernel would leave it.
    fn type_in(level: libc::c_int, kind: libc::c_int, value: u8) -> Option<u8> {
        let mut control: ControlBuffer = Default::default();
        // SAFETY: an all-zero msghdr is valid; the control buffer has room for the message.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = libc::CMSG_SPACE(1) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_len = libc::CMSG_LEN(1) as usize;
            ((*header).cmsg_level, (*header).cmsg_type) = (level, kind);
            libc::CMSG_DATA(header).write(value);
            record_type(&message)
        }
    }

    #[test]
    fn the_type_of_a_record_is_in_its_control_message() {
        assert_eq!(type_in(SOL_TLS, TLS_GET_RECORD_TYPE, 21), Some(21), "an alert");
        assert_eq!(type_in(SOL_TLS, TLS_GET_RECORD_TYPE, APPLICATION_DATA), Some(APPLICATION_DATA));
        assert_eq!(type_in(libc::SOL_SOCKET, TLS_GET_RECORD_TYPE, 21), None);
        assert_eq!(type_in(SOL_TLS, 1, 21), None);
    }
}
