//! Path selection: chooses one of several paths to the same namespaces for each request.
//!
//! Each path is a controller with an association of its own ([`super::association`]). A lane has a connection, and
//! requests ([`super::requests`]), on each of them, and one [`Selector`]. All state of a request is with its lane, so
//! it touches no other thread's memory. Selectors receive changes of paths.
//!
//! [`RequestTable::take_free`](super::requests::RequestTable::take_free) decides which requests may leave a lost path. The
//! [`HostAssociation`](super::association::HostAssociation) of that path decides when the others may.

mod meter;

pub use meter::PathMeter;

use super::express::RequestTraffic;
use super::namespace_identity::BarredNsids;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ana::AnaState;
use std::sync::Arc;

/// Criterion that chooses among paths with the same ANA state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// Least expected latency: requests in flight times the service time.
    #[default]
    Latency,
    /// Paths in turn.
    RoundRobin,
    /// Fewest requests in flight.
    QueueDepth,
}

/// Access of a path to a namespace, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathAccess {
    Optimized,
    NonOptimized,
    /// Inaccessible now, accessible soon.
    Change,
    Inaccessible,
    /// Permanently inaccessible.
    Never,
}

impl From<AnaState> for PathAccess {
    fn from(state: AnaState) -> Self {
        match state {
            AnaState::Optimized => PathAccess::Optimized,
            AnaState::NonOptimized => PathAccess::NonOptimized,
            AnaState::Change => PathAccess::Change,
            AnaState::Inaccessible => PathAccess::Inaccessible,
            AnaState::PersistentLoss => PathAccess::Never,
        }
    }
}

/// ANA state of each namespace on a path, in the order of NSIDs. NSIDs without an entry are optimized.
pub type AnaTable = Arc<[(u32, AnaState)]>;

/// Connection state of a path of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathLinkState {
    /// Connected.
    Live,
    /// Not connected; attempts continue.
    #[default]
    Connecting,
    /// Not connected for the controller-loss timeout.
    Lost,
    /// Takes no requests: it is being removed, or not added yet.
    Gone,
}

/// Capacity and latency of a path for a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathOffer {
    /// Requests that the path takes now.
    pub room: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Expected latency in nanoseconds: [`PathMeter::expected`].
    pub expected: u64,
    /// True if its current latency is unknown: [`PathMeter::wants_probe`].
    pub wants_probe: bool,
    /// True if it does not support the request: any other path comes first.
    pub is_last: bool,
}

/// Time for which a path is avoided for a namespace after a path-related status.
const SHUN: Duration = Duration::from_secs(1);

/// Result of path selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChoice {
    /// Submit on this path.
    Path(usize),
    /// No path now: those that could carry it are full.
    Full,
    /// Wait on this path, until it or another one can carry the request.
    Wait(usize),
}

#[derive(Debug, Default)]
struct SelectorPath {
    state: PathLinkState,
    access: AnaTable,
    barred: BarredNsids,
    /// NSIDs that the path refused, each with the time until which it is avoided.
    shunned: Vec<(u32, Instant)>,
}

impl SelectorPath {
    fn access(&self, now: Instant, nsid: u32) -> PathAccess {
        if !self.shunned.is_empty() && self.shunned.iter().any(|&(n, t)| n == nsid && now < t) {
            return PathAccess::Inaccessible;
        }
        if self.barred.has(nsid) {
            return PathAccess::Never;
        }
        if self.access.is_empty() {
            return PathAccess::Optimized;
        }
        let at = self.access.binary_search_by_key(&nsid, |&(nsid, _)| nsid);
        at.map_or(PathAccess::Optimized, |at| self.access[at].1.into())
    }
}

/// Path selector of a lane.
#[derive(Debug)]
pub struct Selector {
    policy: PathPolicy,
    paths: Vec<SelectorPath>,
    /// Path whose turn is next.
    next: usize,
}

impl Selector {
    /// Creates a selector for a number of paths, none of which is connected.
    #[must_use]
    pub fn new(policy: PathPolicy, paths: usize) -> Self {
        let paths = std::iter::repeat_with(SelectorPath::default).take(paths).collect();
        Selector { policy, paths, next: 0 }
    }

    // ---- Updates ----

    /// Extends the selector to this many paths; new ones are [`PathLinkState::Gone`].
    pub fn grow(&mut self, paths: usize) {
        while self.paths.len() < paths {
            self.paths.push(SelectorPath { state: PathLinkState::Gone, ..SelectorPath::default() });
        }
    }

