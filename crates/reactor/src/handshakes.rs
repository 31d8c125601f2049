//! TLS handshakes: one thread of low priority for all listeners.
//!
//! A handshake takes a tenth of a millisecond of a core. On a reactor it would delay established lanes by that time.
//! This thread delays them only for as long as the scheduler allows. A secured connection moves to its reactor.
//!
//! A peer has a time limit. Only time in which this thread waits for the peer counts; computing, for this peer or
//! others, does not.
//!
//! Sources take turns. When the table is full, the source with the most handshakes loses one. So a flood from one
//! address neither ends nor delays the handshakes of others.

use crate::sources::Source;
use crate::stream::{Incoming, RecvFlags, Stream, receive_octets, send_octets};
use crate::tuning;
use roadtrain_proto::time::{Instant, TimeLimit};
use roadtrain_system::clock;
use roadtrain_system::mailbox::{Inbox, Outbox, mailbox};
use roadtrain_tls::{Acceptor, BLOCKS_MAX, CONTENT_TYPE_HANDSHAKE, Error, Handshake, Keys};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, RawFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::{debug, info, warn};

/// Maximum number of handshakes; one more ends the oldest of the source that has most.
const UNDER_WAY_MAX: usize = 1024;
/// Bytes received at once.
const RECEIVED_BYTES: usize = 4096;

/// A connection that has to be secured. Dropping it closes it.
pub trait Candidate: Send + Sized + 'static {
    /// Number by which the connection can be ended.
    fn number(&self) -> u64;
    /// Address of the peer, for budgets and for the log.
    fn peer(&self) -> SocketAddr;
    /// The plain, non-blocking stream.
    fn stream(&self) -> &Stream;
    /// True if the connection may continue without TLS.
    fn may_be_plain(&self) -> bool;
    /// Continues without TLS.
    fn go_on_plain(self);
    /// Continues with the `keys` of the handshake.
    fn secured(self, keys: Keys);
    /// Logs that the connection is refused.
    fn refused(&self, error: &Error);
}

/// Commands to the thread.
pub enum Wish<C> {
    /// Secure a connection.
    Secure(C),
    /// End the connection with that number: it has to free its place, or has taken too long.
    Evict(u64),
    /// End the thread.
    Stop,
}

/// Thread for TLS handshakes.
pub struct Handshakes<C> {
    wishes: Outbox<Wish<C>>,
    thread: Option<JoinHandle<()>>,
}

