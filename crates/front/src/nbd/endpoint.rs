//! Where clients connect, shared by the servers of several lanes.

use super::address::NbdAddress;
use super::export::{Export, ExportInfo};
use super::listener::{Clients, Listener};
use socket2::Socket;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A listening socket and the export behind it. The socket and its file go with the last clone.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    listener: Listener,
    export: Arc<Export>,
    servers: AtomicU32,
    connections: AtomicU32,
}

impl Endpoint {
    /// Listens at `address` for clients of the namespace that `info` describes. A Unix socket's file
    /// that a dead server left is replaced.
    ///
    /// # Errors
    /// `InvalidInput` if `info` makes no sense, `AddrInUse` if a live server has the address, `Unsupported` if others
    /// than those `clients` could connect.
    pub fn bind(address: &NbdAddress, clients: Clients, info: ExportInfo) -> io::Result<Self> {
        let export = Arc::new(Export::new(info)?);
        let listener = Listener::bind(address, clients)?;
        let (servers, connections) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Endpoint(Arc::new(Shared { listener, export, servers, connections })))
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

    pub(crate) fn accept(&self) -> io::Result<Option<Socket>> {
        self.0.listener.accept()
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
