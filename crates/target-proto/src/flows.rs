//! Placement of connections on reactors, and their moves between reactors.
//!
//! A connection belongs to the reactor on the core that processes its packets, its *home*: there received data is in
//! the caches, and no other thread has to be woken. When that core is overloaded, some of its connections are moved to
//! other cores.
//!
//! ```text
//! new connection ------------> home, or any reactor in turn
//! packets on another core ---> that core, unless it has no capacity
//! core is full --------------> the least busy core, if that relieves the fuller of the two
//! ```
//!
//! No single report causes a move. A moved connection stays for a time that doubles with each move, so that connections
//! do not oscillate, whatever the loads do.

use core::time::Duration;
use roadtrain_proto::time::Instant;
use std::collections::HashMap;

/// Interval of the reports of a busy reactor.
pub const REPORT_EVERY: Duration = Duration::from_millis(200);
/// Unit of shares: thousandths.
pub const WHOLE: u32 = 1000;

/// Load above which a core is full.
const FULL: u32 = 900;
/// Load of a core up to which connections may return to it.
const ROOM: u32 = 600;
/// Load by which a move has to relieve the fuller of the two cores.
const GAIN: u32 = 150;
/// Cost of work on another core than that of the packets, in percent.
const REMOTE_COST_PERCENT: u32 = 130;
/// Consecutive reports that have to agree before a connection moves.
const REPORTS: u32 = 2;
/// One sample in so many is enough to show that packets arrive on another core.
const SAMPLES_PER_HINT: usize = 4;
/// Duration for which a move is added to the reported loads, which lag behind.
const PENDING: Duration = Duration::from_millis(400);
/// Stay of a connection after its first move; it doubles with each further one.
const STAY_MIN: Duration = Duration::from_secs(1);
const STAY_MAX: Duration = Duration::from_secs(64);
/// Longest duration of a move between two reactors.
const MOVE_TIME_MAX: Duration = Duration::from_secs(10);
/// Duration without a move after which the next one counts as the first.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// A connection as its reactor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFlow {
    /// Identifier of the connection, for its lifetime.
    pub id: u64,
    /// Work of its reactor since the last report, in any unit.
    pub work: u64,
    /// Core that processes its packets, if known.
    pub packets: Option<usize>,
    /// True if it may be moved at all.
    pub is_movable: bool,
}

/// A move of a connection to another reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Identifier of the connection.
    pub id: u64,
    /// Destination reactor.
    pub to: usize,
}

/// State of a connection.
#[derive(Debug)]
struct FlowState {
    reactor: usize,
    home: Option<usize>,
    /// Share of its core that it uses.
    load: u32,
    /// Consecutive reports in which its home was another reactor.
    away: u32,
    moved: Option<LastMove>,
    /// True if another connection has left its home in exchange for it.
    is_expected: bool,
    /// True from the order to move until the next reactor reports it.
    is_moving: bool,
}

#[derive(Clone, Copy, Debug)]
struct LastMove {
    at: Instant,
    stays: Duration,
}

#[derive(Debug)]
struct FlowReactor {
    core: Option<usize>,
    /// Share of the time that its core was busy, with any work.
    busy: u32,
    /// Consecutive reports in which its core was full.
    full: u32,
}

/// A move that the reported loads do not include yet.
#[derive(Debug)]
struct PendingMove {
    until: Instant,
    from: usize,
    to: usize,
    load: u32,
}

/// All reactors and their connections.
#[derive(Debug)]
pub struct Flows {
    reactors: Vec<FlowReactor>,
    known: HashMap<u64, FlowState>,
    pending: Vec<PendingMove>,
    /// Number of connections placed so far.
    placed: usize,
}

impl Flows {
    /// Creates the state of reactors that are pinned to these cores, at least one.
    #[must_use]
    pub fn new(cores: Vec<Option<usize>>) -> Self {
        debug_assert!(!cores.is_empty());
        let reactors =
            cores.into_iter().map(|core| FlowReactor { core, busy: 0, full: 0 }).collect();
        Flows { reactors, known: HashMap::new(), pending: Vec::new(), placed: 0 }
    }

    /// Returns the reactor for a new connection whose packets are processed on the core `packets`: one on that core, or
    /// else any, in turn.
    pub fn choose(&mut self, packets: Option<usize>) -> usize {
        let is_same_core =
            |reactor: &usize| packets.is_some() && self.reactors[*reactor].core == packets;
        let mut fitting: Vec<usize> = (0..self.reactors.len()).filter(is_same_core).collect();
        if fitting.is_empty() {
            fitting = (0..self.reactors.len()).collect();
        }
        let turn = self.placed % fitting.len();
        self.placed += 1;
        fitting[turn]
    }

