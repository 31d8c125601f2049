//! Where clients connect, shared by the servers of several lanes.

use super::address::NbdAddress;
use super::connection::Newcomer;
use super::export::{Export, ExportInfo};
use super::listener::{Clients, Listener};
use super::strays::{Predecessors, Token};
use super::tls::NbdTls;
use roadtrain_reactor::clients::{ClientStream, SecureClients, Secured};
use roadtrain_system::mailbox::Outbox;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A client whose handshake takes longer is given up.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A listening socket and the export behind it. The socket and its file go with the last clone.
#[derive(Clone)]
pub struct Endpoint(Arc<Shared>);

struct Shared {
    listener: Listener,
    /// Who secures clients, which have to be secured then.
    secure: Option<SecureClients>,
    uri: String,
    /// How many clients were given to be secured.
    secured: AtomicU64,
    export: Arc<Export>,
    /// Its servers, as others ask them for clients that are gone.
    servers: Mutex<Vec<(u64, Outbox<Token>)>>,
    /// The number of the next one.
    next_server: AtomicU64,
    connections: AtomicU32,
}

impl Endpoint {
    /// Listens at `address` for clients of the namespace that `info` describes, with `tls` for those that are let in by
    /// it only. A Unix socket's file
    /// that a dead server left is replaced.
    ///
    /// # Errors
    /// `InvalidInput` if `info` makes no sense, `AddrInUse` if a live server has the address, `Unsupported` if others
    /// than those `clients` could connect.
    pub fn bind(
        address: &NbdAddress,
        clients: Clients,
        tls: Option<&NbdTls>,
        info: ExportInfo,
    ) -> io::Result<Self> {
        let export = Arc::new(Export::new(info)?);
        let secure = tls.map(|tls| SecureClients::start(tls.acceptor()?, HANDSHAKE_TIMEOUT));
        let secure = secure.transpose()?;
        let clients = if secure.is_some() { Clients::Secured } else { clients };
        let listener = Listener::bind(address, clients)?;
        let address = listener.address();
        let uri = if tls.is_some() { address.uri_with_tls() } else { address.uri() };
        Ok(Endpoint(Arc::new(Shared {
            listener,
            secure,
            uri,
            secured: AtomicU64::new(0),
            export,
            servers: Mutex::default(),
            next_server: AtomicU64::new(0),
            connections: AtomicU32::new(0),
        })))
    }

    /// Where clients connect, as they write it.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.0.uri
    }

    /// Whether clients have to begin with TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        self.0.secure.is_some()
    }

    /// Has a client secured: the number by which `answer` hears of it.
    pub(crate) fn secure(
        &self,
        (stream, peer): (ClientStream, SocketAddr),
        answer: Outbox<Secured>,
    ) -> Option<u64> {
        let number = self.0.secured.fetch_add(1, Ordering::Relaxed);
        self.0.secure.as_ref()?.begin(number, peer, stream, answer);
        Some(number)
    }

    /// The client of that number is not waited for any more.
    pub(crate) fn give_up(&self, number: u64) {
        self.0.secure.iter().for_each(|secure| secure.give_up(number));
    }

    /// Where clients connect, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &NbdAddress {
        self.0.listener.address()
    }

    /// The export, whose disk is to be told when the namespace changes; may be used on any thread.
    #[must_use]
    pub fn export(&self) -> &Arc<Export> {
        &self.0.export
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.listener.fd()
    }

    pub(crate) fn accept(&self) -> io::Result<Option<Newcomer>> {
        let newcomer = self.0.listener.accept()?;
        Ok(newcomer
            .map(|(socket, peer)| Newcomer { stream: ClientStream::plain(socket.into()), peer }))
    }

    fn servers(&self) -> MutexGuard<'_, Vec<(u64, Outbox<Token>)>> {
        self.0.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server begins, which is asked by `outbox`. Returns its number.
    pub(super) fn server_begins(&self, outbox: Outbox<Token>) -> u64 {
        let number = self.0.next_server.fetch_add(1, Ordering::Relaxed);
        self.servers().push((number, outbox));
        number
    }

    pub(super) fn server_ends(&self, number: u64) {
        self.servers().retain(|(other, _)| *other != number);
    }

    /// Asks the other servers than `asker` for the predecessors of its newcomer.
    pub(super) fn ask_others(&self, asker: u64, predecessors: &Predecessors) {
        for (_, outbox) in self.servers().iter().filter(|(number, _)| *number != asker) {
            outbox.send(predecessors.token());
        }
    }

    pub(crate) fn connections_begin(&self, count: u32) {
        self.0.connections.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn connections_end(&self, count: u32) {
        self.0.connections.fetch_sub(count, Ordering::Relaxed);
    }

    /// Whether a server with `own` clients has more than its share.
    pub(crate) fn is_ahead(&self, own: usize) -> bool {
        let servers = self.servers().len() as u64;
        let all = u64::from(self.0.connections.load(Ordering::Relaxed));
        own as u64 * servers > all
    }
}
