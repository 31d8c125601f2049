//! Clients of a front over sockets: their streams, and the thread that secures them with TLS.
//!
//! The handshake never runs on a reactor: a stream moves to the thread, and comes back as one that seals and opens
//! records.

use crate::handshakes::{HandshakeCandidate, HandshakeCommand, HandshakeThread};
use crate::stream::ConnectionStream;
pub use crate::stream::Incoming;
use roadtrain_system::mailbox::MailboxSender;
use roadtrain_tls::TlsSessionKeys;
pub use roadtrain_tls::{Acceptor, Certificates, TlsError, key_of, keys};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;
use tracing::{debug, warn};

/// A client's stream.
pub struct ClientStream(ConnectionStream);

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientStream({}, records: {})", self.0.fd(), self.0.records())
    }
}

impl ClientStream {
    /// A connected non-blocking socket.
    #[must_use]
    pub fn plain(socket: OwnedFd) -> Self {
        ClientStream(ConnectionStream::Plain(socket))
    }

    /// True if bytes arrive as the client has sent them (no TLS).
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// Returns the descriptor, for readiness only.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.fd()
    }

    /// Receives once into at most two buffers, which hold 64 KiB together.
    ///
    /// # Errors
    /// The stream's error; the stream is lost then.
    pub fn receive(&mut self, places: &mut [IoSliceMut<'_>]) -> io::Result<Incoming> {
        let iovecs = places.as_mut_ptr().cast::<libc::iovec>();
        // SAFETY: an `IoSliceMut` is an iovec, and names writable memory that is only ours.
        unsafe { self.0.receive(std::slice::from_raw_parts_mut(iovecs, places.len())) }
    }

    /// True if more may be available at once after a receive of `got` bytes into `room` bytes.
    #[must_use]
    pub fn is_full(&self, got: usize, room: usize) -> bool {
        self.0.is_full(got, room)
    }

    /// Sends once; returns the bytes taken, or `None` when the socket is full.
    ///
    /// # Errors
    /// The stream's error; the stream is lost then.
    pub fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let iovecs = pieces.as_ptr().cast::<libc::iovec>();
        // SAFETY: an `IoSlice` is an iovec, and names readable memory.
        unsafe { self.0.send(std::slice::from_raw_parts(iovecs, pieces.len())) }
    }

    /// True if bytes that [`ClientStream::send`] has taken wait for capacity in the socket: call
    /// [`ClientStream::drain`].
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    /// Sends the bytes that [`ClientStream::send`] has taken. False if some still wait for capacity.
    ///
    /// # Errors
    /// The stream's error; the stream is lost then.
    pub fn drain(&mut self) -> io::Result<bool> {
        self.0.drain()
    }

    /// Closes the stream in order: bytes already sent still reach the client, and then the end of the stream.
    pub fn end(mut self) {
        self.0.end();
    }
}

/// Result of securing a client.
#[derive(Debug)]
pub struct SecuredClient {
    /// Number of the client.
    pub number: u64,
    /// Secured stream; `None`: the client was refused, or has disconnected.
    pub stream: Option<ClientStream>,
}

/// Thread that secures clients; dropping it ends it.
pub struct SecureClients(HandshakeThread<SecuringClient>);

impl fmt::Debug for SecureClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecureClients")
    }
}

impl SecureClients {
    /// Starts the thread. It accepts clients that `acceptor` has keys for; each has `timeout` for its handshake.
    ///
    /// # Errors
    /// The thread or a descriptor cannot be created.
    pub fn start(acceptor: Acceptor, timeout: Duration) -> io::Result<Self> {
        Ok(SecureClients(HandshakeThread::start(acceptor, timeout)?))
    }

    /// Secures a client's plain stream. `answer` receives the result, once.
    pub fn begin(
        &self,
        number: u64,
        peer: SocketAddr,
        stream: ClientStream,
        answer: MailboxSender<SecuredClient>,
    ) {
        let stream = Some(stream.0);
        self.0.commands().send(HandshakeCommand::Secure(SecuringClient {
            number,
            peer,
            stream,
            answer,
        }));
    }

    /// Ends the handshake of that number.
    pub fn abandon(&self, number: u64) {
        self.0.commands().send(HandshakeCommand::Evict(number));
    }
}

/// A client in its handshake.
struct SecuringClient {
    number: u64,
    peer: SocketAddr,
    /// Stream of the client; `None` once the result was sent.
    stream: Option<ConnectionStream>,
    answer: MailboxSender<SecuredClient>,
}

impl Drop for SecuringClient {
    fn drop(&mut self) {
        if self.stream.is_some() {
            self.answer.send(SecuredClient { number: self.number, stream: None });
        }
    }
}

impl HandshakeCandidate for SecuringClient {
    fn number(&self) -> u64 {
        self.number
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn stream(&self) -> &ConnectionStream {
        self.stream.as_ref().expect("it is taken when it is answered, which consumes the client")
    }

    fn may_be_plain(&self) -> bool {
        false
    }

    fn continue_plain(self) {}

    fn secured(mut self, keys: TlsSessionKeys) {
        let (peer, user) = (self.peer, keys.identity.clone());
        let Some(ConnectionStream::Plain(socket)) = self.stream.take() else { return };
        let stream = match ConnectionStream::secured(socket, keys) {
            Ok(stream) => {
                debug!(%peer, user, records = stream.records(), "client secured by TLS");
                Some(ClientStream(stream))
            }
            Err(error) => {
                warn!(%peer, "the kernel does not take the keys of TLS: {error}");
                None
            }
        };
        self.answer.send(SecuredClient { number: self.number, stream });
    }

    fn refused(&self, error: &TlsError) {
        warn!(peer = %self.peer, "TLS handshake: this client is refused: {error}");
    }
}
