//! Clients of a server that are in a TLS handshake, on the TLS threads.

use super::answers::Answers;
use super::endpoint::Endpoint;
use super::owner::Owner;
use roadtrain_reactor::clients::{ClientStream, Secured};
use roadtrain_system::mailbox::Outbox;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

/// Clients in a TLS handshake, and the mailbox for the results.
pub(super) struct Securing {
    outbox: Outbox<Secured>,
    pub(super) answers: Answers<Secured>,
    clients: HashMap<u64, Owner>,
}

impl Securing {
    /// Makes an empty set.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let (outbox, answers) = Answers::new()?;
        Ok(Securing { outbox, answers, clients: HashMap::new() })
    }

    /// Starts a client's TLS handshake.
    ///
    /// # Errors
    /// Fails if the endpoint has no TLS.
    pub(super) fn begin(
        &mut self,
        endpoint: &Endpoint,
        owner: Owner,
        client: (ClientStream, SocketAddr),
    ) -> io::Result<()> {
        let number = endpoint.secure(client, self.outbox.clone());
        self.clients.insert(number.ok_or(io::ErrorKind::Unsupported)?, owner);
        Ok(())
    }

    /// Abandons a client's handshake.
    pub(super) fn give_up(&mut self, endpoint: &Endpoint, owner: Owner) {
        let given_up = self.clients.extract_if(|_, other| *other == owner);
        given_up.for_each(|(number, _)| endpoint.give_up(number));
    }

    /// Takes the clients whose handshake has ended, with their streams.
    pub(super) fn take(&mut self) -> Vec<(Owner, Option<ClientStream>)> {
        let known = |answer: Secured| Some((self.clients.remove(&answer.number)?, answer.stream));
        self.answers.take().filter_map(known).collect()
    }
}
