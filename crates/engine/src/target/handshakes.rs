//! Connections that are being secured: a thread of their own, of low priority, for all listeners.
//!
//! A handshake takes a tenth of a millisecond of a core, which established lanes would have to wait for if a reactor
//! did it. Here they are interrupted for no longer than the scheduler wants. What is secured goes to its reactor.
//!
//! Sources take turns, and the one with the most handshakes makes room when there is none: so a flood from one address
//! neither ends nor delays the handshakes of others.

use super::order::{Newcomer, Order};
use super::sources::Source;
use crate::mailbox::{Inbox, Outbox, mailbox};
use crate::stream::{Incoming, RecvFlags, Stream, receive_octets, send_octets};
use crate::tuning;
use roadtrain_proto::security::{SecuredAs, TlsKeys};
use roadtrain_proto::target::TlsUse;
use roadtrain_tls::{Acceptor, BLOCKS_MAX, CONTENT_TYPE_HANDSHAKE, Error, Handshake};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Handshakes under way at once; when one more comes the oldest of the source that has most ends.
const UNDER_WAY_MAX: usize = 1024;
/// Octets received at once.
const RECEIVED_BYTES: usize = 4096;

/// The keys of a target's hosts, as they are now.
type SharedKeys = Arc<RwLock<TlsKeys>>;

/// What the thread is told.
pub(super) enum Wish {
    /// Secure a connection, and give it to that reactor.
    Secure { newcomer: Box<Newcomer>, tls: TlsUse, reactor: Outbox<Order> },
    /// End the connection that has this ticket: others need its room.
    Evict(u64),
    /// End.
    Stop,
}

