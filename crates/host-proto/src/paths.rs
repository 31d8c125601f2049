//! Several paths to the same namespaces: which one a request takes.
//!
//! Each path is a controller with an association of its own ([`super::association`]). A lane has a connection, and
//! requests ([`super::requests`]), on each of them, and one [`Selector`]: everything that a request needs is with its
//! lane, so no other thread's memory is touched for it. What becomes of paths is told to selectors when it changes.
//!
//! What may leave a path that is lost is decided by [`Requests::take_free`](super::requests::Requests::take_free), when
//! the rest may do so by the [`Association`](super::association::Association) of that path.

mod meter;

pub use meter::Meter;

use super::express::Traffic;
use super::pins::Barred;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ana::AnaState;
use std::sync::Arc;

/// By what a path is chosen among those that are equally good otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// The least expected latency: what is under way times how long it takes there.
    #[default]
    Latency,
    /// Each in turn.
    RoundRobin,
    /// The fewest requests under way.
    QueueDepth,
}

/// How good a path is for a namespace, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Optimized,
    NonOptimized,
    /// Not now, but soon.
    Change,
    Inaccessible,
    /// Never.
    Never,
}

impl From<AnaState> for Access {
    fn from(state: AnaState) -> Self {
        match state {
            AnaState::Optimized => Access::Optimized,
            AnaState::NonOptimized => Access::NonOptimized,
            AnaState::Change => Access::Change,
            AnaState::Inaccessible => Access::Inaccessible,
            AnaState::PersistentLoss => Access::Never,
        }
    }
}

/// What a path's controller has said of each namespace, in the order of NSIDs. Others are optimized.
pub type AnaTable = Arc<[(u32, AnaState)]>;

/// How it stands with a path of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WayState {
    /// There is a connection.
    Live,
    /// There is none, and there will be one.
    #[default]
    Connecting,
    /// There was none for the controller-loss timeout.
    Lost,
    /// It takes no more requests: it is leaving, or not there yet.
    Gone,
}

/// What a path offers to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer {
    /// Requests that it takes now.
    pub room: u32,
    /// Requests under way.
    pub in_flight: u32,
    /// Expected latency in nanoseconds: [`Meter::expected`].
    pub expected: u64,
    /// Nobody knows how fast it is now: [`Meter::wants_probe`].
    pub wants_probe: bool,
    /// It cannot do what the request asks for: any other path comes first.
    pub is_last: bool,
}

/// A path that has said that it cannot carry a namespace's requests is asked again after so long.
const SHUN: Duration = Duration::from_secs(1);

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Over that path.
    Path(usize),
    /// Nowhere now: the paths that could carry it take no more.
    Full,
    /// To that path, to wait until it can carry it, or another one can.
    Wait(usize),
}

#[derive(Debug, Default)]
struct Way {
    state: WayState,
    access: AnaTable,
    barred: Barred,
    /// NSIDs that were refused there, each until then.
    shunned: Vec<(u32, Instant)>,
}

impl Way {
    fn access(&self, now: Instant, nsid: u32) -> Access {
        if !self.shunned.is_empty() && self.shunned.iter().any(|&(n, t)| n == nsid && now < t) {
            return Access::Inaccessible;
        }
        if self.barred.has(nsid) {
            return Access::Never;
        }
        if self.access.is_empty() {
            return Access::Optimized;
        }
        let at = self.access.binary_search_by_key(&nsid, |&(nsid, _)| nsid);
        at.map_or(Access::Optimized, |at| self.access[at].1.into())
    }
}

/// Chooses a path for each request of a lane.
#[derive(Debug)]
pub struct Selector {
    policy: PathPolicy,
    ways: Vec<Way>,
    /// Whose turn it is.
    next: usize,
}

impl Selector {
    /// For a lane with so many paths, none of which is connected.
    #[must_use]
    pub fn new(policy: PathPolicy, paths: usize) -> Self {
        let ways = std::iter::repeat_with(Way::default).take(paths).collect();
        Selector { policy, ways, next: 0 }
    }

    // ---- What is told ----

    /// There may be so many paths now; those that are new are not there yet.
    pub fn grow(&mut self, paths: usize) {
        while self.ways.len() < paths {
            self.ways.push(Way { state: WayState::Gone, ..Way::default() });
        }
    }

    /// The path's connection has come, or gone.
    pub fn set_state(&mut self, path: usize, state: WayState) {
        let way = &mut self.ways[path];
        way.state = state;
        way.shunned.clear();
    }