    /// Sets the connection state of a path.
    pub fn set_state(&mut self, path: usize, state: PathLinkState) {
        let entry = &mut self.paths[path];
        entry.state = state;
        entry.shunned.clear();
    }

    /// Sets the ANA states of a path.
    pub fn set_access(&mut self, path: usize, access: AnaTable) {
        let entry = &mut self.paths[path];
        entry.access = access;
        entry.shunned.clear();
    }

    /// Sets NSIDs that the path may not carry: they stand, or may stand, for other namespaces than on other paths.
    pub fn set_barred(&mut self, path: usize, barred: BarredNsids) {
        self.paths[path].barred = barred;
    }

    /// Avoids a path for a namespace for a while, as it refused a request.
    pub fn refused(&mut self, now: Instant, path: usize, nsid: u32) {
        let shunned = &mut self.paths[path].shunned;
        shunned.retain(|&(other, until)| other != nsid && now < until);
        shunned.push((nsid, now + SHUN));
    }

    // ---- Queries ----

    /// Returns the connection state of a path.
    #[must_use]
    pub fn state(&self, path: usize) -> PathLinkState {
        self.paths[path].state
    }

    /// Returns the connected paths.
    pub fn live(&self) -> impl Iterator<Item = usize> {
        let live = |(_, entry): &(usize, &SelectorPath)| entry.state == PathLinkState::Live;
        self.paths.iter().enumerate().filter(live).map(|(path, _)| path)
    }

    /// True if another path than `path` may carry requests to this namespace now.
    #[must_use]
    pub fn has_other(&self, now: Instant, path: usize, nsid: u32) -> bool {
        self.live()
            .any(|other| other != path && self.paths[other].access(now, nsid) < PathAccess::Change)
    }

    /// Returns the path with the best access to this namespace now.
    #[must_use]
    pub fn best(&self, now: Instant, nsid: u32) -> Option<usize> {
        let access = |path: &usize| self.paths[*path].access(now, nsid);
        self.live().filter(|path| access(path) < PathAccess::Change).min_by_key(access)
    }

    /// Chooses the path of a request to this namespace; `offer` returns the state of each path.
    #[inline]
    pub fn choose(
        &mut self,
        now: Instant,
        nsid: u32,
        offer: impl Fn(usize) -> PathOffer,
    ) -> PathChoice {
        let mut best: Option<(bool, PathAccess, u64, usize)> = None;
        let (mut is_full, mut is_one_usable) = (false, false);
        let count = self.paths.len();
        for step in 0..count {
            // The path whose turn it is comes first, and wins among equals.
            let path = (self.next + step) % count;
            let entry = &self.paths[path];
            if entry.state != PathLinkState::Live {
                continue;
            }
            let access = entry.access(now, nsid);
            if access == PathAccess::Never {
                continue;
            }
            let offered = offer(path);
            if offered.room == 0 {
                is_full = true;
                is_one_usable |= access < PathAccess::Change;
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
            // The path would refuse it.
            Some((_, access, _, _)) if is_one_usable && access >= PathAccess::Change => {
                PathChoice::Full
            }
            Some((.., path)) if self.policy == PathPolicy::RoundRobin => {
                self.next = (path + 1) % count;
                PathChoice::Path(path)
            }
            Some((.., path)) => PathChoice::Path(path),
            None if is_full => PathChoice::Full,
            None => PathChoice::Wait(self.waiting_room(now, nsid)),
        }
    }

    /// Returns the path on which a request waits, preferably one that may be connected again.
    #[cold]
    fn waiting_room(&self, now: Instant, nsid: u32) -> usize {
        let is_hoped_for = |entry: &SelectorPath| {
            !matches!(entry.state, PathLinkState::Lost | PathLinkState::Gone)
        };
        let is_there = |entry: &SelectorPath| entry.state != PathLinkState::Gone;
        let reaches = |entry: &SelectorPath| entry.access(now, nsid) != PathAccess::Never;
        let paths = || self.paths.iter();
        let best = paths().position(|entry| is_hoped_for(entry) && reaches(entry));
        let best = best.or_else(|| paths().position(is_hoped_for));
        best.or_else(|| paths().position(is_there)).unwrap_or(0)
    }
}

/// Number of traffic classes with separate measurements: latency-critical, plain, and bulk.
pub(crate) const KINDS: usize = 3;

fn kind(traffic: RequestTraffic) -> usize {
    match traffic {
        RequestTraffic::Critical => 0,
        RequestTraffic::Plain => 1,
        RequestTraffic::Bulk(_) => 2,
    }
}

#[cfg(test)]
mod tests;
