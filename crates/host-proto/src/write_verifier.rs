//! Acknowledged writes that no Flush has made stable yet, and the failure of the machine that held them.
//!
//! A target completes a write when it is in a volatile cache; power failure of the target's machine loses it. The host
//! cannot detect that: the target is back, and its Flush succeeds. So a target of this project reports a *write
//! verifier* for each namespace, as NFS servers do (RFC 1813, section 3.3.7). This number changes when unflushed writes
//! may have been lost. If a path reports another verifier than before, writes under the former one since the last good
//! Flush count as lost. The next Flush of that namespace then fails. A local disk whose cache was lost behaves the
//! same.
//!
//! Each Flush that is taken starts a *round*, and keeps its number over all retries. A write belongs to the round in
//! which it was acknowledged. A good Flush of round r makes writes of rounds up to r stable. Once writes are lost,
//! Flushes fail until one fails that was taken after the last of these writes was acknowledged, and those in flight
//! with it. So each program that waits for a Flush receives the failure.
//!
//! With several paths, two rules distinguish one machine from several:
//! - If a path reports a verifier that another path has reported before, both lead to one machine. Flushes since that
//!   first report do not cover writes that the machine had acknowledged under an earlier verifier.
//! - If the machine of a path has lost its memory, and no live path leads to other unflushed writes, these count as lost:
//!   they are of the same machine, or of one that failed together with it. A machine whose verifier no path has reported
//!   before may be one that has lost its memory.
//!
//! A Flush over one machine also covers writes to another one: they may share a device.
//!
//! A host has a [`WriteVerifiers`], a path a [`PathWrites`], a lane a `LaneWrites`. A write costs one load of memory
//! that changes once per Flush.

use super::bringup::NamespaceInfo;
use core::sync::atomic::{AtomicU64, Ordering};
use roadtrain_wire::identify::NSID_ALL;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Value of [`NamespaceFlushes::failing_until`] until the failure is reported.
const UNREPORTED: u64 = u64::MAX;

/// Effect of a successful request on written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// No effect: it reads, or its data is stable at once.
    Unchanged,
    /// It has written data that a power failure may lose until the next Flush.
    NeedsFlush,
    /// It has made earlier writes to its namespace stable.
    Flush,
}

/// Flushes of a namespace over all paths of a host.
#[derive(Debug, Default)]
struct NamespaceFlushes {
    /// Last round whose writes are stable or reported as lost.
    stable: AtomicU64,
    /// Last round with a lost write.
    lost: AtomicU64,
    /// First round whose Flush may succeed.
    failing_until: AtomicU64,
}

impl NamespaceFlushes {
    /// Marks acknowledged writes of rounds up to `round` as lost.
    fn lose(&self, round: u64) {
        self.lost.fetch_max(round, Ordering::SeqCst);
        self.failing_until.store(UNREPORTED, Ordering::SeqCst);
    }

    /// Ends a successful Flush, while `next` is the next round. False if it fails because of lost writes.
    fn end(&self, round: u64, next: u64) -> bool {
        let failing_until = self.failing_until.load(Ordering::SeqCst);
        let is_good = round >= failing_until;
        if failing_until == UNREPORTED && round >= self.lost.load(Ordering::SeqCst) {
            let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
            // Another lane may have reported the failure already.
            let _ = self.failing_until.compare_exchange(UNREPORTED, next, success, failure);
        }
        self.stable.fetch_max(round, Ordering::SeqCst);
        is_good
    }
}

/// Writes that were acknowledged under one verifier.
#[derive(Debug, Default)]
struct VerifierWrites {
    /// Last round with a write.
    last: AtomicU64,
    /// Last round whose writes a Flush under the same verifier has made stable, or that were counted as lost.
    stable: AtomicU64,
}

impl VerifierWrites {
    /// Counts unstable writes as lost, if Flushes of rounds up to `stable` have succeeded. Returns the round of the
    /// last one.
    fn lose(&self, stable: u64) -> Option<u64> {
        let last = self.last.load(Ordering::SeqCst);
        let before = self.stable.fetch_max(last, Ordering::SeqCst);
        (last > before.max(stable)).then_some(last)
    }
}

