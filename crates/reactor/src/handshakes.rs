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

use crate::sources::ConnectionSource;
use crate::stream::{ConnectionStream, Incoming, RecvFlags, receive_bytes, send_bytes};
use crate::tuning;
use roadtrain_proto::time::{Instant, TimeLimit};
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender, mailbox};
use roadtrain_tls::{
    Acceptor, BLOCKS_MAX, CONTENT_TYPE_HANDSHAKE, Handshake, TlsError, TlsSessionKeys,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, RawFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::{debug, info, warn};

/// Maximum number of handshakes; one more ends the oldest of the source that has most.
const PENDING_MAX: usize = 1024;
/// Bytes received at once.
const RECEIVED_BYTES: usize = 4096;

/// A connection that has to be secured. Dropping it closes it.
pub trait HandshakeCandidate: Send + Sized + 'static {
    /// Number by which the connection can be ended.
    fn number(&self) -> u64;
    /// Address of the peer, for budgets and for the log.
    fn peer(&self) -> SocketAddr;
    /// The plain, non-blocking stream.
    fn stream(&self) -> &ConnectionStream;
    /// True if the connection may continue without TLS.
    fn may_be_plain(&self) -> bool;
    /// Continues without TLS.
    fn continue_plain(self);
    /// Continues with the `keys` of the handshake.
    fn secured(self, keys: TlsSessionKeys);
    /// Logs that the connection is refused.
    fn refused(&self, error: &TlsError);
}

/// Commands to the thread.
pub enum HandshakeCommand<C> {
    /// Secure a connection.
    Secure(C),
    /// End the connection with that number: it has to free its place, or has taken too long.
    Evict(u64),
    /// End the thread.
    Stop,
}

/// Thread for TLS handshakes.
pub struct HandshakeThread<C> {
    commands: MailboxSender<HandshakeCommand<C>>,
    thread: Option<JoinHandle<()>>,
}

