//! Hosts that are being secured: whose key a connection has, and where it goes then.

use super::order::{Newcomer, Order};
use roadtrain_proto::security::{GeneratedPsks, SecuredAs, TlsHosts, TlsKeys, TlsPsk};
use roadtrain_reactor::handshakes::{self, Candidate};
use roadtrain_reactor::stream::Stream;
use roadtrain_system::clock;
use roadtrain_system::mailbox::Outbox;
use roadtrain_tls::{Acceptor, Error, Keys};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tracing::{debug, warn};

/// What the thread is told.
pub(super) type Wish = handshakes::Wish<Host>;

/// The PSKs that hosts have made by authenticating, for those who make them and those who look them up.
pub(super) type SharedPsks = Arc<Mutex<GeneratedPsks>>;

/// The keys of a target's hosts, as they are now.
#[derive(Clone)]
pub(super) struct SharedKeys {
    configured: Arc<RwLock<TlsKeys>>,
    generated: SharedPsks,
}

impl SharedKeys {
    fn look_up(&self, identity: &str) -> Option<(TlsPsk, SecuredAs)> {
        let mut generated = self.generated.lock().unwrap_or_else(PoisonError::into_inner);
        generated.expire(clock::now());
        let generated = generated.look_up(clock::now(), identity);
        let configured = || {
            let configured = self.configured.read().unwrap_or_else(PoisonError::into_inner);
            configured.look_up(identity)
        };
        generated.or_else(configured)
    }
}

/// The thread, and whom it lets in.
pub(super) struct Handshakes {
    thread: handshakes::Handshakes<Host>,
    keys: SharedKeys,
}

impl Handshakes {
    /// Hosts with one of `keys`, or with a PSK that they have made, are let in; each has `timeout` for it.
    pub(super) fn start(
        keys: TlsKeys,
        generated: SharedPsks,
        timeout: Duration,
    ) -> io::Result<Self> {
        let keys = SharedKeys { configured: Arc::new(RwLock::new(keys)), generated };
        let known = keys.clone();
        let acceptor = Acceptor::new(move |identity| Some(known.look_up(identity)?.0));
        let acceptor = acceptor.map_err(io::Error::other)?;
        Ok(Handshakes { thread: handshakes::Handshakes::start(acceptor, timeout)?, keys })
    }

    /// Changes the keys from the next handshake on. The hosts that have one then.
    pub(super) fn change_keys(&self, change: impl FnOnce(&mut TlsKeys)) -> TlsHosts {
        let mut keys = self.keys.configured.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut keys);
        keys.hosts()
    }

    pub(super) fn secure(&self) -> Secure {
        Secure { wishes: self.thread.wishes(), keys: self.keys.clone() }
    }
}

/// What a reactor needs to have hosts secured.
#[derive(Clone)]
pub(super) struct Secure {
    wishes: Outbox<Wish>,
    keys: SharedKeys,
}

impl Secure {
    /// Secures a connection, and gives it to that reactor.
    pub(super) fn begin(&self, newcomer: Box<Newcomer>, reactor: Outbox<Order>) {
        let keys = self.keys.clone();
        self.wishes.send(Wish::Secure(Host { newcomer, reactor, keys }));
    }

    /// Ends the connection that has this ticket.
    pub(super) fn evict(&self, ticket: u64) {
        self.wishes.send(Wish::Evict(ticket));
    }
}

/// A host's connection.
pub(super) struct Host {
    newcomer: Box<Newcomer>,
    reactor: Outbox<Order>,
    keys: SharedKeys,
}

impl Candidate for Host {
    fn number(&self) -> u64 {
        self.newcomer.ticket.number
    }

    fn peer(&self) -> SocketAddr {
        self.newcomer.peer
    }

    fn stream(&self) -> &Stream {
        &self.newcomer.stream
    }

    fn may_be_plain(&self) -> bool {
        self.newcomer.may_be_plain
    }

    fn go_on_plain(self) {
        self.reactor.send(Order::Adopt(self.newcomer));
    }

    fn secured(mut self, keys: Keys) {
        let peer = self.newcomer.peer;
        // Whose key it is may have changed meanwhile: then it is nobody's.
        let Some((_, secured_as)) = self.keys.look_up(&keys.identity) else { return };
        debug!(%peer, host = secured_as.hostnqn, suite = ?keys.suite, "secured");
        let Stream::Plain(socket) = self.newcomer.stream else { return };
        match Stream::secured(socket, keys) {
            Ok(stream) => {
                debug!(%peer, records = stream.records(), "records");
                (self.newcomer.stream, self.newcomer.secured_as) = (stream, Some(secured_as));
                self.reactor.send(Order::Adopt(self.newcomer));
            }
            Err(error) => warn!(%peer, "the kernel does not take the keys of TLS: {error}"),
        }
    }

    fn refused(&self, error: &Error) {
        warn!(peer = %self.peer(), "TLS handshake: this target refuses the host: {error}");
    }
}
