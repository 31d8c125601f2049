//! Connections over a network that splits what is sent at any octet, delays it, holds it back, and resets
//! connections with any part of it lost. What arrives, arrives in order: TCP has seen to that.

use crate::ends::{Arrival, ConnId, End};
use crate::forger;
use crate::rng::Rng;
use crate::secure::TlsEnds;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::{BTreeMap, VecDeque};

/// More octets than the set-up of a connection has in either direction.
const SET_UP_OCTETS: usize = 2048;

/// How the network behaves.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Shortest and longest delay in microseconds.
    pub delay_us: (u64, u64),
    /// Most octets that stay together; they are cut at random.
    pub piece_bytes: u64,
    /// Octets under way in one direction before a sender blocks.
    pub window_bytes: usize,
}

/// One direction of a connection, named by the end that receives.
#[derive(Default)]
struct Pipe {
    flight: VecDeque<(Instant, Arrival)>,
    octets: usize,
    /// Octets that have arrived.
    arrived: usize,
    /// The receiver reads nothing before.
    stalled_until: Instant,
    /// The receiver does not read.
    is_deaf: bool,
    /// The sender found the window closed.
    sender_blocked: bool,
    /// The sender was blocked and may go on since then.
    writable_at: Option<Instant>,
    /// The receiver is gone: what arrives is lost.
    dead: bool,
    /// The network loses everything, and nobody knows.
    swallows: bool,
    /// Everything that was sent.
    sent: Vec<u8>,
    /// Somebody has changed it.
    is_forged: bool,
}

impl Pipe {
    fn push(&mut self, at: Instant, arrival: Arrival) {
        if self.dead || self.swallows {
            return;
        }
        let last = self.flight.back().map_or(at, |(last, _)| *last);
        self.flight.push_back((at.max(last), arrival));
    }

    fn next_at(&self, held_until: Instant) -> Option<Instant> {
        let (at, _) = self.flight.front().filter(|_| !self.is_deaf)?;
        Some((*at).max(self.stalled_until).max(held_until))
    }

    /// Loses the last octets of what is under way, cut anywhere.
    fn cut(&mut self, rng: &mut Rng) {
        let mut keep = rng.between(0, self.octets as u64) as usize;
        self.flight.retain_mut(|(_, arrival)| {
            if let Arrival::Octets(octets) = arrival {
                octets.truncate(keep);
                keep -= octets.len();
                return !octets.is_empty();
            }
            true
        });
        self.octets = self.flight.iter().map(|(_, arrival)| length(arrival)).sum();
    }
}

fn length(arrival: &Arrival) -> usize {
    match arrival {
        Arrival::Octets(octets) => octets.len(),
        _ => 0,
    }
}

#[derive(Default)]
struct Connection {
    /// The target that it leads to.
    target: u8,
    /// The host that has opened it.
    hostid: [u8; 16],
    to_host: Pipe,
    to_target: Pipe,
}

impl Connection {
    fn pipe(&mut self, receiver: End) -> &mut Pipe {
        match receiver {
            End::Host => &mut self.to_host,
            End::Target => &mut self.to_target,
        }
    }
}

/// The network between hosts and targets.
pub struct Network {
    weather: Weather,
    rng: Rng,
    connections: BTreeMap<ConnId, Connection>,
    next_id: u32,
    held_until: Instant,
    /// The target that each address leads to now.
    routes: Vec<u8>,
    /// Targets that stand still until then.
    paused_until: Vec<Instant>,
    /// What the ends of connections have said, and how much of it was heard.
    ledger: BTreeMap<(ConnId, bool), (Vec<u8>, usize)>,
    /// An end is about to leave it.
    leaving: Option<(ConnId, End)>,
    /// Connections have TLS: somebody on the wire knows their records.
    is_secured: bool,
    /// How often octets under way were changed.
    pub forged: u64,
    /// Why ends of connections with TLS were over.
    pub tls: TlsEnds,
}

