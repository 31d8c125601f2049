//! Clients of a server that are in a TLS handshake, on the TLS threads.

use super::connection_id::ConnectionId;
use super::endpoint::NbdEndpoint;
use super::watched_mailbox::WatchedMailbox;
use roadtrain_reactor::clients::{ClientStream, SecuredClient};
use roadtrain_system::mailbox::MailboxSender;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

/// Clients in a TLS handshake, and the mailbox for the results.
pub(super) struct Securing {
    outbox: MailboxSender<SecuredClient>,
    pub(super) mailbox: WatchedMailbox<SecuredClient>,
    clients: HashMap<u64, ConnectionId>,
}

impl Securing {
    /// Makes an empty set.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let (outbox, mailbox) = WatchedMailbox::new()?;
        Ok(Securing { outbox, mailbox, clients: HashMap::new() })
    }

    /// Starts a client's TLS handshake.
    ///
    /// # Errors
    /// Fails if the endpoint has no TLS.
    pub(super) fn begin(
        &mut self,
        endpoint: &NbdEndpoint,
        id: ConnectionId,
        client: (ClientStream, SocketAddr),
    ) -> io::Result<()> {
        let number = endpoint.secure(client, self.outbox.clone());
        self.clients.insert(number.ok_or(io::ErrorKind::Unsupported)?, id);
        Ok(())
    }

    /// Abandons a client's handshake.
    pub(super) fn abandon(&mut self, endpoint: &NbdEndpoint, id: ConnectionId) {
        let abandoned = self.clients.extract_if(|_, other| *other == id);
        abandoned.for_each(|(number, _)| endpoint.abandon(number));
    }

    /// Takes the clients whose handshake has ended, with their streams.
    pub(super) fn take(&mut self) -> Vec<(ConnectionId, Option<ClientStream>)> {
        let known =
            |answer: SecuredClient| Some((self.clients.remove(&answer.number)?, answer.stream));
        self.mailbox.take().filter_map(known).collect()
    }
}