    /// Takes the report of a reactor, due every [`REPORT_EVERY`] while it is busy: the share of its core that it used
    /// itself, the busy share of each reactor's core, and its connections. Returns the connections that have to move
    /// now.
    pub fn report(
        &mut self,
        now: Instant,
        reactor: usize,
        (own, busy): (u32, &[u32]),
        flows: &[ConnectionFlow],
    ) -> Vec<Move> {
        self.pending.retain(|pending| pending.until > now);
        for (known, &busy) in self.reactors.iter_mut().zip(busy) {
            known.busy = busy.min(WHOLE);
        }
        let this = &mut self.reactors[reactor];
        this.full = if this.busy >= FULL { this.full + 1 } else { 0 };
        self.note(now, reactor, own.min(WHOLE), flows);
        let mut movable: Vec<u64> = flows.iter().filter(|f| f.is_movable).map(|f| f.id).collect();
        movable.retain(|id| self.known.get(id).is_some_and(|known| known.may_move(now)));
        let mut moves = self.follow(now, &movable);
        movable.retain(|id| moves.iter().all(|moved| moved.id != *id));
        moves.extend(self.relieve(now, reactor, movable));
        moves
    }

    /// Records that a requested move did not happen.
    pub fn stayed(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id) {
            known.is_moving = false;
        }
    }

    /// Records the connections of a report.
    fn note(&mut self, now: Instant, reactor: usize, own: u32, flows: &[ConnectionFlow]) {
        let all: u64 = flows.iter().map(|flow| flow.work).sum();
        let is_gone = |id: &u64, known: &FlowState| {
            let is_here = || flows.iter().any(|flow| flow.id == *id);
            known.reactor == reactor && !known.is_in_transit(now) && !is_here()
        };
        self.known.retain(|id, known| !is_gone(id, known));
        for flow in flows {
            let load = (u64::from(own) * flow.work).checked_div(all).unwrap_or(0) as u32;
            let home = self.home(reactor, flow.packets);
            let known = self.known.entry(flow.id).or_insert(FlowState {
                reactor,
                home,
                load,
                away: 0,
                moved: None,
                is_expected: false,
                is_moving: false,
            });
            if known.reactor != reactor {
                (known.reactor, known.away, known.is_moving) = (reactor, 0, false);
            }
            let is_away = flow.work > 0 && home.is_some_and(|home| home != reactor);
            known.away = if is_away { known.away + 1 } else { 0 };
            (known.home, known.load) = (home, load);
        }
    }

    /// Returns the reactor on that core; the given one if it is there, too.
    fn home(&self, reactor: usize, packets: Option<usize>) -> Option<usize> {
        let core = Some(packets?);
        let is_here = self.reactors[reactor].core == core;
        if is_here { Some(reactor) } else { self.reactors.iter().position(|r| r.core == core) }
    }

    /// Returns the load of a reactor's core, including the moves that reports do not show yet.
    fn busy(&self, reactor: usize) -> u32 {
        let sum = |at: fn(&PendingMove) -> usize| -> u32 {
            self.pending.iter().filter(|p| at(p) == reactor).map(|p| p.load).sum()
        };
        (self.reactors[reactor].busy + sum(|p| p.to)).saturating_sub(sum(|p| p.from))
    }

    /// Moves connections whose packets have arrived on another core for a while to that core. It needs capacity or much
    /// less load than this core, or a connection that moves the other way in exchange.
    fn follow(&mut self, now: Instant, movable: &[u64]) -> Vec<Move> {
        let mut moves = Vec::new();
        for &id in movable {
            let Some((here, home)) = self.is_away(id) else { continue };
            let Some(&FlowState { load, is_expected, .. }) = self.known.get(&id) else { continue };
            let there = self.busy(home) + load;
            if is_expected || there <= ROOM || there + GAIN <= self.busy(here) {
                moves.push(self.begin(now, id, home));
            } else if let Some(other) = self.exchange(now, id, (here, home)) {
                if let Some(known) = self.known.get_mut(&other) {
                    known.is_expected = true;
                }
                moves.push(self.begin(now, id, home));
            }
        }
        moves
    }

    /// Returns the reactor of a connection and its home, if that has been another one for a while.
    fn is_away(&self, id: u64) -> Option<(usize, usize)> {
        let known = self.known.get(&id)?;
        (known.away >= REPORTS).then_some((known.reactor, known.home?))
    }

    /// Returns a connection at the home of `id` that has its home here and may move. The exchange must neither add much
    /// load to a core nor make one full.
    fn exchange(&self, now: Instant, id: u64, (here, home): (usize, usize)) -> Option<u64> {
        let load = self.known.get(&id)?.load;
        let most = FULL.max(self.busy(home) + 1).max(self.busy(here) + 1);
        let after = |at: usize, comes: u32, goes: u32| (self.busy(at) + comes).saturating_sub(goes);
        let fits = |(other, known): (&u64, &FlowState)| {
            let is_other = self.is_away(*other) == Some((home, here)) && known.may_move(now);
            let fuller = after(home, load, known.load).max(after(here, known.load, load));
            (is_other && known.load.abs_diff(load) < GAIN && fuller < most).then_some(*other)
        };
        self.known.iter().find_map(fits)
    }

    /// Moves connections of a full core to the least busy ones, until all are about equally busy; not if that relieves
    /// the fullest by too little.
    fn relieve(&mut self, now: Instant, reactor: usize, mut movable: Vec<u64>) -> Vec<Move> {
        if self.reactors[reactor].full < REPORTS {
            return Vec::new();
        }
        let mut busy: Vec<u32> = (0..self.reactors.len()).map(|at| self.busy(at)).collect();
        let before = busy[reactor];
        let mut plan: Vec<Move> = Vec::new();
        loop {
            let is_other =
                |other: &usize| self.reactors[*other].core != self.reactors[reactor].core;
            let others = (0..busy.len()).filter(is_other);
            let Some(to) = others.min_by_key(|&other| busy[other]) else { break };
            let load = |id: u64| self.known.get(&id).map_or(0, |known| known.load);
            let comes = |id: u64| self.known.get(&id).map_or(0, |known| known.load_at(to));
            let (here, there) = (busy[reactor], busy[to]);
            let fuller = |id: &u64| here.saturating_sub(load(*id)).max(there + comes(*id));
            let best = movable.iter().copied().min_by_key(fuller);
            let Some(best) = best.filter(|best| fuller(best) < here) else { break };
            movable.retain(|&id| id != best);
            busy[reactor] = here.saturating_sub(load(best));
            busy[to] += comes(best);
            plan.push(Move { id: best, to });
        }
        let fullest = plan.iter().map(|planned| busy[planned.to]).chain([busy[reactor]]).max();
        if fullest.is_none_or(|fullest| fullest + GAIN > before) {
            return Vec::new();
        }
        self.reactors[reactor].full = 0;
        plan.into_iter().map(|Move { id, to }| self.begin(now, id, to)).collect()
    }

    fn begin(&mut self, now: Instant, id: u64, to: usize) -> Move {
        if let Some(known) = self.known.get_mut(&id) {
            let stays = match known.moved {
                Some(last) if now.since(last.at) < RESET_AFTER => (last.stays * 2).min(STAY_MAX),
                _ => STAY_MIN,
            };
            known.moved = Some(LastMove { at: now, stays });
            (known.is_moving, known.is_expected, known.away) = (true, false, 0);
            let (from, load) = (known.reactor, known.load);
            self.pending.push(PendingMove { until: now + PENDING, from, to, load });
        }
        Move { id, to }
    }
}