impl Network {
    /// A network without connections. Address by address, `routes` are the targets that these lead to.
    #[must_use]
    pub fn new(
        weather: Weather,
        (routes, targets): (Vec<u8>, u8),
        is_secured: bool,
        rng: Rng,
    ) -> Self {
        Network {
            weather,
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

    /// The target that an address leads to now.
    #[must_use]
    pub fn route(&self, address: u8) -> u8 {
        self.routes[usize::from(address)]
    }

    /// From now on an address leads to another target.
    pub fn set_route(&mut self, address: u8, target: u8) {
        let route = self.routes.get_mut(usize::from(address));
        route.into_iter().for_each(|route| *route = target);
    }

    /// A target takes nothing before `until`.
    pub fn pause(&mut self, target: u8, until: Instant) {
        self.paused_until[usize::from(target)] = until;
    }

    /// An end is about to have a turn: its senders that were blocked try again without a wake-up.
    pub fn begin_turn(&mut self, end: End) {
        for connection in self.connections.values_mut() {
            connection.pipe(end.peer()).writable_at = None;
        }
    }

    fn delay(&mut self) -> Duration {
        let (shortest, longest) = self.weather.delay_us;
        self.rng.micros(shortest, longest)
    }

    /// The host connects; the target hears of it later.
    pub fn connect(&mut self, now: Instant, target: u8, hostid: [u8; 16]) -> ConnId {
        self.next_id += 1;
        let id = ConnId(self.next_id);
        let at = now + self.delay();
        let mut connection = Connection { target, hostid, ..Connection::default() };
        connection.to_target.push(at, Arrival::Accept);
        self.connections.insert(id, connection);
        id
    }

    /// Sends as much of `octets` as the window takes; how much that was.
    pub fn send(&mut self, now: Instant, id: ConnId, from: End, octets: &[u8]) -> usize {
        let window = self.weather.window_bytes;
        let Some(pipe) = self.connections.get_mut(&id).map(|c| c.pipe(from.peer())) else {
            return octets.len();
        };
        if pipe.dead || pipe.swallows {
            return octets.len();
        }
        pipe.writable_at = None;
        let taken = octets.len().min(window.saturating_sub(pipe.octets));
        pipe.sender_blocked = taken < octets.len();
        pipe.octets += taken;
        if self.is_secured {
            pipe.sent.extend_from_slice(&octets[..taken]);
        }
        let mut rest = &octets[..taken];
        while !rest.is_empty() {
            let piece = self.rng.between(1, self.weather.piece_bytes).min(rest.len() as u64);
            let (now_sent, later) = rest.split_at(piece as usize);
            let at = now + self.delay();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.pipe(from.peer()).push(at, Arrival::Octets(now_sent.to_vec()));
            }
            rest = later;
        }
        taken
    }

    /// What has arrived at `end` of `id`, one piece a call.
    pub fn receive(&mut self, now: Instant, id: ConnId, end: End) -> Option<Arrival> {
        let held_until = self.held_until(self.connections.get(&id)?.target, end);
        let pipe = self.connections.get_mut(&id)?.pipe(end);
        if pipe.next_at(held_until)? > now {
            return None;
        }
        let (_, arrival) = pipe.flight.pop_front()?;
        pipe.octets -= length(&arrival);
        pipe.arrived += length(&arrival);
        if std::mem::take(&mut pipe.sender_blocked) {
            pipe.writable_at = Some(now);
        }
        if arrival == Arrival::Closed {
            self.forget(id, end);
        }
        Some(arrival)
    }

    /// Connections a target has not accepted yet, and may now.
    pub fn accept(&mut self, now: Instant, target: u8) -> Option<ConnId> {
        let held_until = self.held_until(target, End::Target);
        let waiting = self.connections.iter().find(|(_, connection)| {
            let pipe = &connection.to_target;
            connection.target == target
                && matches!(pipe.flight.front(), Some((_, Arrival::Accept)))
                && pipe.next_at(held_until).is_some_and(|at| at <= now)
        });
        let id = *waiting?.0;
        self.receive(now, id, End::Target);
        Some(id)
    }

    /// `end` closes its side: with `orderly` all it has sent arrives first, else maybe only a part.
    pub fn close(&mut self, now: Instant, id: ConnId, end: End, orderly: bool) {
        let at = now + self.delay();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = connection.pipe(end.peer());
        if !orderly {
            pipe.cut(&mut self.rng);
        }
        pipe.push(at, Arrival::Closed);
        self.forget(id, end);
    }

    /// The network resets the connection: both ends lose what has not arrived, from any octet on.
    pub fn reset(&mut self, now: Instant, id: ConnId) {
        for receiver in [End::Host, End::Target] {
            let at = now + self.delay();
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let pipe = connection.pipe(receiver);
            pipe.cut(&mut self.rng);
            pipe.push(at, Arrival::Closed);
        }
    }

    /// From now on the network swallows what is sent over the connection, in both directions, and what is under way:
    /// neither end is told, not even when the other one ends it. What has arrived is still to be read.
    pub fn swallow(&mut self, now: Instant, id: ConnId) {
        let held_until = self.held_until;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        for end in [End::Host, End::Target] {
            let pipe = connection.pipe(end);
            pipe.swallows = true;
            pipe.flight.retain(|(at, _)| (*at).max(held_until) <= now);
            pipe.octets = pipe.flight.iter().map(|(_, arrival)| length(arrival)).sum();
            pipe.sender_blocked = false;
        }
    }

    /// The network resets the connection, but only `end` hears of it.
    pub fn reset_one(&mut self, now: Instant, id: ConnId, end: End) {
        self.swallow(now, id);
        let at = now + self.delay();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // A target that has not heard of the connection never will.
        let is_known = end == End::Host || connection.to_target.arrived > 0;
        let pipe = connection.pipe(end);
        if is_known && !pipe.dead {
            pipe.flight.push_back((at, Arrival::Closed));
        }
    }

    /// `end` receives no more.
    fn forget(&mut self, id: ConnId, end: End) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = connection.pipe(end);
        pipe.dead = true;
        pipe.flight.clear();
        pipe.octets = 0;
        if connection.to_host.dead && connection.to_target.dead {
            self.connections.remove(&id);
        }
    }