    /// What the path's controller can reach.
    pub fn set_access(&mut self, path: usize, access: AnaTable) {
        let way = &mut self.ways[path];
        way.access = access;
        way.shunned.clear();
    }

    /// What the path may not carry: NSIDs that mean other namespaces there than on others, or may.
    pub fn set_barred(&mut self, path: usize, barred: Barred) {
        self.ways[path].barred = barred;
    }

    /// The path has refused a request to that namespace for now.
    pub fn refused(&mut self, now: Instant, path: usize, nsid: u32) {
        let shunned = &mut self.ways[path].shunned;
        shunned.retain(|&(other, until)| other != nsid && now < until);
        shunned.push((nsid, now + SHUN));
    }

    // ---- What is asked ----

    /// How it stands with the path.
    #[must_use]
    pub fn state(&self, path: usize) -> WayState {
        self.ways[path].state
    }

    /// Paths with a connection.
    pub fn live(&self) -> impl Iterator<Item = usize> {
        let live = |(_, way): &(usize, &Way)| way.state == WayState::Live;
        self.ways.iter().enumerate().filter(live).map(|(path, _)| path)
    }

    /// Whether another path than `path` may carry requests to that namespace now.
    #[must_use]
    pub fn has_other(&self, now: Instant, path: usize, nsid: u32) -> bool {
        self.live()
            .any(|other| other != path && self.ways[other].access(now, nsid) < Access::Change)
    }

    /// The path that reaches that namespace best now.
    #[must_use]
    pub fn best(&self, now: Instant, nsid: u32) -> Option<usize> {
        let access = |path: &usize| self.ways[*path].access(now, nsid);
        self.live().filter(|path| access(path) < Access::Change).min_by_key(access)
    }

    /// The path that a request to that namespace takes; `offer` says what each has.
    #[inline]
    pub fn choose(&mut self, now: Instant, nsid: u32, offer: impl Fn(usize) -> Offer) -> Choice {
        let mut best: Option<(bool, Access, u64, usize)> = None;
        let (mut is_full, mut is_one_usable) = (false, false);
        let count = self.ways.len();
        for step in 0..count {
            // Whose turn it is comes first, and stays first among equals.
            let path = (self.next + step) % count;
            let way = &self.ways[path];
            if way.state != WayState::Live {
                continue;
            }
            let access = way.access(now, nsid);
            if access == Access::Never {
                continue;
            }
            let offered = offer(path);
            if offered.room == 0 {
                is_full = true;
                is_one_usable |= access < Access::Change;
                continue;
            }
            let cost = match self.policy {
                PathPolicy::Latency if offered.wants_probe => 0,
                PathPolicy::Latency => offered.expected,
                PathPolicy::QueueDepth => offered.in_flight.into(),
                PathPolicy::RoundRobin => 0,
            };
            let rank = (offered.is_last, access, cost);
            if best.is_none_or(|(last, a, c, _)| rank < (last, a, c)) {
                best = Some((offered.is_last, access, cost, path));
            }
        }
        match best {
            // It would only be refused there, and come back.
            Some((_, access, _, _)) if is_one_usable && access >= Access::Change => Choice::Full,
            Some((.., path)) if self.policy == PathPolicy::RoundRobin => {
                self.next = (path + 1) % count;
                Choice::Path(path)
            }
            Some((.., path)) => Choice::Path(path),
            None if is_full => Choice::Full,
            None => Choice::Wait(self.waiting_room(now, nsid)),
        }
    }

    /// A path that is still hoped for, if there is one.
    #[cold]
    fn waiting_room(&self, now: Instant, nsid: u32) -> usize {
        let is_hoped_for = |way: &Way| !matches!(way.state, WayState::Lost | WayState::Gone);
        let is_there = |way: &Way| way.state != WayState::Gone;
        let reaches = |way: &Way| way.access(now, nsid) != Access::Never;
        let ways = || self.ways.iter();
        let best = ways().position(|way| is_hoped_for(way) && reaches(way));
        let best = best.or_else(|| ways().position(is_hoped_for));
        best.or_else(|| ways().position(is_there)).unwrap_or(0)
    }
}

/// What is measured apart: latency-critical, plain, and bulk.
pub(crate) const KINDS: usize = 3;

fn kind(traffic: Traffic) -> usize {
    match traffic {
        Traffic::Critical => 0,
        Traffic::Plain => 1,
        Traffic::Bulk(_) => 2,
    }
}

#[cfg(test)]
mod tests;