/// Verifier that paths of a host have reported.
#[derive(Debug, Default)]
struct KnownVerifier {
    written: Arc<VerifierWrites>,
    /// [`NamespaceFlushes::stable`] when the first path reported it.
    stable_before: u64,
    /// Number of live paths that report it.
    paths: u32,
}

/// Namespace of a host.
#[derive(Debug, Default)]
struct HostNamespace {
    flushes: Arc<NamespaceFlushes>,
    verifiers: BTreeMap<u64, KnownVerifier>,
}

impl HostNamespace {
    /// Registers a path that reports `verifier`.
    fn report(&mut self, verifier: u64) -> PathNamespace {
        let stable_before = self.flushes.stable.load(Ordering::SeqCst);
        let known = self.verifiers.entry(verifier);
        let known =
            known.or_insert_with(|| KnownVerifier { stable_before, ..KnownVerifier::default() });
        let (flushes, written) = (self.flushes.clone(), known.written.clone());
        PathNamespace { verifier, flushes, written }
    }

    /// Replaces the verifier of a path. True if acknowledged writes may be lost.
    fn replace(&mut self, before: &PathNamespace, now: u64) -> bool {
        self.verifiers.remove(&before.verifier);
        let known = self.verifiers.get(&now);
        // Flushes after another path reported the new verifier do not cover the machine's earlier losses.
        let stable = known.map_or_else(
            || self.flushes.stable.load(Ordering::SeqCst),
            |known| known.stable_before,
        );
        let lost = before.written.lose(stable);
        lost.inspect(|&round| self.flushes.lose(round)).is_some()
    }

    /// Handles a machine's memory loss. True if a machine without a live path may have lost acknowledged writes as
    /// well.
    fn lose_unreachable(&mut self) -> bool {
        let stable = self.flushes.stable.load(Ordering::SeqCst);
        let unreachable = self.verifiers.values().filter(|known| known.paths == 0);
        let lost = unreachable.filter_map(|known| known.written.lose(stable)).max();
        lost.inspect(|&round| self.flushes.lose(round)).is_some()
    }

    fn count_live(&mut self, verifier: u64, change: i32) {
        if let Some(known) = self.verifiers.get_mut(&verifier) {
            known.paths = known.paths.saturating_add_signed(change);
        }
    }
}

/// Acknowledged writes of a host, by namespace. Clones share their state.
#[derive(Clone, Debug)]
pub struct WriteVerifiers {
    /// Round of the next Flush; at least 1.
    round: Arc<AtomicU64>,
    namespaces: Arc<Mutex<BTreeMap<u32, HostNamespace>>>,
}

impl Default for WriteVerifiers {
    fn default() -> Self {
        WriteVerifiers { round: Arc::new(AtomicU64::new(1)), namespaces: Arc::default() }
    }
}

/// Namespace on a path.
#[derive(Clone, Debug)]
struct PathNamespace {
    verifier: u64,
    flushes: Arc<NamespaceFlushes>,
    written: Arc<VerifierWrites>,
}

impl PathNamespace {
    /// Ends a Flush, as [`NamespaceFlushes::end`].
    fn end_flush(&self, round: u64, next: u64) -> bool {
        self.written.stable.fetch_max(round, Ordering::SeqCst);
        self.flushes.end(round, next)
    }
}

/// Namespaces of a path.
#[derive(Debug, Default)]
struct PathNamespaces {
    /// Namespaces by NSID; `None`: no verifier reported.
    by_nsid: BTreeMap<u32, Option<PathNamespace>>,
    /// NSIDs whose verifier has changed since the path was last live, or is new to the host.
    changed: Vec<u32>,
    is_live: bool,
}

