//! Connections over a network that splits data at any byte, delays it, holds it back, and resets connections with any
//! part of it lost. Data that arrives is in order, as TCP ensures.

use crate::ends::{ConnEnd, ConnId, ConnectionArrival};
use crate::forger;
use crate::rng::SimRng;
use crate::secure::TlsEnds;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Upper bound of the bytes that the set-up of a connection takes in either direction.
const SET_UP_BYTES: usize = 2048;

/// Behaviour of the network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkBehaviour {
    /// Shortest and longest delay in microseconds.
    pub delay_us: (u64, u64),
    /// Most bytes of a piece; data is cut at random.
    pub piece_bytes: u64,
    /// Bytes in flight in one direction at which a sender blocks.
    pub window_bytes: usize,
}

/// One direction of a connection, named by the end that receives.
#[derive(Default)]
struct ConnectionPipe {
    flight: VecDeque<(Instant, ConnectionArrival)>,
    bytes: usize,
    /// Bytes that have arrived.
    arrived: usize,
    /// Time before which the receiver reads nothing.
    stalled_until: Instant,
    /// True while the receiver does not read.
    is_unread: bool,
    /// True if the sender found the window closed.
    sender_blocked: bool,
    /// Time since which a blocked sender can continue.
    writable_at: Option<Instant>,
    /// True once the receiver is gone: arriving data is lost.
    dead: bool,
    /// True while the network silently drops everything.
    swallows: bool,
    /// Bytes that were sent.
    sent: Vec<u8>,
    /// True if the data was forged.
    is_forged: bool,
}

impl ConnectionPipe {
    fn push(&mut self, at: Instant, arrival: ConnectionArrival) {
        if self.dead || self.swallows {
            return;
        }
        let last = self.flight.back().map_or(at, |(last, _)| *last);
        self.flight.push_back((at.max(last), arrival));
    }

    fn next_at(&self, held_until: Instant) -> Option<Instant> {
        let (at, _) = self.flight.front().filter(|_| !self.is_unread)?;
        Some((*at).max(self.stalled_until).max(held_until))
    }

    /// Drops the end of the data in flight, cut at any byte.
    fn cut(&mut self, rng: &mut SimRng) {
        let mut keep = rng.between(0, self.bytes as u64) as usize;
        self.flight.retain_mut(|(_, arrival)| {
            if let ConnectionArrival::Bytes(bytes) = arrival {
                bytes.truncate(keep);
                keep -= bytes.len();
                return !bytes.is_empty();
            }
            true
        });
        self.bytes = self.flight.iter().map(|(_, arrival)| length(arrival)).sum();
    }
}

