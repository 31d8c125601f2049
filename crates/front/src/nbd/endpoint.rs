//! A listening socket with its export, shared by the servers of several lanes.

use super::address::NbdAddress;
use super::connection::NewClient;
use super::export::{ExportInfo, NbdExport};
use super::listener::{FrontListener, NbdClients};
use super::orphan_writes::{OrphanToken, Predecessors};
use super::tls::NbdTls;
use roadtrain_reactor::clients::{ClientStream, SecureClients, SecuredClient};
use roadtrain_system::mailbox::MailboxSender;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest handshake of a client; slower clients are disconnected.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A listening socket and its export. The socket and its file are removed with the last clone.
#[derive(Clone)]
pub struct NbdEndpoint(Arc<EndpointState>);

struct EndpointState {
    listener: FrontListener,
    /// Threads for TLS handshakes; clients have to use TLS if present.
    secure: Option<SecureClients>,
    uri: String,
    /// Number of clients passed to the TLS threads.
    secured: AtomicU64,
    export: Arc<NbdExport>,
    /// Its servers, with the mailboxes for queries about clients that are gone.
    servers: Mutex<Vec<(u64, MailboxSender<OrphanToken>)>>,
    /// Number of the next server.
    next_server: AtomicU64,
    connections: AtomicU32,
}

impl NbdEndpoint {
    /// Listens at `address` for clients of the namespace that `info` describes; with `tls`, only for clients that it
    /// admits. Replaces the file that a dead server's Unix socket left.
    ///
    /// # Errors
    /// `InvalidInput` if `info` is invalid, `AddrInUse` if a live server has the address, `Unsupported` if clients
    /// other than `clients` could connect.
    pub fn bind(
        address: &NbdAddress,
        clients: NbdClients,
        tls: Option<&NbdTls>,
        info: ExportInfo,
    ) -> io::Result<Self> {
        let export = Arc::new(NbdExport::new(info)?);
        let secure = tls.map(|tls| SecureClients::start(tls.acceptor()?, HANDSHAKE_TIMEOUT));
        let secure = secure.transpose()?;
        let clients = if secure.is_some() { NbdClients::Secured } else { clients };
        let listener = FrontListener::bind(address, clients)?;
        let address = listener.address();
        let uri = if tls.is_some() { address.uri_with_tls() } else { address.uri() };
        Ok(NbdEndpoint(Arc::new(EndpointState {
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

    /// Returns the URI for clients.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.0.uri
    }

    /// True if clients have to use TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        self.0.secure.is_some()
    }

    /// Starts a client's TLS handshake; returns the number with which `answer` gets the result.
    pub(crate) fn secure(
        &self,
        (stream, peer): (ClientStream, SocketAddr),
        answer: MailboxSender<SecuredClient>,
    ) -> Option<u64> {
        let number = self.0.secured.fetch_add(1, Ordering::Relaxed);
        self.0.secure.as_ref()?.begin(number, peer, stream, answer);
        Some(number)
    }

    /// Abandons the handshake of the client of that number.
    pub(crate) fn abandon(&self, number: u64) {
        self.0.secure.iter().for_each(|secure| secure.abandon(number));
    }

    /// Returns the listening address, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &NbdAddress {
        self.0.listener.address()
    }

    /// Returns the export, whose disk is updated when the namespace changes; usable on any thread.
    #[must_use]
    pub fn export(&self) -> &Arc<NbdExport> {
        &self.0.export
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.listener.fd()
    }

    pub(crate) fn accept(&self) -> io::Result<Option<NewClient>> {
        let client = self.0.listener.accept()?;
        Ok(client
            .map(|(socket, peer)| NewClient { stream: ClientStream::plain(socket.into()), peer }))
    }

    fn servers(&self) -> MutexGuard<'_, Vec<(u64, MailboxSender<OrphanToken>)>> {
        self.0.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a server whose mailbox is `outbox`. Returns its number.
    pub(super) fn register_server(&self, outbox: MailboxSender<OrphanToken>) -> u64 {
        let number = self.0.next_server.fetch_add(1, Ordering::Relaxed);
        self.servers().push((number, outbox));
        number
    }

    pub(super) fn unregister_server(&self, number: u64) {
        self.servers().retain(|(other, _)| *other != number);
    }

    /// Passes the tokens of a new client of server `querier` to the other servers.
    pub(super) fn query_others(&self, querier: u64, predecessors: &Predecessors) {
        for (_, outbox) in self.servers().iter().filter(|(number, _)| *number != querier) {
            outbox.send(predecessors.token());
        }
    }

    pub(crate) fn add_connections(&self, count: u32) {
        self.0.connections.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn remove_connections(&self, count: u32) {
        self.0.connections.fetch_sub(count, Ordering::Relaxed);
    }

    /// True if a server with `own` clients has more than its share.
    pub(crate) fn is_ahead(&self, own: usize) -> bool {
        let servers = self.servers().len() as u64;
        let all = u64::from(self.0.connections.load(Ordering::Relaxed));
        own as u64 * servers > all
    }
}
