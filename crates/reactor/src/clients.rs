//! Clients of a front over sockets: their streams, and the thread that secures them with TLS.
//!
//! The handshake never runs on a reactor: a stream goes to the thread as a value, and comes back as one that seals and
//! opens records.

use crate::handshakes::{Candidate, Handshakes, Wish};
pub use crate::stream::Incoming;
use crate::stream::Stream;
use roadtrain_system::mailbox::Outbox;
use roadtrain_tls::Keys;
pub use roadtrain_tls::{Acceptor, Certificates, Error, key_of, keys};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;
use tracing::{debug, warn};

/// A client's stream.
pub struct ClientStream(Stream);

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientStream({}, records: {})", self.0.fd(), self.0.records())
    }
}

impl ClientStream {
    /// A connected socket that does not wait.
    #[must_use]
    pub fn plain(socket: OwnedFd) -> Self {
        ClientStream(Stream::Plain(socket))
    }

    /// Whether octets are as the client has sent them.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// For readiness alone.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.0.fd()
    }

    /// One receive call into at most two places, which have room for 64 KiB together.
    ///
    /// # Errors
    /// The stream's; it is lost then.
    pub fn receive(&mut self, places: &mut [IoSliceMut<'_>]) -> io::Result<Incoming> {
        let iovecs = places.as_mut_ptr().cast::<libc::iovec>();
        // SAFETY: an `IoSliceMut` is an iovec, and names writable memory that is only ours.
        unsafe { self.0.receive(std::slice::from_raw_parts_mut(iovecs, places.len())) }
    }

    /// Whether there may be more at once after a receive that brought `got` of `room` octets.
    #[must_use]
    pub fn is_full(&self, got: usize, room: usize) -> bool {
        self.0.is_full(got, room)
    }

    /// One send call: how many octets it took; `None` when there is no room.
    ///
    /// # Errors
    /// The stream's; it is lost then.
    pub fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let iovecs = pieces.as_ptr().cast::<libc::iovec>();
        // SAFETY: an `IoSlice` is an iovec, and names readable memory.
        unsafe { self.0.send(std::slice::from_raw_parts(iovecs, pieces.len())) }
    }

    /// Whether what sends have taken waits for room in the socket: [`ClientStream::drain`].
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    /// Sends what calls of [`ClientStream::send`] have taken; `false` when there is no room for all of it.
    ///
    /// # Errors
    /// The stream's; it is lost then.
    pub fn drain(&mut self) -> io::Result<bool> {
        self.0.drain()
    }

    /// The orderly end: what was sent still reaches the client, and so does that nothing more comes.
    pub fn end(mut self) {
        self.0.end();
    }
}

/// What became of a client that was to be secured.
#[derive(Debug)]
pub struct Secured {
    /// Its number.
    pub number: u64,
    /// `None`: it was refused, or has gone.
    pub stream: Option<ClientStream>,
}

/// The thread that secures clients; dropping it ends it.
pub struct SecureClients(Handshakes<Client>);

impl fmt::Debug for SecureClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecureClients")
    }
}

impl SecureClients {
    /// Clients that `acceptor` knows are let in; each has `timeout` for its handshake.
    ///
    /// # Errors
    /// There is no thread, or no descriptor.
    pub fn start(acceptor: Acceptor, timeout: Duration) -> io::Result<Self> {
        Ok(SecureClients(Handshakes::start(acceptor, timeout)?))
    }

    /// Secures a client's plain stream. `answer` hears what became of it, once.
    pub fn begin(
        &self,
        number: u64,
        peer: SocketAddr,
        stream: ClientStream,
        answer: Outbox<Secured>,
    ) {
        let stream = Some(stream.0);
        self.0.wishes().send(Wish::Secure(Client { number, peer, stream, answer }));
    }

    /// Ends the handshake of that number.
    pub fn give_up(&self, number: u64) {
        self.0.wishes().send(Wish::Evict(number));
    }
}

/// A client that is being secured.
struct Client {
    number: u64,
    peer: SocketAddr,
    /// `None` when it has been answered.
    stream: Option<Stream>,
    answer: Outbox<Secured>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.stream.is_some() {
            self.answer.send(Secured { number: self.number, stream: None });
        }
    }
}

impl Candidate for Client {
    fn number(&self) -> u64 {
        self.number
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn stream(&self) -> &Stream {
        self.stream.as_ref().expect("it is taken when it is answered, which consumes the client")
    }

    fn may_be_plain(&self) -> bool {
        false
    }

    fn go_on_plain(self) {}

    fn secured(mut self, keys: Keys) {
        let (peer, user) = (self.peer, keys.identity.clone());
        let Some(Stream::Plain(socket)) = self.stream.take() else { return };
        let stream = match Stream::secured(socket, keys) {
            Ok(stream) => {
                debug!(%peer, user, records = stream.records(), "client secured by TLS");
                Some(ClientStream(stream))
            }
            Err(error) => {
                warn!(%peer, "the kernel does not take the keys of TLS: {error}");
                None
            }
        };
        self.answer.send(Secured { number: self.number, stream });
    }

    fn refused(&self, error: &Error) {
        warn!(peer = %self.peer, "TLS handshake: this client is refused: {error}");
    }
}