/// Returns the core on which a connection's packets arrive. Its reactor, on the core `own`, has sampled now and then
/// which core processed the last packet.
///
/// On loopback, packets sent by this end are received and acknowledged on its own core: those samples prove nothing. So
/// another core counts even if it was rarely seen.
#[must_use]
pub fn packets_core(own: Option<usize>, seen: &[usize]) -> Option<usize> {
    let others = || seen.iter().copied().filter(|&core| Some(core) != own);
    if others().count() * SAMPLES_PER_HINT >= seen.len() {
        let count = |core: &usize| others().filter(|other| other == core).count();
        return others().max_by_key(count).or(seen.first().copied());
    }
    own
}

impl FlowState {
    /// True while it moves between two reactors. A connection that has ended on the way is forgotten after a while.
    fn is_in_transit(&self, now: Instant) -> bool {
        self.is_moving && self.moved.is_some_and(|last| now.since(last.at) < MOVE_TIME_MAX)
    }

    /// Returns the share that it would use of another core.
    fn load_at(&self, to: usize) -> u32 {
        if self.home == Some(self.reactor) && self.home != Some(to) {
            return self.load * REMOTE_COST_PERCENT / 100;
        }
        self.load
    }

    fn may_move(&self, now: Instant) -> bool {
        !self.is_moving && self.moved.is_none_or(|last| now.since(last.at) >= last.stays)
    }
}

#[cfg(test)]
mod tests;
