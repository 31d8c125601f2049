//! Acknowledged writes that no Flush has made stable yet, and the failure of the machine that held them.
//!
//! A target answers a write when it is in a volatile cache; power failure of the target's machine loses it. The host
//! cannot see that: the target is back, and its Flush succeeds. So a target of this project reports a *write verifier*
//! for each namespace, as NFS servers do (RFC 1813, section 3.3.7): a number that changes when unflushed writes may have
//! been lost. If a path reports another one than before, and writes were acknowledged under the former one since the
//! last good Flush, then the next Flush of that namespace fails, as on a local disk whose cache was lost.
//!
//! Each Flush that is taken begins a *round*, and keeps its number however often it is submitted. A write belongs to the
//! round in which it was acknowledged. A good Flush of round r makes writes of rounds up to r stable. Once writes are lost,
//! Flushes fail until one fails that was taken after the last of these writes was acknowledged, and those in flight with
//! that one. So each program that waits for a Flush sees the failure.
//!
//! [`WriteVerifiers`] is a host's, [`PathWrites`] a path's, `LaneWrites` a lane's. A write costs one load of memory that
//! changes once per Flush.

use super::bringup::NamespaceInfo;
use core::sync::atomic::{AtomicU64, Ordering};
use roadtrain_wire::identify::NSID_ALL;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Value of [`Flushes::failing_until`] until the failure is reported.
const UNREPORTED: u64 = u64::MAX;

/// What the success of a request means for written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: it reads, or what it writes is stable.
    Unchanged,
    /// It has written what a power failure may lose until the next Flush.
    NeedsFlush,
    /// Earlier writes to its namespace are stable.
    Flush,
}

/// Flushes of a namespace over all paths of a host.
#[derive(Debug, Default)]
struct Flushes {
    /// Round up to which writes are stable, or their loss was reported.
    stable: AtomicU64,
    /// Last round with a write that was lost.
    lost: AtomicU64,
    /// First round whose Flush may succeed.
    failing_until: AtomicU64,
}

impl Flushes {
    /// Acknowledged writes of rounds up to that one are lost.
    fn lose(&self, round: u64) {
        self.lost.fetch_max(round, Ordering::SeqCst);
        self.failing_until.store(UNREPORTED, Ordering::SeqCst);
    }

    /// Ends a Flush that the target has answered with success, while `next` is the next round; `false`: it has failed all
    /// the same.
    fn end(&self, round: u64, next: u64) -> bool {
        let failing_until = self.failing_until.load(Ordering::SeqCst);
        let is_good = round >= failing_until;
        if failing_until == UNREPORTED && round >= self.lost.load(Ordering::SeqCst) {
            let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
            // Another lane may have reported it meanwhile.
            let _ = self.failing_until.compare_exchange(UNREPORTED, next, success, failure);
        }
        self.stable.fetch_max(round, Ordering::SeqCst);
        is_good
    }
}

/// Writes that were acknowledged under one verifier: the last round with one.
type Written = Arc<AtomicU64>;

/// A namespace of a host.
#[derive(Debug, Default)]
struct HostNamespace {
    flushes: Arc<Flushes>,
    /// By verifier.
    written: BTreeMap<u64, Written>,
}

/// Acknowledged writes of a host, by namespace. Its clones are one.
#[derive(Clone, Debug)]
pub struct WriteVerifiers {
    /// Round of the next Flush: 0 is none's.
    round: Arc<AtomicU64>,
    namespaces: Arc<Mutex<BTreeMap<u32, HostNamespace>>>,
}

impl Default for WriteVerifiers {
    fn default() -> Self {
        WriteVerifiers { round: Arc::new(AtomicU64::new(1)), namespaces: Arc::default() }
    }
}

/// A namespace as a path reaches it.
#[derive(Clone, Debug)]
struct PathNamespace {
    verifier: u64,
    flushes: Arc<Flushes>,
    written: Written,
}

/// By NSID; `None`: the target reports no verifier.
type Namespaces = BTreeMap<u32, Option<PathNamespace>>;

/// Acknowledged writes of a path, for its association and its lanes. Its clones are one.
#[derive(Clone, Debug, Default)]
pub struct PathWrites {
    host: WriteVerifiers,
    namespaces: Arc<Mutex<Namespaces>>,
}