/// Acknowledged writes of a path, for its association and its lanes. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct PathWrites {
    host: WriteVerifiers,
    namespaces: Arc<Mutex<PathNamespaces>>,
}

impl PathWrites {
    /// Creates the record of a path of `host`, without writes.
    #[must_use]
    pub fn new(host: WriteVerifiers) -> Self {
        PathWrites { host, namespaces: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PathNamespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_host(&self) -> MutexGuard<'_, BTreeMap<u32, HostNamespace>> {
        self.host.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records namespaces as the path's controller reports them, before lanes submit anything to it. Returns NSIDs
    /// whose acknowledged writes may be lost: the next Flush of each fails.
    pub fn observe<'a>(&self, namespaces: impl IntoIterator<Item = &'a NamespaceInfo>) -> Vec<u32> {
        let mut lost = Vec::new();
        let (mut of_path, mut of_host) = (self.lock(), self.lock_host());
        for NamespaceInfo { nsid, write_verifier, .. } in namespaces {
            let before = of_path.by_nsid.get(nsid).cloned().flatten();
            // A target that has handed its blocks over reports no verifier.
            let is_known = before.as_ref().is_some_and(|before| {
                write_verifier.is_none_or(|verifier| verifier == before.verifier)
            });
            if is_known {
                continue;
            }
            let host = of_host.entry(*nsid).or_default();
            let is_new = write_verifier.is_some_and(|now| !host.verifiers.contains_key(&now));
            let now = write_verifier.map(|verifier| host.report(verifier));
            let has_changed = before.is_some() && now.is_some();
            if let (Some(before), Some(now)) = (before, &now) {
                lost.extend(host.replace(&before, now.verifier).then_some(*nsid));
            }
            if has_changed || is_new && !of_path.is_live {
                of_path.changed.push(*nsid);
            }
            if let Some(now) = now.as_ref().filter(|_| of_path.is_live) {
                host.count_live(now.verifier, 1);
                let is_first = is_new && !has_changed;
                lost.extend((is_first && host.lose_unreachable()).then_some(*nsid));
            }
            of_path.by_nsid.insert(*nsid, now);
        }
        lost
    }

    /// Marks the path as live. If its machine has lost its memory, or may have, so may machines without a live path: a
    /// power failure may hit a whole rack. Returns NSIDs as [`PathWrites::observe`] does.
    pub fn connected(&self) -> Vec<u32> {
        let (mut of_path, mut of_host) = (self.lock(), self.lock_host());
        let was_live = std::mem::replace(&mut of_path.is_live, true);
        for (nsid, namespace) in of_path.by_nsid.iter().filter(|_| !was_live) {
            if let (Some(host), Some(namespace)) = (of_host.get_mut(nsid), namespace) {
                host.count_live(namespace.verifier, 1);
            }
        }
        let mut lost = std::mem::take(&mut of_path.changed);
        lost.retain(|nsid| of_host.get_mut(nsid).is_some_and(HostNamespace::lose_unreachable));
        lost
    }

    /// Marks the path as not live.
    pub fn disconnected(&self) {
        let (mut of_path, mut of_host) = (self.lock(), self.lock_host());
        if !std::mem::replace(&mut of_path.is_live, false) {
            return;
        }
        for (nsid, namespace) in &of_path.by_nsid {
            if let (Some(host), Some(namespace)) = (of_host.get_mut(nsid), namespace) {
                host.count_live(namespace.verifier, -1);
            }
        }
    }
}

/// Acknowledged writes of a lane.
#[derive(Debug, Default)]
pub(super) struct LaneWrites {
    /// Path of the connection; `None` before the first one.
    path: Option<PathWrites>,
    /// Namespace and round of the last recorded write: repeated ones change nothing.
    noted: (u32, u64),
    /// Namespaces of its requests, in the order of NSIDs.
    known: Vec<(u32, Option<PathNamespace>)>,
}

impl LaneWrites {
    /// Sets the path of a new connection.
    pub(super) fn set_path(&mut self, path: PathWrites) {
        *self = LaneWrites { path: Some(path), ..LaneWrites::default() };
    }