/// The thread.
pub(super) struct Handshakes {
    wishes: Outbox<Wish>,
    thread: Option<JoinHandle<()>>,
    keys: SharedKeys,
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.wishes.send(Wish::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Handshakes {
    /// Hosts with one of `keys` are let in; each has `timeout` for it.
    pub(super) fn start(keys: TlsKeys, timeout: Duration) -> io::Result<Self> {
        let keys = SharedKeys::new(RwLock::new(keys));
        let (wishes, inbox) = mailbox()?;
        let known = keys.clone();
        let acceptor = Acceptor::new(move |identity| Some(look_up(&known, identity)?.0));
        let acceptor = acceptor.map_err(io::Error::other)?;
        let mut desk =
            Desk { inbox, acceptor, keys: keys.clone(), timeout, under_way: UnderWays::default() };
        let body = move || {
            tuning::give_way();
            desk.run();
        };
        let thread = thread::Builder::new().name("roadtrain-tls".into()).spawn(body)?;
        Ok(Handshakes { wishes, thread: Some(thread), keys })
    }

    /// From the next handshake on.
    pub(super) fn set_keys(&self, keys: TlsKeys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    pub(super) fn wishes(&self) -> Outbox<Wish> {
        self.wishes.clone()
    }
}

fn look_up(
    keys: &SharedKeys,
    identity: &str,
) -> Option<(roadtrain_proto::security::TlsPsk, SecuredAs)> {
    keys.read().unwrap_or_else(PoisonError::into_inner).look_up(identity)
}

/// A connection that is being secured.
struct UnderWay {
    source: Source,
    newcomer: Box<Newcomer>,
    tls: TlsUse,
    reactor: Outbox<Order>,
    /// `None` until its first octet has come.
    handshake: Option<Handshake>,
    /// What the socket had no room for.
    unsent: Vec<u8>,
    until: Instant,
}

/// What is to become of a connection.
enum Next {
    Wait,
    /// It is plain, which its listener allows.
    Plain,
    Secured,
    /// It ends, without anybody's being to blame.
    Gone,
}

struct Desk {
    inbox: Inbox<Wish>,
    acceptor: Acceptor,
    keys: SharedKeys,
    timeout: Duration,
    under_way: UnderWays<UnderWay>,
}

impl Desk {
    fn run(&mut self) {
        loop {
            let ready = self.wait();
            self.inbox.acknowledge();
            while let Some(wish) = self.inbox.take() {
                match wish {
                    Wish::Secure { newcomer, tls, reactor } => self.begin(newcomer, tls, reactor),
                    Wish::Evict(ticket) => {
                        self.under_way.by_age.retain(|_, c| c.newcomer.ticket.number != ticket)
                    }
                    Wish::Stop => return,
                }
            }
            self.end_overdue();
            for number in self.under_way.turn(&ready) {
                let Some(connection) = self.under_way.by_age.remove(&number) else { continue };
                self.go_on(number, connection);
            }
        }
    }

    /// Waits for a wish, for octets, or until the oldest has no time left. Which connections have something, by age.
    fn wait(&self) -> Vec<u64> {
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = vec![poll(self.inbox.fd(), libc::POLLIN)];
        polls.extend(self.under_way.by_age.values().map(|connection| {
            let out = if connection.unsent.is_empty() { 0 } else { libc::POLLOUT };
            poll(connection.fd(), libc::POLLIN | out)
        }));
        let left = |c: &UnderWay| c.until.saturating_duration_since(Instant::now());
        let left = self.under_way.by_age.values().next().map(left);
        let timeout = left.map_or(-1, |left| left.as_millis() as libc::c_int + 1);
        // SAFETY: `polls` is a valid array of that length.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let numbers = self.under_way.by_age.keys().zip(&polls[1..]);
        numbers.filter(|(_, poll)| poll.revents != 0).map(|(number, _)| *number).collect()
    }

    fn begin(&mut self, newcomer: Box<Newcomer>, tls: TlsUse, reactor: Outbox<Order>) {
        if self.under_way.by_age.len() >= UNDER_WAY_MAX
            && let Some(ended) = self.under_way.make_room()
        {
            info!(peer = %ended.newcomer.peer, "TLS handshake ended: others need its room");
        }
        let source = newcomer.peer.into();
        let (until, unsent) = (Instant::now() + self.timeout, Vec::new());
        let connection =
            UnderWay { source, newcomer, tls, reactor, handshake: None, unsent, until };
        self.under_way.enter(connection);
    }

    fn end_overdue(&mut self) {
        let now = Instant::now();
        while let Some(oldest) = self.under_way.by_age.first_entry()
            && oldest.get().until <= now
        {
            let peer = oldest.remove().newcomer.peer;
            info!(%peer, "TLS handshake: no end of it in time");
        }
    }

    fn go_on(&mut self, number: u64, mut connection: UnderWay) {
        let peer = connection.newcomer.peer;
        match connection.advance(&self.acceptor) {
            Ok(Next::Wait) => _ = self.under_way.by_age.insert(number, connection),
            Ok(Next::Gone) => debug!(%peer, "TLS handshake: the peer has gone"),
            Ok(Next::Plain) => connection.give(),
            Ok(Next::Secured) => self.secured(connection),
            Err(error) => {
                warn!(%peer, "TLS handshake: this target refuses the host: {error}");
                connection.refuse(&error);
            }
        }
    }

    fn secured(&self, mut connection: UnderWay) {
        let peer = connection.newcomer.peer;
        let keys = connection.handshake.take().map(|handshake| handshake.keys(BLOCKS_MAX));
        let Some(Ok(keys)) = keys.inspect(|keys| {
            keys.as_ref().inspect_err(|error| warn!(%peer, "TLS handshake: {error}")).ok();
        }) else {
            return;
        };
        // Whose key it is may have changed meanwhile: then it is nobody's.
        let Some((_, secured_as)) = look_up(&self.keys, &keys.identity) else { return };
        debug!(%peer, host = secured_as.hostnqn, suite = ?keys.suite, "secured");
        connection.newcomer.secured_as = Some(secured_as);
        connection.secure(keys);
    }
}

/// Handshakes under way.
struct UnderWays<T> {
    by_age: BTreeMap<u64, T>,
    next: u64,
}

impl<T> Default for UnderWays<T> {
    fn default() -> Self {
        UnderWays { by_age: BTreeMap::new(), next: 0 }
    }
}

/// What comes from somewhere.
trait Sourced {
    fn source(&self) -> &Source;
}

impl Sourced for UnderWay {
    fn source(&self) -> &Source {
        &self.source
    }
}

impl<T: Sourced> UnderWays<T> {
    fn enter(&mut self, connection: T) {
        self.by_age.insert(self.next, connection);
        self.next += 1;
    }

    /// Takes the oldest of the source that has most.
    fn make_room(&mut self) -> Option<T> {
        let mut counts: HashMap<&Source, (usize, u64)> = HashMap::new();
        for (number, connection) in &self.by_age {
            counts.entry(connection.source()).or_insert((0, *number)).0 += 1;
        }
        let (_, number) = counts.into_values().max_by_key(|(count, _)| *count)?;
        self.by_age.remove(&number)
    }

    /// Of those `ready`, the first of each source.
    fn turn(&self, ready: &[u64]) -> Vec<u64> {
        let mut seen = HashSet::new();
        let mut is_first = |number: &&u64| {
            self.by_age.get(number).is_some_and(|connection| seen.insert(connection.source()))
        };
        ready.iter().filter(|number| is_first(number)).copied().collect()
    }
}

impl UnderWay {
    fn fd(&self) -> RawFd {
        self.newcomer.stream.fd()
    }

    fn advance(&mut self, acceptor: &Acceptor) -> Result<Next, Error> {
        if self.handshake.is_none() {
            let mut first = [0];
            match self.receive(&mut first, RecvFlags::PEEK) {
                Ok(Incoming::Nothing) => return Ok(Next::Wait),
                Ok(Incoming::Octets(_))
                    if self.tls == TlsUse::Allowed && first != [CONTENT_TYPE_HANDSHAKE] =>
                {
                    return Ok(Next::Plain);
                }
                Ok(Incoming::Octets(_)) => self.handshake = Some(acceptor.accept()?),
                Ok(Incoming::Closed) | Err(_) => return Ok(Next::Gone),
            }
        }
        let Some(mut handshake) = self.handshake.take() else { return Ok(Next::Gone) };
        let next = self.shake(&mut handshake);
        self.handshake = Some(handshake);
        next
    }

    fn shake(&mut self, handshake: &mut Handshake) -> Result<Next, Error> {
        let mut octets = [0; RECEIVED_BYTES];
        while !handshake.is_done() {
            let wanted = handshake.wanted().min(RECEIVED_BYTES);
            match self.receive(&mut octets[..wanted], RecvFlags::empty()) {
                Ok(Incoming::Nothing) => break,
                Ok(Incoming::Closed) | Err(_) => return Ok(Next::Gone),
                Ok(Incoming::Octets(got)) => {
                    let done = handshake.receive(&octets[..got]);
                    self.unsent.append(handshake.outgoing());
                    done?;
                }
            }
        }
        match self.send() {
            Err(_) => Ok(Next::Gone),
            Ok(()) if handshake.is_done() && self.unsent.is_empty() => Ok(Next::Secured),
            Ok(()) => Ok(Next::Wait),
        }
    }

    fn receive(&self, octets: &mut [u8], flags: RecvFlags) -> io::Result<Incoming> {
        receive_octets(self.newcomer.stream.as_fd(), octets, flags)
    }

    /// Sends what there is room for.
    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match send_octets(self.newcomer.stream.as_fd(), &self.unsent)? {
                Some(sent) => drop(self.unsent.drain(..sent)),
                None => break,
            }
        }
        Ok(())
    }

    /// Lets the peer hear that it is refused, and closes the connection.
    fn refuse(mut self, error: &Error) {
        if self.unsent.is_empty() {
            self.unsent.extend([0x15, 3, 3, 0, 2, 2, error.alert()]);
        }
        let _ = self.send();
        self.newcomer.stream.end();
    }

    fn secure(mut self, keys: roadtrain_tls::Keys) {
        let Stream::Plain(socket) = self.newcomer.stream else { return };
        let peer = self.newcomer.peer;
        match Stream::secured(socket, keys) {
            Ok(stream) => {
                debug!(%peer, records = stream.records(), "records");
                self.newcomer.stream = stream;
                self.give();
            }
            Err(error) => warn!(%peer, "the kernel does not take the keys of TLS: {error}"),
        }
    }

    fn give(self) {
        self.reactor.send(Order::Adopt(self.newcomer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sourced for Source {
        fn source(&self) -> &Source {
            self
        }
    }

    fn under_way(peers: &[&str]) -> UnderWays<Source> {
        let mut under_way = UnderWays::default();
        peers.iter().for_each(|peer| under_way.enter(Source::from(*peer)));
        under_way
    }

    #[test]
    fn who_has_most_makes_room() {
        let mut under_way =
            under_way(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2", "10.0.0.2:2", "10.0.0.2:3"]);
        let mut left = || {
            under_way.make_room();
            under_way.by_age.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(left(), [0, 2, 3, 4], "the oldest of the second");
        left();
        assert_eq!(left().len(), 2);
        assert!(left().len() == 1 && left().is_empty() && left().is_empty());
    }

    #[test]
    fn each_source_has_one_turn() {
        let under_way = under_way(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.1:3"]);
        assert_eq!(under_way.turn(&[0, 1, 2, 3]), [0, 2]);
        assert_eq!(under_way.turn(&[1, 3]), [1]);
        assert_eq!(under_way.turn(&[7]), [0; 0], "it was ended meanwhile");
    }
}