    /// Whether the end of the connection has arrived at `end`, maybe behind octets not read yet.
    #[must_use]
    pub fn is_closed(&self, now: Instant, id: ConnId, end: End) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        let pipe = match end {
            End::Host => &connection.to_host,
            End::Target => &connection.to_target,
        };
        pipe.dead
            || matches!(pipe.flight.back(), Some((at, Arrival::Closed))
                if (*at).max(self.held_until) <= now)
    }

    /// True if the host still has the connection.
    #[must_use]
    pub fn has_host(&self, id: ConnId) -> bool {
        self.connections.get(&id).is_some_and(|connection| !connection.to_host.dead)
    }

    /// The host that has opened a connection with TLS.
    #[must_use]
    pub fn secured_host(&self, id: ConnId) -> Option<[u8; 16]> {
        let connection = self.connections.get(&id).filter(|_| self.is_secured)?;
        Some(connection.hostid)
    }

    /// From now on `end` reads what arrives, or does not.
    pub fn listen(&mut self, id: ConnId, end: End, listens: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pipe(end).is_deaf = !listens;
        }
    }

    /// `end` does not read before `until`.
    pub fn stall(&mut self, id: ConnId, end: End, until: Instant) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let pipe = connection.pipe(end);
            pipe.stalled_until = pipe.stalled_until.max(until);
        }
    }

    /// Nothing arrives anywhere before `until`.
    pub fn hold(&mut self, until: Instant) {
        self.held_until = self.held_until.max(until);
    }

    /// Changes a bit of something under way, of a connection whose set-up, which no digest protects, is
    /// over for long.
    pub fn corrupt(&mut self) {
        let pipes = self.connections.values_mut().flat_map(|c| [&mut c.to_host, &mut c.to_target]);
        let pipes = pipes.filter(|pipe| pipe.arrived > SET_UP_OCTETS);
        let pieces =
            pipes.flat_map(|pipe| &mut pipe.flight).filter_map(|(_, arrival)| match arrival {
                Arrival::Octets(octets) if !octets.is_empty() => Some(octets),
                _ => None,
            });
        let mut pieces: Vec<&mut Vec<u8>> = pieces.collect();
        if pieces.is_empty() {
            return;
        }
        let piece = self.rng.below(pieces.len() as u64) as usize;
        let octet = self.rng.below(pieces[piece].len() as u64) as usize;
        pieces[piece][octet] ^= 1 << self.rng.below(8);
        self.forged += 1;
    }

    /// Changes what is under way over a connection in one direction, in any way; each only once.
    pub fn forge(&mut self) {
        let pipes = self.connections.values_mut().flat_map(|c| [&mut c.to_host, &mut c.to_target]);
        let mut pipes: Vec<&mut Pipe> =
            pipes.filter(|pipe| pipe.octets > 0 && !pipe.is_forged).collect();
        if pipes.is_empty() {
            return;
        }
        let number = self.rng.below(pipes.len() as u64) as usize;
        let pipe = &mut *pipes[number];
        let pieces = pipe.flight.iter_mut().filter_map(|(_, arrival)| match arrival {
            Arrival::Octets(octets) => Some(octets),
            _ => None,
        });
        if forger::forge(&mut self.rng, &pipe.sent, pipe.arrived, pieces.collect()) {
            pipe.is_forged = true;
            pipe.octets = pipe.flight.iter().map(|(_, arrival)| length(arrival)).sum();
            self.forged += 1;
        }
    }

    /// An end has said so much more.
    pub fn said(&mut self, id: ConnId, from: End, data: &[u8]) {
        self.ledger.entry((id, from == End::Host)).or_default().0.extend_from_slice(data);
    }

    /// An end has heard so much more: whether its peer has said that.
    #[must_use]
    pub fn heard(&mut self, id: ConnId, at: End, data: &[u8]) -> bool {
        if data.is_empty() {
            return true;
        }
        let (said, heard) = self.ledger.entry((id, at == End::Target)).or_default();
        let is_next = said[*heard..].starts_with(data);
        *heard += data.len();
        is_next
    }

    /// An end is to leave a connection.
    pub fn leave(&mut self, id: ConnId, end: End) {
        self.leaving = Some((id, end));
    }

    /// Whether an end is to leave a connection now.
    pub fn leaves(&mut self, id: ConnId, end: End) -> bool {
        self.leaving.take_if(|leaving| *leaving == (id, end)).is_some()
    }

    /// A connection at random.
    pub fn any(&mut self) -> Option<ConnId> {
        let count = self.connections.len() as u64;
        let index = if count > 0 { self.rng.below(count) } else { return None };
        self.connections.keys().nth(index as usize).copied()
    }

    /// Every connection that there is.
    pub fn each(&mut self, mut change: impl FnMut(&mut Self, ConnId)) {
        let conns: Vec<ConnId> = self.connections.keys().copied().collect();
        conns.into_iter().for_each(|conn| change(self, conn));
    }

    /// When something arrives at an end, or a blocked sender there may go on.
    #[must_use]
    pub fn next_moment(&self, end: End) -> Option<Instant> {
        let moment = |connection: &Connection| {
            let held_until = self.held_until(connection.target, end);
            let Connection { to_host, to_target, .. } = connection;
            let (arrives, sends) = match end {
                End::Host => (to_host, to_target.writable_at),
                End::Target => (to_target, to_host.writable_at.map(|at| at.max(held_until))),
            };
            arrives.next_at(held_until).into_iter().chain(sends).min()
        };
        self.connections.values().filter_map(moment).min()
    }

    /// Nothing is taken before at that end of a target's connections.
    fn held_until(&self, target: u8, end: End) -> Instant {
        let paused = self.paused_until.get(usize::from(target)).filter(|_| end == End::Target);
        self.held_until.max(paused.copied().unwrap_or_default())
    }
}