impl<C> Drop for HandshakeThread<C> {
    fn drop(&mut self) {
        self.commands.send(HandshakeCommand::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<C: HandshakeCandidate> HandshakeThread<C> {
    /// Starts the thread. It accepts peers that `acceptor` has keys for; each has `timeout` for its handshake.
    pub fn start(acceptor: Acceptor, timeout: Duration) -> io::Result<Self> {
        let (wishes, inbox) = mailbox()?;
        let mut worker =
            HandshakeWorker { inbox, acceptor, timeout, pending: PendingHandshakes::default() };
        let body = move || {
            tuning::lower_priority();
            worker.run();
        };
        let thread = thread::Builder::new().name("roadtrain-tls".into()).spawn(body)?;
        Ok(HandshakeThread { commands: wishes, thread: Some(thread) })
    }

    /// Returns the sender of commands.
    pub fn commands(&self) -> MailboxSender<HandshakeCommand<C>> {
        self.commands.clone()
    }
}

/// A connection in its handshake.
struct PendingHandshake<C> {
    source: ConnectionSource,
    candidate: C,
    /// The handshake; `None` until the first byte has arrived.
    handshake: Option<Handshake>,
    /// Bytes that the full socket has not taken.
    unsent: Vec<u8>,
    limit: TimeLimit,
}

/// Next step of a connection.
enum HandshakeStep {
    Wait,
    /// Continue without TLS.
    Plain,
    Secured,
    /// Close it without an error: the peer has disconnected.
    Gone,
}

struct HandshakeWorker<C> {
    inbox: MailboxReceiver<HandshakeCommand<C>>,
    acceptor: Acceptor,
    timeout: Duration,
    pending: PendingHandshakes<PendingHandshake<C>>,
}

impl<C: HandshakeCandidate> HandshakeWorker<C> {
    fn run(&mut self) {
        loop {
            let ready = self.wait();
            self.inbox.acknowledge();
            while let Some(command) = self.inbox.take() {
                match command {
                    HandshakeCommand::Secure(candidate) => self.begin(candidate),
                    HandshakeCommand::Evict(number) => {
                        self.pending.by_age.retain(|_, c| c.candidate.number() != number)
                    }
                    HandshakeCommand::Stop => return,
                }
            }
            self.end_overdue();
            for number in self.pending.turn(&ready) {
                let Some(connection) = self.pending.by_age.remove(&number) else { continue };
                self.resume(number, connection);
            }
        }
    }

    /// Waits for a command, for bytes, or for the first time limit. Returns the numbers of connections that are ready,
    /// the oldest first.
    fn wait(&mut self) -> Vec<u64> {
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = vec![poll(self.inbox.fd(), libc::POLLIN)];
        polls.extend(self.pending.by_age.values().map(|connection| {
            let is_done = connection.handshake.as_ref().is_some_and(Handshake::is_done);
            let input = if is_done { 0 } else { libc::POLLIN };
            let out = if connection.unsent.is_empty() { 0 } else { libc::POLLOUT };
            poll(connection.fd(), input | out)
        }));
        let left = self.pending.deadline().map(|at| at.since(clock::now()));
        let timeout = left.map_or(-1, |left| left.as_millis() as libc::c_int + 1);
        // SAFETY: `polls` is a valid array of that length.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let now = clock::now();
        let connections = self.pending.by_age.iter_mut().zip(&polls[1..]);
        let ready = connections.filter_map(|((number, connection), poll)| {
            connection.update_limit(now, poll.revents != 0).then_some(*number)
        });
        ready.collect()
    }

    fn begin(&mut self, candidate: C) {
        if self.pending.by_age.len() >= PENDING_MAX
            && let Some(ended) = self.pending.evict()
        {
            info!(peer = %ended.candidate.peer(), "TLS handshake ended: too many handshakes at once");
        }
        let source = candidate.peer().into();
        let (mut limit, unsent) = (TimeLimit::new(self.timeout), Vec::new());
        limit.begin(clock::now());
        self.pending.add(PendingHandshake { source, candidate, handshake: None, unsent, limit });
    }

    fn end_overdue(&mut self) {
        for ended in self.pending.take_overdue(clock::now()) {
            let peer = ended.candidate.peer();
            info!(%peer, "TLS handshake timed out");
        }
    }

    fn resume(&mut self, number: u64, mut connection: PendingHandshake<C>) {
        let peer = connection.candidate.peer();
        match connection.advance(&self.acceptor) {
            Ok(HandshakeStep::Wait) => {
                connection.limit.begin(clock::now());
                self.pending.by_age.insert(number, connection);
            }
            Ok(HandshakeStep::Gone) => debug!(%peer, "TLS handshake: the peer has gone"),
            Ok(HandshakeStep::Plain) => connection.candidate.continue_plain(),
            Ok(HandshakeStep::Secured) => {
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
struct PendingHandshakes<T> {
    by_age: BTreeMap<u64, T>,
    next: u64,
}

impl<T> Default for PendingHandshakes<T> {
    fn default() -> Self {
        PendingHandshakes { by_age: BTreeMap::new(), next: 0 }
    }
}

/// A peer with a source and a time limit.
trait Sourced {
    fn source(&self) -> &ConnectionSource;
    fn limit(&mut self) -> &mut TimeLimit;

    /// Updates the time limit after a wait: its clock stops if something has arrived. Returns `is_ready`.
    fn update_limit(&mut self, now: Instant, is_ready: bool) -> bool {
        match is_ready {
            true => self.limit().end(now),
            false => self.limit().begin(now),
        }
        is_ready
    }
}

impl<C> Sourced for PendingHandshake<C> {
    fn source(&self) -> &ConnectionSource {
        &self.source
    }

    fn limit(&mut self) -> &mut TimeLimit {
        &mut self.limit
    }
}

impl<T: Sourced> PendingHandshakes<T> {
    fn add(&mut self, connection: T) {
        self.by_age.insert(self.next, connection);
        self.next += 1;
    }

    /// Takes the oldest handshake of the source that has most.
    fn evict(&mut self) -> Option<T> {
        let mut counts: HashMap<&ConnectionSource, (usize, u64)> = HashMap::new();
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

impl<C: HandshakeCandidate> PendingHandshake<C> {
    fn fd(&self) -> RawFd {
        self.candidate.stream().fd()
    }

    fn advance(&mut self, acceptor: &Acceptor) -> Result<HandshakeStep, TlsError> {
        if self.handshake.is_none() {
            let mut first = [0];
            match self.receive(&mut first, RecvFlags::PEEK) {
                Ok(Incoming::Nothing) => return Ok(HandshakeStep::Wait),
                Ok(Incoming::Bytes(_))
                    if self.candidate.may_be_plain() && first != [CONTENT_TYPE_HANDSHAKE] =>
                {
                    return Ok(HandshakeStep::Plain);
                }
                Ok(Incoming::Bytes(_)) => self.handshake = Some(acceptor.accept()?),
                Ok(Incoming::Closed) | Err(_) => return Ok(HandshakeStep::Gone),
            }
        }
        let Some(mut handshake) = self.handshake.take() else { return Ok(HandshakeStep::Gone) };
        let next = self.run_handshake(&mut handshake);
        self.handshake = Some(handshake);
        next
    }

    fn run_handshake(&mut self, handshake: &mut Handshake) -> Result<HandshakeStep, TlsError> {
        let mut bytes = [0; RECEIVED_BYTES];
        while !handshake.is_done() {
            let wanted = handshake.wanted().min(RECEIVED_BYTES);
            match self.receive(&mut bytes[..wanted], RecvFlags::empty()) {
                Ok(Incoming::Nothing) => break,
                Ok(Incoming::Closed) | Err(_) => return Ok(HandshakeStep::Gone),
                Ok(Incoming::Bytes(got)) => {
                    let done = handshake.receive(&bytes[..got]);
                    self.unsent.append(handshake.outgoing());
                    done?;
                }
            }
        }
        match self.send() {
            Err(_) => Ok(HandshakeStep::Gone),
            Ok(()) if handshake.is_done() && self.unsent.is_empty() => Ok(HandshakeStep::Secured),
            Ok(()) => Ok(HandshakeStep::Wait),
        }
    }

    fn receive(&self, bytes: &mut [u8], flags: RecvFlags) -> io::Result<Incoming> {
        receive_bytes(self.candidate.stream().as_fd(), bytes, flags)
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match send_bytes(self.candidate.stream().as_fd(), &self.unsent)? {
                Some(sent) => drop(self.unsent.drain(..sent)),
                None => break,
            }
        }
        Ok(())
    }

    /// Sends the alert to the refused peer, and closes the connection.
    fn refuse(mut self, error: &TlsError) {
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

    struct HandshakePeer(ConnectionSource, TimeLimit);

    impl Sourced for HandshakePeer {
        fn source(&self) -> &ConnectionSource {
            &self.0
        }

        fn limit(&mut self) -> &mut TimeLimit {
            &mut self.1
        }
    }

    fn pending(peers: &[&str]) -> PendingHandshakes<HandshakePeer> {
        let mut pending = PendingHandshakes::default();
        let peer = |peer: &&str| HandshakePeer(ConnectionSource::from(*peer), TimeLimit::new(TIME));
        peers.iter().map(peer).for_each(|peer| pending.add(peer));
        pending
    }

    /// Records that the thread has waited, and something has arrived from these peers.
    fn waited(pending: &mut PendingHandshakes<HandshakePeer>, now: Instant, ready: &[u64]) {
        for (number, peer) in &mut pending.by_age {
            peer.update_limit(now, ready.contains(number));
        }
    }

    /// Returns the remaining handshakes after the overdue ones were removed.
    fn left(pending: &mut PendingHandshakes<HandshakePeer>, now: Instant) -> Vec<u64> {
        pending.take_overdue(now);
        pending.by_age.keys().copied().collect()
    }

    #[test]
    fn the_source_with_most_handshakes_loses_one() {
        let mut pending =
            pending(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2", "10.0.0.2:2", "10.0.0.2:3"]);
        let mut left = || {
            pending.evict();
            pending.by_age.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(left(), [0, 2, 3, 4], "the oldest of the second");
        left();
        assert_eq!(left().len(), 2);
        assert!(left().len() == 1 && left().is_empty() && left().is_empty());
    }

    /// Holds however long that takes, and whatever others send meanwhile.
    #[test]
    fn a_peer_that_waits_for_the_thread_is_not_overdue() {
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        let mut pending = pending(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"]);
        waited(&mut pending, at(0), &[]);
        assert_eq!(pending.deadline(), Some(at(10)));
        // Two peers have sent something, and the thread is busy; the third one has not.
        waited(&mut pending, at(9), &[0, 1]);
        assert_eq!(left(&mut pending, at(9)), [0, 1, 2]);
        waited(&mut pending, at(60), &[0, 1]);
        assert_eq!(left(&mut pending, at(60)), [0, 1]);
        // They have a second left.
        waited(&mut pending, at(60), &[]);
        assert_eq!(pending.deadline(), Some(at(61)));
        assert_eq!(left(&mut pending, at(60)), [0, 1]);
        assert!(left(&mut pending, at(61)).is_empty());
    }

    #[test]
    fn each_source_has_one_turn() {
        let pending = pending(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.1:3"]);
        assert_eq!(pending.turn(&[0, 1, 2, 3]), [0, 2]);
        assert_eq!(pending.turn(&[1, 3]), [1]);
        assert_eq!(pending.turn(&[7]), [0; 0], "it was ended meanwhile");
    }
}