fn length(arrival: &ConnectionArrival) -> usize {
    match arrival {
        ConnectionArrival::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

#[derive(Default)]
struct NetworkConnection {
    /// Target that it leads to.
    target: u8,
    /// Host that has opened it.
    hostid: [u8; 16],
    to_host: ConnectionPipe,
    to_target: ConnectionPipe,
}

impl NetworkConnection {
    fn pipe(&mut self, receiver: ConnEnd) -> &mut ConnectionPipe {
        match receiver {
            ConnEnd::Host => &mut self.to_host,
            ConnEnd::Target => &mut self.to_target,
        }
    }
}

/// The network between hosts and targets.
pub struct Network {
    network_behaviour: NetworkBehaviour,
    rng: SimRng,
    connections: BTreeMap<ConnId, NetworkConnection>,
    next_id: u32,
    held_until: Instant,
    /// Target of each address at present.
    routes: Vec<u8>,
    /// Times until which targets are paused.
    paused_until: Vec<Instant>,
    /// Bytes that the ends of connections have sent, and how many were received and compared.
    ledger: BTreeMap<(ConnId, bool), (Vec<u8>, usize)>,
    /// Connection that an end is about to close.
    leaving: Option<(ConnId, ConnEnd)>,
    /// True if connections have TLS, whose records can be forged.
    is_secured: bool,
    /// Number of changes to bytes in flight.
    pub forged: u64,
    /// Reasons why ends of connections with TLS have ended.
    pub tls: TlsEnds,
}

impl Network {
    /// Makes a network without connections. `routes` are the targets of the addresses.
    #[must_use]
    pub fn new(
        network_behaviour: NetworkBehaviour,
        (routes, targets): (Vec<u8>, u8),
        is_secured: bool,
        rng: SimRng,
    ) -> Self {
        Network {
            network_behaviour,
            rng,
            connections: BTreeMap::new(),
            next_id: 0,
            held_until: Instant::default(),
            routes,
            paused_until: vec![Instant(0); targets.into()],
            ledger: BTreeMap::new(),
            leaving: None,
            is_secured,
            forged: 0,
            tls: TlsEnds::default(),
        }
    }

    /// Returns the target of an address at present.
    #[must_use]
    pub fn route(&self, address: u8) -> u8 {
        self.routes[usize::from(address)]
    }

    /// Routes an address to another target.
    pub fn set_route(&mut self, address: u8, target: u8) {
        let route = self.routes.get_mut(usize::from(address));
        route.into_iter().for_each(|route| *route = target);
    }

    /// Pauses a target until `until`.
    pub fn pause(&mut self, target: u8, until: Instant) {
        self.paused_until[usize::from(target)] = until;
    }

    /// Begins a turn of an end: its blocked senders retry without a wake-up.
    pub fn begin_turn(&mut self, end: ConnEnd) {
        for connection in self.connections.values_mut() {
            connection.pipe(end.peer()).writable_at = None;
        }
    }

    fn delay(&mut self) -> Duration {
        let (shortest, longest) = self.network_behaviour.delay_us;
        self.rng.micros(shortest, longest)
    }

    /// Connects a host; the target accepts later.
    pub fn connect(&mut self, now: Instant, target: u8, hostid: [u8; 16]) -> ConnId {
        self.next_id += 1;
        let id = ConnId(self.next_id);
        let at = now + self.delay();
        let mut connection = NetworkConnection { target, hostid, ..NetworkConnection::default() };
        connection.to_target.push(at, ConnectionArrival::Accept);
        self.connections.insert(id, connection);
        id
    }

    /// Sends as much of `bytes` as the window takes. Returns that number of bytes.
    pub fn send(&mut self, now: Instant, id: ConnId, from: ConnEnd, bytes: &[u8]) -> usize {
        let window = self.network_behaviour.window_bytes;
        let Some(pipe) = self.connections.get_mut(&id).map(|c| c.pipe(from.peer())) else {
            return bytes.len();
        };
        if pipe.dead || pipe.swallows {
            return bytes.len();
        }
        pipe.writable_at = None;
        let taken = bytes.len().min(window.saturating_sub(pipe.bytes));
        pipe.sender_blocked = taken < bytes.len();
        pipe.bytes += taken;
        if self.is_secured {
            pipe.sent.extend_from_slice(&bytes[..taken]);
        }
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let piece =
                self.rng.between(1, self.network_behaviour.piece_bytes).min(rest.len() as u64);
            let (now_sent, later) = rest.split_at(piece as usize);
            let at = now + self.delay();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.pipe(from.peer()).push(at, ConnectionArrival::Bytes(now_sent.to_vec()));
            }
            rest = later;
        }
        taken
    }

    /// Returns the next piece that has arrived at `end` of `id`.
    pub fn receive(&mut self, now: Instant, id: ConnId, end: ConnEnd) -> Option<ConnectionArrival> {
        let held_until = self.held_until(self.connections.get(&id)?.target, end);
        let pipe = self.connections.get_mut(&id)?.pipe(end);
        if pipe.next_at(held_until)? > now {
            return None;
        }
        let (_, arrival) = pipe.flight.pop_front()?;
        pipe.bytes -= length(&arrival);
        pipe.arrived += length(&arrival);
        if std::mem::take(&mut pipe.sender_blocked) {
            pipe.writable_at = Some(now);
        }
        if arrival == ConnectionArrival::Closed {
            self.forget(id, end);
        }
        Some(arrival)
    }

    /// Accepts a connection of a target that is due.
    pub fn accept(&mut self, now: Instant, target: u8) -> Option<ConnId> {
        let held_until = self.held_until(target, ConnEnd::Target);
        let waiting = self.connections.iter().find(|(_, connection)| {
            let pipe = &connection.to_target;
            connection.target == target
                && matches!(pipe.flight.front(), Some((_, ConnectionArrival::Accept)))
                && pipe.next_at(held_until).is_some_and(|at| at <= now)
        });
        let id = *waiting?.0;
        self.receive(now, id, ConnEnd::Target);
        Some(id)
    }

    /// Closes the side of `end`: with `orderly` all data sent arrives first, else maybe only a part.
    pub fn close(&mut self, now: Instant, id: ConnId, end: ConnEnd, orderly: bool) {
        let at = now + self.delay();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = connection.pipe(end.peer());
        if !orderly {
            pipe.cut(&mut self.rng);
        }
        pipe.push(at, ConnectionArrival::Closed);
        self.forget(id, end);
    }

    /// Resets the connection: both ends lose the data in flight, from any byte on.
    pub fn reset(&mut self, now: Instant, id: ConnId) {
        for receiver in [ConnEnd::Host, ConnEnd::Target] {
            let at = now + self.delay();
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let pipe = connection.pipe(receiver);
            pipe.cut(&mut self.rng);
            pipe.push(at, ConnectionArrival::Closed);
        }
    }

    /// Drops all later data of the connection in both directions, and data in flight. Neither end is notified, not even
    /// when the other one closes. Data that has arrived can still be read.
    pub fn swallow(&mut self, now: Instant, id: ConnId) {
        let held_until = self.held_until;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        for end in [ConnEnd::Host, ConnEnd::Target] {
            let pipe = connection.pipe(end);
            pipe.swallows = true;
            pipe.flight.retain(|(at, _)| (*at).max(held_until) <= now);
            pipe.bytes = pipe.flight.iter().map(|(_, arrival)| length(arrival)).sum();
            pipe.sender_blocked = false;
        }
    }

    /// Resets the connection with notice to `end` only.
    pub fn reset_one(&mut self, now: Instant, id: ConnId, end: ConnEnd) {
        self.swallow(now, id);
        let at = now + self.delay();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // A target that has not accepted the connection never will.
        let is_known = end == ConnEnd::Host || connection.to_target.arrived > 0;
        let pipe = connection.pipe(end);
        if is_known && !pipe.dead {
            pipe.flight.push_back((at, ConnectionArrival::Closed));
        }
    }

    /// Stops receiving at `end`.
    fn forget(&mut self, id: ConnId, end: ConnEnd) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = connection.pipe(end);
        pipe.dead = true;
        pipe.flight.clear();
        pipe.bytes = 0;
        if connection.to_host.dead && connection.to_target.dead {
            self.connections.remove(&id);
        }
    }

    /// True if the end of the connection has arrived at `end`, maybe behind unread bytes.
    #[must_use]
    pub fn is_closed(&self, now: Instant, id: ConnId, end: ConnEnd) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        let pipe = match end {
            ConnEnd::Host => &connection.to_host,
            ConnEnd::Target => &connection.to_target,
        };
        pipe.dead
            || matches!(pipe.flight.back(), Some((at, ConnectionArrival::Closed))
                if (*at).max(self.held_until) <= now)
    }

    /// True if the host still has the connection.
    #[must_use]
    pub fn has_host(&self, id: ConnId) -> bool {
        self.connections.get(&id).is_some_and(|connection| !connection.to_host.dead)
    }

    /// Returns the host that has opened a connection with TLS.
    #[must_use]
    pub fn secured_host(&self, id: ConnId) -> Option<[u8; 16]> {
        let connection = self.connections.get(&id).filter(|_| self.is_secured)?;
        Some(connection.hostid)
    }

    /// Starts or stops reading at `end`.
    pub fn listen(&mut self, id: ConnId, end: ConnEnd, listens: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pipe(end).is_unread = !listens;
        }
    }

    /// Stops reading at `end` before `until`.
    pub fn stall(&mut self, id: ConnId, end: ConnEnd, until: Instant) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let pipe = connection.pipe(end);
            pipe.stalled_until = pipe.stalled_until.max(until);
        }
    }

    /// Holds all arrivals until `until`.
    pub fn hold(&mut self, until: Instant) {
        self.held_until = self.held_until.max(until);
    }

    /// Flips a bit in flight, on a connection that has long completed its set-up, which no digest protects.
    pub fn corrupt(&mut self) {
        let pipes = self.connections.values_mut().flat_map(|c| [&mut c.to_host, &mut c.to_target]);
        let pipes = pipes.filter(|pipe| pipe.arrived > SET_UP_BYTES);
        let pieces =
            pipes.flat_map(|pipe| &mut pipe.flight).filter_map(|(_, arrival)| match arrival {
                ConnectionArrival::Bytes(bytes) if !bytes.is_empty() => Some(bytes),
                _ => None,
            });
        let mut pieces: Vec<&mut Vec<u8>> = pieces.collect();
        if pieces.is_empty() {
            return;
        }
        let piece = self.rng.below(pieces.len() as u64) as usize;
        let byte = self.rng.below(pieces[piece].len() as u64) as usize;
        pieces[piece][byte] ^= 1 << self.rng.below(8);
        self.forged += 1;
    }

    /// Forges the data in flight over a connection in one direction, at most once for each.
    pub fn forge(&mut self) {
        let pipes = self.connections.values_mut().flat_map(|c| [&mut c.to_host, &mut c.to_target]);
        let mut pipes: Vec<&mut ConnectionPipe> =
            pipes.filter(|pipe| pipe.bytes > 0 && !pipe.is_forged).collect();
        if pipes.is_empty() {
            return;
        }
        let number = self.rng.below(pipes.len() as u64) as usize;
        let pipe = &mut *pipes[number];
        let pieces = pipe.flight.iter_mut().filter_map(|(_, arrival)| match arrival {
            ConnectionArrival::Bytes(bytes) => Some(bytes),
            _ => None,
        });
        if forger::forge(&mut self.rng, &pipe.sent, pipe.arrived, pieces.collect()) {
            pipe.is_forged = true;
            pipe.bytes = pipe.flight.iter().map(|(_, arrival)| length(arrival)).sum();
            self.forged += 1;
        }
    }

    /// Records data that an end has sent.
    pub fn record_sent(&mut self, id: ConnId, from: ConnEnd, data: &[u8]) {
        self.ledger.entry((id, from == ConnEnd::Host)).or_default().0.extend_from_slice(data);
    }

    /// Compares data that an end has received with the data that its peer has sent. True if it matches.
    #[must_use]
    pub fn check_received(&mut self, id: ConnId, at: ConnEnd, data: &[u8]) -> bool {
        if data.is_empty() {
            return true;
        }
        let (sent, received) = self.ledger.entry((id, at == ConnEnd::Target)).or_default();
        let is_next = sent[*received..].starts_with(data);
        *received += data.len();
        is_next
    }

    /// Requests that an end closes a connection.
    pub fn leave(&mut self, id: ConnId, end: ConnEnd) {
        self.leaving = Some((id, end));
    }

    /// True if an end is to close the connection now.
    pub fn leaves(&mut self, id: ConnId, end: ConnEnd) -> bool {
        self.leaving.take_if(|leaving| *leaving == (id, end)).is_some()
    }

    /// Returns a random connection.
    pub fn any(&mut self) -> Option<ConnId> {
        let count = self.connections.len() as u64;
        let index = if count > 0 { self.rng.below(count) } else { return None };
        self.connections.keys().nth(index as usize).copied()
    }

    /// Applies a change to every connection.
    pub fn each(&mut self, mut change: impl FnMut(&mut Self, ConnId)) {
        let conns: Vec<ConnId> = self.connections.keys().copied().collect();
        conns.into_iter().for_each(|conn| change(self, conn));
    }

    /// Returns the time of the next arrival at an end, or at which a blocked sender there can continue.
    #[must_use]
    pub fn next_event_at(&self, end: ConnEnd) -> Option<Instant> {
        let moment = |connection: &NetworkConnection| {
            let held_until = self.held_until(connection.target, end);
            let NetworkConnection { to_host, to_target, .. } = connection;
            let (arrives, sends) = match end {
                ConnEnd::Host => (to_host, to_target.writable_at),
                ConnEnd::Target => (to_target, to_host.writable_at.map(|at| at.max(held_until))),
            };
            arrives.next_at(held_until).into_iter().chain(sends).min()
        };
        self.connections.values().filter_map(moment).min()
    }

    /// Returns the time before which nothing arrives at that end of a target's connections.
    fn held_until(&self, target: u8, end: ConnEnd) -> Instant {
        let paused = self.paused_until.get(usize::from(target)).filter(|_| end == ConnEnd::Target);
        self.held_until.max(paused.copied().unwrap_or_default())
    }
}