impl PathWrites {
    /// None yet, of a path of that host.
    #[must_use]
    pub fn new(host: WriteVerifiers) -> Self {
        PathWrites { host, namespaces: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Namespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Namespaces as the path's controller reports them, before lanes submit anything to it. Returns NSIDs whose
    /// acknowledged writes may be lost: the next Flush of each fails.
    pub fn observe<'a>(&self, namespaces: impl IntoIterator<Item = &'a NamespaceInfo>) -> Vec<u32> {
        let mut lost = Vec::new();
        let mut of_path = self.lock();
        let mut of_host = self.host.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        for NamespaceInfo { nsid, write_verifier, .. } in namespaces {
            let before = of_path.get(nsid).and_then(Option::as_ref);
            // A target that has given its blocks to another one reports none.
            let is_known = before.is_some_and(|before| {
                write_verifier.is_none_or(|verifier| verifier == before.verifier)
            });
            if is_known {
                continue;
            }
            let host = of_host.entry(*nsid).or_default();
            if let Some(before) = before {
                host.written.remove(&before.verifier);
                let written = before.written.load(Ordering::SeqCst);
                if written > host.flushes.stable.load(Ordering::SeqCst) {
                    host.flushes.lose(written);
                    lost.push(*nsid);
                }
            }
            let now = write_verifier.map(|verifier| PathNamespace {
                verifier,
                flushes: host.flushes.clone(),
                written: host.written.entry(verifier).or_default().clone(),
            });
            of_path.insert(*nsid, now);
        }
        lost
    }
}

/// Acknowledged writes of a lane.
#[derive(Debug, Default)]
pub(super) struct LaneWrites {
    /// `None`: it has never been connected.
    path: Option<PathWrites>,
    /// Namespace and round of the last write that was noted: others like it change nothing.
    noted: (u32, u64),
    /// In the order of NSIDs: those that its requests have named.
    known: Vec<(u32, Option<PathNamespace>)>,
}

impl LaneWrites {
    /// Connected to the controller of a path.
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
        let namespace = self.path.as_ref()?.lock().get(&nsid)?.clone();
        self.known.insert(at, (nsid, namespace));
        Some(at)
    }

    /// A write was acknowledged that needs a Flush.
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
            namespace.written.fetch_max(round, Ordering::SeqCst);
            self.noted = (nsid, round);
        }
    }

    /// A Flush is taken: its round. 0, which covers nothing, if nothing can have been written over the lane.
    #[cold]
    pub(super) fn begin_flush(&self) -> u64 {
        self.path.as_ref().map_or(0, |path| path.host.round.fetch_add(1, Ordering::SeqCst))
    }

    /// The target has answered the Flush of that round with success; `false`: it has failed all the same.
    #[cold]
    pub(super) fn end_flush(&mut self, nsid: u32, round: u64) -> bool {
        let Some(path) = &self.path else { return true };
        let next = path.host.round.load(Ordering::SeqCst);
        if nsid != NSID_ALL {
            return self.find(nsid).is_none_or(|namespace| namespace.flushes.end(round, next));
        }
        let namespaces = path.lock();
        let failed = |namespace: &&PathNamespace| !namespace.flushes.end(round, next);
        namespaces.values().flatten().filter(failed).count() == 0
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

    /// A path with a lane, which are connected to a controller with that verifier.
    struct End {
        path: PathWrites,
        lane: LaneWrites,
    }

    impl End {
        fn new(host: &WriteVerifiers, verifier: u64) -> End {
            let path = PathWrites::new(host.clone());
            let mut end = End { path, lane: LaneWrites::default() };
            assert_eq!(end.connect(verifier), [], "nothing was there before");
            end
        }

        /// Connects again: NSIDs with lost writes.
        fn connect(&mut self, verifier: u64) -> Vec<u32> {
            let lost = self.path.observe(&[namespace(NSID, verifier)]);
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
        let mut end = End::new(&WriteVerifiers::default(), 7);
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
        let mut end = End::new(&WriteVerifiers::default(), 0);
        end.write();
        assert_eq!(end.connect(0), []);
        assert!(end.flush());
        end.write();
        assert_eq!(end.connect(1), []);
        assert!(end.flush());
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it_was_taken() {
        let mut end = End::new(&WriteVerifiers::default(), 1);
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
        let mut end = End::new(&WriteVerifiers::default(), 1);
        end.write();
        assert_eq!(end.connect(2), [NSID]);
        let (one, other) = (end.lane.begin_flush(), end.lane.begin_flush());
        assert!(!end.end(one));
        assert!(end.flush(), "taken after the failure was reported");
        assert!(!end.end(other), "taken before it");
    }

    #[test]
    fn a_flush_that_is_tried_again_covers_no_more_than_before() {
        let mut end = End::new(&WriteVerifiers::default(), 1);
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
        let (mut one, mut other) = (End::new(&host, 1), End::new(&host, 1));
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
        let (mut one, mut other) = (End::new(&host, 1), End::new(&host, 9));
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
        let mut end = End::new(&WriteVerifiers::default(), 1);
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