impl<C> Drop for Handshakes<C> {
    fn drop(&mut self) {
        self.wishes.send(Wish::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<C: Candidate> Handshakes<C> {
    /// Starts the thread. It accepts peers that `acceptor` has keys for; each has `timeout` for its handshake.
    pub fn start(acceptor: Acceptor, timeout: Duration) -> io::Result<Self> {
        let (wishes, inbox) = mailbox()?;
        let mut desk = Desk { inbox, acceptor, timeout, under_way: UnderWays::default() };
        let body = move || {
            tuning::give_way();
            desk.run();
        };
        let thread = thread::Builder::new().name("roadtrain-tls".into()).spawn(body)?;
        Ok(Handshakes { wishes, thread: Some(thread) })
    }

    /// Returns the sender of commands.
    pub fn wishes(&self) -> Outbox<Wish<C>> {
        self.wishes.clone()
    }
}

/// A connection in its handshake.
struct UnderWay<C> {
    source: Source,
    candidate: C,
    /// The handshake; `None` until the first byte has arrived.
    handshake: Option<Handshake>,
    /// Bytes that the full socket has not taken.
    unsent: Vec<u8>,
    limit: TimeLimit,
}

/// Next step of a connection.
enum Next {
    Wait,
    /// Continue without TLS.
    Plain,
    Secured,
    /// Close it without an error: the peer has disconnected.
    Gone,
}

struct Desk<C> {
    inbox: Inbox<Wish<C>>,
    acceptor: Acceptor,
    timeout: Duration,
    under_way: UnderWays<UnderWay<C>>,
}

impl<C: Candidate> Desk<C> {
    fn run(&mut self) {
        loop {
            let ready = self.wait();
            self.inbox.acknowledge();
            while let Some(wish) = self.inbox.take() {
                match wish {
                    Wish::Secure(candidate) => self.begin(candidate),
                    Wish::Evict(number) => {
                        self.under_way.by_age.retain(|_, c| c.candidate.number() != number)
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

    /// Waits for a command, for bytes, or for the first time limit. Returns the numbers of connections that are ready,
    /// the oldest first.
    fn wait(&mut self) -> Vec<u64> {
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = vec![poll(self.inbox.fd(), libc::POLLIN)];
        polls.extend(self.under_way.by_age.values().map(|connection| {
            let is_done = connection.handshake.as_ref().is_some_and(Handshake::is_done);
            let input = if is_done { 0 } else { libc::POLLIN };
            let out = if connection.unsent.is_empty() { 0 } else { libc::POLLOUT };
            poll(connection.fd(), input | out)
        }));
        let left = self.under_way.deadline().map(|at| at.since(clock::now()));
        let timeout = left.map_or(-1, |left| left.as_millis() as libc::c_int + 1);
        // SAFETY: `polls` is a valid array of that length.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let now = clock::now();
        let connections = self.under_way.by_age.iter_mut().zip(&polls[1..]);
        let ready = connections.filter_map(|((number, connection), poll)| {
            connection.has_come(now, poll.revents != 0).then_some(*number)
        });
        ready.collect()
    }

    fn begin(&mut self, candidate: C) {
        if self.under_way.by_age.len() >= UNDER_WAY_MAX
            && let Some(ended) = self.under_way.make_room()
        {
            info!(peer = %ended.candidate.peer(), "TLS handshake ended: others need its room");
        }
        let source = candidate.peer().into();
        let (mut limit, unsent) = (TimeLimit::new(self.timeout), Vec::new());
        limit.begin(clock::now());
        self.under_way.enter(UnderWay { source, candidate, handshake: None, unsent, limit });
    }

    fn end_overdue(&mut self) {
        for ended in self.under_way.take_overdue(clock::now()) {
            let peer = ended.candidate.peer();
            info!(%peer, "TLS handshake: no end of it in time");
        }
    }

    fn go_on(&mut self, number: u64, mut connection: UnderWay<C>) {
        let peer = connection.candidate.peer();
        match connection.advance(&self.acceptor) {
            Ok(Next::Wait) => {
                connection.limit.begin(clock::now());
                self.under_way.by_age.insert(number, connection);
            }
            Ok(Next::Gone) => debug!(%peer, "TLS handshake: the peer has gone"),
            Ok(Next::Plain) => connection.candidate.go_on_plain(),
            Ok(Next::Secured) => {
                let keys = connection.handshake.map(|handshake| handshake.keys(BLOCKS_MAX));
                match keys {
                    Some(Ok(keys)) => connection.candidate.secured(keys),
                    Some(Err(error)) => warn!(%peer, "TLS handshake: {error}"),
                    None => {}
                }
            }
            Err(error) => {
                connection.candidate.refused(&error);
                connection.refuse(&error);
            }
        }
    }
}

/// Handshakes in flight, by age.
struct UnderWays<T> {
    by_age: BTreeMap<u64, T>,
    next: u64,
}

impl<T> Default for UnderWays<T> {
    fn default() -> Self {
        UnderWays { by_age: BTreeMap::new(), next: 0 }
    }
}

/// A peer with a source and a time limit.
trait Sourced {
    fn source(&self) -> &Source;
    fn limit(&mut self) -> &mut TimeLimit;

    /// Updates the time limit after a wait: its clock stops if something has arrived. Returns `is_ready`.
    fn has_come(&mut self, now: Instant, is_ready: bool) -> bool {
        match is_ready {
            true => self.limit().end(now),
            false => self.limit().begin(now),
        }
        is_ready
    }
}

impl<C> Sourced for UnderWay<C> {
    fn source(&self) -> &Source {
        &self.source
    }

    fn limit(&mut self) -> &mut TimeLimit {
        &mut self.limit
    }
}

impl<T: Sourced> UnderWays<T> {
    fn enter(&mut self, connection: T) {
        self.by_age.insert(self.next, connection);
        self.next += 1;
    }

    /// Takes the oldest handshake of the source that has most.
    fn make_room(&mut self) -> Option<T> {
        let mut counts: HashMap<&Source, (usize, u64)> = HashMap::new();
        for (number, connection) in &self.by_age {
            counts.entry(connection.source()).or_insert((0, *number)).0 += 1;
        }
        let (_, number) = counts.into_values().max_by_key(|(count, _)| *count)?;
        self.by_age.remove(&number)
    }

    /// Returns the first time limit that is reached if nothing arrives.
    fn deadline(&mut self) -> Option<Instant> {
        self.by_age.values_mut().filter_map(|connection| connection.limit().deadline()).min()
    }

    /// Takes the handshakes whose time limit is reached.
    fn take_overdue(&mut self, now: Instant) -> Vec<T> {
        let overdue = self.by_age.extract_if(.., |_, connection| connection.limit().is_over(now));
        overdue.map(|(_, connection)| connection).collect()
    }

    /// Returns the first of each source among those `ready`.
    fn turn(&self, ready: &[u64]) -> Vec<u64> {
        let mut seen = HashSet::new();
        let mut is_first = |number: &&u64| {
            self.by_age.get(number).is_some_and(|connection| seen.insert(connection.source()))
        };
        ready.iter().filter(|number| is_first(number)).copied().collect()
    }
}

impl<C: Candidate> UnderWay<C> {
    fn fd(&self) -> RawFd {
        self.candidate.stream().fd()
    }

    fn advance(&mut self, acceptor: &Acceptor) -> Result<Next, Error> {
        if self.handshake.is_none() {
            let mut first = [0];
            match self.receive(&mut first, RecvFlags::PEEK) {
                Ok(Incoming::Nothing) => return Ok(Next::Wait),
                Ok(Incoming::Octets(_))
                    if self.candidate.may_be_plain() && first != [CONTENT_TYPE_HANDSHAKE] =>
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
        receive_octets(self.candidate.stream().as_fd(), octets, flags)
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match send_octets(self.candidate.stream().as_fd(), &self.unsent)? {
                Some(sent) => drop(self.unsent.drain(..sent)),
                None => break,
            }
        }
        Ok(())
    }

    /// Sends the alert to the refused peer, and closes the connection.
    fn refuse(mut self, error: &Error) {
        if self.unsent.is_empty() {
            self.unsent.extend([0x15, 3, 3, 0, 2, 2, error.alert()]);
        }
        let _ = self.send();
        self.candidate.stream().end_half();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    struct Peer(Source, TimeLimit);

    impl Sourced for Peer {
        fn source(&self) -> &Source {
            &self.0
        }

        fn limit(&mut self) -> &mut TimeLimit {
            &mut self.1
        }
    }

    fn under_way(peers: &[&str]) -> UnderWays<Peer> {
        let mut under_way = UnderWays::default();
        let peer = |peer: &&str| Peer(Source::from(*peer), TimeLimit::new(TIME));
        peers.iter().map(peer).for_each(|peer| under_way.enter(peer));
        under_way
    }

    /// Records that the thread has waited, and something has arrived from these peers.
    fn waited(under_way: &mut UnderWays<Peer>, now: Instant, ready: &[u64]) {
        for (number, peer) in &mut under_way.by_age {
            peer.has_come(now, ready.contains(number));
        }
    }

    /// Returns the remaining handshakes after the overdue ones were removed.
    fn left(under_way: &mut UnderWays<Peer>, now: Instant) -> Vec<u64> {
        under_way.take_overdue(now);
        under_way.by_age.keys().copied().collect()
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

    /// Holds however long that takes, and whatever others send meanwhile.
    #[test]
    fn who_waits_for_the_thread_is_not_overdue() {
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        let mut under_way = under_way(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"]);
        waited(&mut under_way, at(0), &[]);
        assert_eq!(under_way.deadline(), Some(at(10)));
        // Two peers have sent something, and the thread is busy; the third one has not.
        waited(&mut under_way, at(9), &[0, 1]);
        assert_eq!(left(&mut under_way, at(9)), [0, 1, 2]);
        waited(&mut under_way, at(60), &[0, 1]);
        assert_eq!(left(&mut under_way, at(60)), [0, 1]);
        // They have a second left.
        waited(&mut under_way, at(60), &[]);
        assert_eq!(under_way.deadline(), Some(at(61)));
        assert_eq!(left(&mut under_way, at(60)), [0, 1]);
        assert!(left(&mut under_way, at(61)).is_empty());
    }

    #[test]
    fn each_source_has_one_turn() {
        let under_way = under_way(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.1:3"]);
        assert_eq!(under_way.turn(&[0, 1, 2, 3]), [0, 2]);
        assert_eq!(under_way.turn(&[1, 3]), [1]);
        assert_eq!(under_way.turn(&[7]), [0; 0], "it was ended meanwhile");
    }
}