    #[inline]
    fn find(&mut self, nsid: u32) -> Option<&PathNamespace> {
        let at = match self.known.binary_search_by_key(&nsid, |(known, _)| *known) {
            Ok(at) => at,
            Err(at) => self.learn(at, nsid)?,
        };
        self.known[at].1.as_ref()
    }

    #[cold]
    fn learn(&mut self, at: usize, nsid: u32) -> Option<usize> {
        let namespace = self.path.as_ref()?.lock().by_nsid.get(&nsid)?.clone();
        self.known.insert(at, (nsid, namespace));
        Some(at)
    }

    /// Records an acknowledged write that needs a Flush.
    #[inline]
    pub(super) fn acknowledged(&mut self, nsid: u32) {
        let Some(path) = &self.path else { return };
        let round = path.host.round.load(Ordering::Relaxed);
        if self.noted != (nsid, round) {
            self.note(nsid, round);
        }
    }

    #[cold]
    fn note(&mut self, nsid: u32, round: u64) {
        if let Some(namespace) = self.find(nsid) {
            namespace.written.last.fetch_max(round, Ordering::SeqCst);
            self.noted = (nsid, round);
        }
    }

    /// Starts a Flush. Returns its round; 0, which covers nothing, before the first connection.
    #[cold]
    pub(super) fn begin_flush(&self) -> u64 {
        self.path.as_ref().map_or(0, |path| path.host.round.fetch_add(1, Ordering::SeqCst))
    }

