//! Clients of a server that others secure by TLS, until they come back.

use super::connection::Owner;
use super::endpoint::Endpoint;
use roadtrain_engine::clients::{ClientStream, Secured};
use roadtrain_engine::host::{Interest, Turn};
use roadtrain_engine::mailbox::{Inbox, Outbox, mailbox};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

/// Clients on their way, and where they come back.
pub(super) struct Securing {
    answers: Outbox<Secured>,
    inbox: Inbox<Secured>,
    clients: HashMap<u64, Owner>,
    is_watched: bool,
}

impl Securing {
    /// Nobody yet.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let (answers, inbox) = mailbox()?;
        Ok(Securing { answers, inbox, clients: HashMap::new(), is_watched: false })
    }

    /// Has a client secured.
    ///
    /// # Errors
    /// There is no TLS at that endpoint.
    pub(super) fn begin(
        &mut self,
        endpoint: &Endpoint,
        owner: Owner,
        client: (ClientStream, SocketAddr),
    ) -> io::Result<()> {
        let number = endpoint.secure(client, self.answers.clone());
        self.clients.insert(number.ok_or(io::ErrorKind::Unsupported)?, owner);
        Ok(())
    }

    /// A client that is not waited for any more.
    pub(super) fn give_up(&mut self, endpoint: &Endpoint, owner: Owner) {
        let given_up = self.clients.extract_if(|_, other| *other == owner);
        given_up.for_each(|(number, _)| endpoint.give_up(number));
    }

    /// Those that have come back, with their streams.
    pub(super) fn take(&mut self) -> Vec<(Owner, Option<ClientStream>)> {
        self.is_watched = false;
        self.inbox.acknowledge();
        let answers = std::iter::from_fn(|| self.inbox.take());
        let known = |answer: Secured| Some((self.clients.remove(&answer.number)?, answer.stream));
        answers.filter_map(known).collect()
    }

    pub(super) fn watch(&mut self, turn: &mut dyn Turn, key: u64) {
        if !std::mem::replace(&mut self.is_watched, true) {
            turn.watch(self.inbox.fd(), Interest::Readable, key);
        }
    }

    pub(super) fn unwatch(&mut self, turn: &mut dyn Turn, key: u64) {
        if std::mem::take(&mut self.is_watched) {
            turn.unwatch(key);
        }
    }
}
