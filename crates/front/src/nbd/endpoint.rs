//! Where clients connect, shared by the servers of several lanes.

use super::address::NbdAddress;
use super::connection::Newcomer;
use super::export::{Export, ExportInfo};
use super::listener::{Clients, Listener};
use super::tls::NbdTls;
use roadtrain_engine::clients::{ClientStream, SecureClients, Secured};
use roadtrain_engine::mailbox::Outbox;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A client whose handshake takes longer is given up.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A listening socket and the export behind it. The socket and its file go with the last clone.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    listener: Listener,
    /// Who secures clients, which have to be secured then.
    secure: Option<SecureClients>,
    uri: String,
    /// How many clients were given to be secured.
    secured: AtomicU64,
    export: Arc<Export>,
    servers: AtomicU32,
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
        let (servers, connections) = (AtomicU32::new(0), AtomicU32::new(0));
        let secured = AtomicU64::new(0);
        let shared = Shared { listener, secure, uri, secured, export, servers, connections };
        Ok(Endpoint(Arc::new(shared)))
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

    pub(crate) fn server_begins(&self) {
        self.0.servers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn server_ends(&self) {
        self.0.servers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn connections_begin(&self, count: u32) {
        self.0.connections.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn connections_end(&self, count: u32) {
        self.0.connections.fetch_sub(count, Ordering::Relaxed);
    }

    /// Whether a server with `own` clients has more than its share.
    pub(crate) fn is_ahead(&self, own: usize) -> bool {
        let servers = u64::from(self.0.servers.load(Ordering::Relaxed));
        let all = u64::from(self.0.connections.load(Ordering::Relaxed));
        own as u64 * servers > all
    }
}