    /// Ends a successful Flush of a round. False if it fails because of lost writes.
    #[cold]
    pub(super) fn end_flush(&mut self, nsid: u32, round: u64) -> bool {
        let Some(path) = &self.path else { return true };
        let next = path.host.round.load(Ordering::SeqCst);
        if nsid != NSID_ALL {
            return self.find(nsid).is_none_or(|namespace| namespace.end_flush(round, next));
        }
        let namespaces = path.lock();
        let failed = |namespace: &&PathNamespace| !namespace.end_flush(round, next);
        namespaces.by_nsid.values().flatten().filter(failed).count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NSID: u32 = 1;

    fn namespace(nsid: u32, verifier: u64) -> NamespaceInfo {
        let write_verifier = (verifier > 0).then_some(verifier);
        NamespaceInfo { nsid, block_bytes: 512, write_verifier, ..NamespaceInfo::default() }
    }

    /// Path and lane, connected to a controller with a verifier.
    struct VerifierPath {
        path: PathWrites,
        lane: LaneWrites,
    }

    impl VerifierPath {
        fn new(host: &WriteVerifiers, verifier: u64) -> VerifierPath {
            let mut end = VerifierPath::unconnected(host);
            assert_eq!(end.connect(verifier), [], "nothing was there before");
            end
        }

        fn unconnected(host: &WriteVerifiers) -> VerifierPath {
            VerifierPath { path: PathWrites::new(host.clone()), lane: LaneWrites::default() }
        }

        /// Returns a path that has lost its connection after a write, and one that was never connected.
        fn lost_and_new() -> (VerifierPath, VerifierPath) {
            let host = WriteVerifiers::default();
            let mut lost = VerifierPath::new(&host, 1);
            lost.write();
            lost.path.disconnected();
            (lost, VerifierPath::unconnected(&host))
        }

        /// Reconnects. Returns NSIDs with lost writes.
        fn connect(&mut self, verifier: u64) -> Vec<u32> {
            self.path.disconnected();
            let mut lost = self.path.observe(&[namespace(NSID, verifier)]);
            lost.extend(self.path.connected());
            self.lane.set_path(self.path.clone());
            lost
        }

        fn write(&mut self) {
            self.lane.acknowledged(NSID);
        }

        fn end(&mut self, round: u64) -> bool {
            self.lane.end_flush(NSID, round)
        }

        fn flush(&mut self) -> bool {
            let round = self.lane.begin_flush();
            self.end(round)
        }
    }

    #[test]
    fn one_flush_fails_after_acknowledged_writes_were_lost() {
        let mut end = VerifierPath::new(&WriteVerifiers::default(), 7);
        end.write();
        assert_eq!(end.connect(7), [], "the same process");
        assert_eq!(end.connect(8), [NSID]);
        assert!(!end.flush(), "the writes are gone");
        assert!(end.flush(), "reported once");
        end.write();
        assert!(end.flush());
        assert_eq!(end.connect(9), [], "all was flushed");
        assert!(end.flush());
        assert_eq!(end.connect(10), [], "nothing was written");
        assert!(end.flush());
        end.write();
        assert_eq!(end.connect(0), [], "no verifier, no news");
        assert_eq!(end.connect(11), [NSID]);
        assert!(!end.flush());
    }

    #[test]
    fn nothing_is_known_of_a_target_without_verifiers() {
        let mut end = VerifierPath::new(&WriteVerifiers::default(), 0);
        end.write();
        assert_eq!(end.connect(0), []);
        assert!(end.flush());
        end.write();
        assert_eq!(end.connect(1), []);
        assert!(end.flush());
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_was_taken() {
        let mut end = VerifierPath::new(&WriteVerifiers::default(), 1);
        let round = end.lane.begin_flush();
        end.write();
        assert!(end.end(round));
        assert_eq!(end.connect(2), [NSID], "acknowledged while the Flush was in flight");
        assert!(!end.flush());
        end.write();
        end.lane.begin_flush(); // fails at the target
        assert_eq!(end.connect(3), [NSID]);
        assert!(!end.flush());
    }

    #[test]
    fn flushes_in_flight_together_fail_together() {
        let mut end = VerifierPath::new(&WriteVerifiers::default(), 1);
        end.write();
        assert_eq!(end.connect(2), [NSID]);
        let (one, other) = (end.lane.begin_flush(), end.lane.begin_flush());
        assert!(!end.end(one));
        assert!(end.flush(), "taken after the failure was reported");
        assert!(!end.end(other), "taken before it");
    }

    #[test]
    fn a_flush_that_is_tried_again_covers_no_more_than_before() {
        let mut end = VerifierPath::new(&WriteVerifiers::default(), 1);
        end.write();
        let first = end.lane.begin_flush();
        end.write();
        assert_eq!(end.connect(2), [NSID]);
        assert!(!end.end(first));
        assert!(!end.flush(), "the second write was acknowledged after that one was taken");
        assert!(end.flush());
    }

    #[test]
    fn two_paths_to_one_machine_report_its_failure_once() {
        let host = WriteVerifiers::default();
        let (mut one, mut other) = (VerifierPath::new(&host, 1), VerifierPath::new(&host, 1));
        one.write();
        other.write();
        assert_eq!(other.connect(2), [NSID], "what was written over the other path, too");
        assert!(!other.flush());
        other.write();
        assert_eq!(one.connect(2), [], "that was reported, and the new writes are there");
        assert!(one.flush());
        one.write();
        assert!(other.flush(), "a Flush covers the writes of all paths");
        assert_eq!((one.connect(3), other.connect(3)), (vec![], vec![]));
    }

    #[test]
    fn two_paths_to_different_machines_do_not_blame_each_other() {
        let host = WriteVerifiers::default();
        let (mut one, mut other) = (VerifierPath::new(&host, 1), VerifierPath::new(&host, 9));
        for _ in 0..3 {
            one.write();
            assert!(other.flush());
            other.write();
            assert!(one.flush());
        }
        other.write();
        assert_eq!(one.connect(2), [], "its own writes were flushed");
        assert!(one.flush());
    }

    #[test]
    fn a_path_that_has_missed_a_loss_reports_that_of_another_one() {
        let host = WriteVerifiers::default();
        let (mut one, mut other) = (VerifierPath::new(&host, 1), VerifierPath::new(&host, 1));
        other.path.disconnected();
        assert_eq!(one.connect(2), []);
        one.write();
        one.path.disconnected();
        assert_eq!(other.connect(3), [NSID], "no live path leads to what was written");
        assert!(!other.flush());
        assert_eq!(one.connect(3), [], "reported");
        assert!(one.flush());
    }

    /// The path may lead to the failed machine, or to another one.
    #[test]
    fn a_path_that_is_connected_for_the_first_time_reports_a_loss() {
        let (mut one, mut other) = VerifierPath::lost_and_new();
        assert_eq!(other.connect(2), [NSID]);
        assert!(!other.flush());
        assert!(other.flush());
        assert_eq!(one.connect(2), [], "reported once");
        assert!(one.flush());
    }

    #[test]
    fn a_namespace_that_a_live_path_finds_reports_a_loss() {
        let (_lost, mut other) = VerifierPath::lost_and_new();
        assert_eq!(other.path.observe(&[]), []);
        assert_eq!(other.path.connected(), []);
        other.lane.set_path(other.path.clone());
        assert_eq!(other.path.observe(&[namespace(NSID, 2)]), [NSID]);
        assert!(!other.flush());
        assert_eq!(other.connect(2), [], "reported once");
        assert!(other.flush());
    }

    #[test]
    fn a_flush_does_not_cover_what_the_same_machine_had_lost_before() {
        let host = WriteVerifiers::default();
        let (mut one, mut other) = (VerifierPath::new(&host, 1), VerifierPath::new(&host, 1));
        other.path.disconnected();
        assert_eq!(one.connect(2), []);
        one.write();
        assert_eq!(other.connect(3), [], "the path that was written over seems to be live");
        assert!(other.flush());
        assert_eq!(one.connect(3), [NSID], "both paths lead to one machine");
        assert!(!other.flush());
        assert!(other.flush() && one.flush());
        assert_eq!((one.connect(4), other.connect(4)), (vec![], vec![]), "nothing was written");
    }

    #[test]
    fn a_machine_that_is_away_keeps_its_writes_while_others_stay() {
        let host = WriteVerifiers::default();
        let (mut one, mut other) = (VerifierPath::new(&host, 1), VerifierPath::new(&host, 9));
        one.write();
        one.path.disconnected();
        assert_eq!(other.connect(9), [], "it has kept its memory");
        assert!(other.flush());
        assert_eq!(one.connect(2), [], "flushed over the other machine");
        one.write();
        assert_eq!(other.connect(10), [], "the first machine is live");
        assert!(one.flush());
    }

    #[test]
    fn a_flush_of_all_namespaces_fails_for_any_of_them() {
        let path = PathWrites::default();
        let mut lane = LaneWrites::default();
        let both = |verifier| [namespace(1, verifier), namespace(2, verifier)];
        path.observe(&both(1));
        lane.set_path(path.clone());
        lane.acknowledged(2);
        assert_eq!(path.observe(&both(2)), [2]);
        lane.set_path(path.clone());
        let mut flush = |nsid| {
            let round = lane.begin_flush();
            lane.end_flush(nsid, round)
        };
        assert!(flush(1));
        assert!(!flush(NSID_ALL));
        assert!(flush(NSID_ALL) && flush(2));
    }

    #[test]
    fn a_flush_of_before_the_first_connection_covers_nothing() {
        let mut end = VerifierPath::new(&WriteVerifiers::default(), 1);
        let round = LaneWrites::default().begin_flush();
        end.write();
        assert!(end.end(round));
        assert_eq!(end.connect(2), [NSID]);
        assert!(!end.flush());
    }

    #[test]
    fn a_namespace_that_comes_later_is_followed() {
        let path = PathWrites::default();
        let mut lane = LaneWrites::default();
        lane.set_path(path.clone());
        lane.acknowledged(5);
        path.observe(&[namespace(5, 1)]);
        lane.acknowledged(5);
        assert_eq!(path.observe(&[namespace(5, 2)]), [5]);
    }
}
