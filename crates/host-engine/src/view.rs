//! State of a controller for other threads.

use super::counters::{
    LaneCounters, LaneReading, LinkState, PathReading, PathReport, ReactorCounters,
    TargetLinkReport,
};
use super::threads::reactor_of;
use roadtrain_host_proto::bringup::{ControllerInfo, NamespaceInfo};
use roadtrain_host_proto::namespace_identity::ExpectedNamespaces;
use roadtrain_host_proto::old_commands::{BlockRange, OldCommands, OpenController};
use roadtrain_host_proto::paths::AnaTable;
use roadtrain_host_proto::write_verifier::WriteVerifiers;
use roadtrain_reactor::metrics::{Batching, IoCounters, ReactorSample};
use roadtrain_reactor::waits::{WaitMeter, WaitState};
use roadtrain_system::clock;
use roadtrain_system::platform::Affinity;
use roadtrain_wire::ana::AnaState;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// State of the controller; shared with the fronts.
#[derive(Clone)]
pub struct HostControllerView {
    info: Arc<Mutex<ControllerInfo>>,
    path_slots: Arc<[ViewPath]>,
    /// Expected namespaces, shared by all paths.
    pinned: ExpectedNamespaces,
    /// Old commands of lost controllers, over all paths.
    old_commands: OldCommands,
    /// Acknowledged writes, over all paths.
    writes: WriteVerifiers,
    /// Path whose controller reports the namespaces.
    namespace_reporter: Arc<AtomicUsize>,
    pub(super) counters: Arc<[LaneCounters]>,
    affinities: Arc<[Affinity]>,
    pub(super) meters: Arc<[Arc<WaitMeter>]>,
    pub(super) reactors: Arc<[Arc<ReactorCounters>]>,
    /// Callbacks for changes of the namespaces.
    watchers: Arc<Mutex<Vec<Weak<NamespaceWatcher>>>>,
    lost: Arc<Mutex<Vec<String>>>,
    failure: Arc<Mutex<Option<String>>>,
}

/// Callback, on a control thread, for a change of the controller's namespaces. It does not block.
pub type NamespaceWatcher = dyn Fn() + Send + Sync;

/// Path, or a free slot for one.
struct ViewPath {
    /// Address, if there is a path.
    address: Mutex<Option<String>>,
    /// Counters of earlier paths in this slot.
    past: Mutex<LaneReading>,
    link: Mutex<TargetLinkReport>,
    ana: Mutex<AnaTable>,
}

impl ViewPath {
    fn address(&self) -> MutexGuard<'_, Option<String>> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past(&self) -> MutexGuard<'_, LaneReading> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> TargetLinkReport {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Maximum number of ranges in a message; there may be thousands.
const RANGES_LISTED: usize = 8;

/// Describes blocks that a lost controller may still write.
fn open_text(open: &OpenController) -> String {
    let name = match open.controller.instance {
        Some(instance) => format!("controller {}, which was lost,", instance.cntlid),
        None => "a controller that was lost".into(),
    };
    let range = |&BlockRange { nsid, first, count }: &BlockRange| match count {
        BlockRange::ALL => format!("namespace {nsid} from block {first} on"),
        count => format!("namespace {nsid} blocks {first} to {}", first + (count - 1)),
    };
    let mut ranges: Vec<String> = open.ranges.iter().take(RANGES_LISTED).map(range).collect();
    if let Some(more) = open.ranges.len().checked_sub(RANGES_LISTED).filter(|more| *more > 0) {
        ranges.push(format!("{more} more ranges"));
    }
    let until = match open.left {
        Some(left) => format!("for {left:.0?}"),
        None => "at any time, as there is no keep-alive timeout".into(),
    };
    format!("{name} may still execute writes {until}: {}", ranges.join(", "))
}

/// Returns the sum over all lanes of a path.
fn sum(lanes: &[LaneCounters]) -> LaneReading {
    lanes.iter().map(LaneCounters::read).sum()
}

impl HostControllerView {
    /// Returns the expected namespaces of all paths.
    pub(super) fn pinned(&self) -> ExpectedNamespaces {
        self.pinned.clone()
    }

    /// Returns the old commands of lost controllers, over all paths.
    pub(super) fn old_commands(&self) -> OldCommands {
        self.old_commands.clone()
    }

    /// Returns the acknowledged writes, over all paths.
    pub(super) fn writes(&self) -> WriteVerifiers {
        self.writes.clone()
    }

    /// Adds controllers that an earlier process of this host has lost.
    pub(super) fn inherit(&self, open: &[OpenController]) {
        for open in open {
            self.old_commands.inherit(clock::now(), open.clone());
        }
    }

    /// Returns the lost controllers of this host that may still write, as they were lost before their completions.
    #[must_use]
    pub fn open_writes(&self) -> Vec<OpenController> {
        self.old_commands.open(clock::now())
    }

    /// Creates the view with a path to each address, of which `first` is connected, and free slots for later ones.
    pub(super) fn new(
        info: ControllerInfo,
        lanes: usize,
        addresses: Vec<Option<String>>,
        first: usize,
        affinities: Vec<Affinity>,
    ) -> Self {
        let entry = |(path, address): (usize, Option<String>)| {
            let (address, past) = (Mutex::new(address), Mutex::default());
            let state = if path == first { LinkState::Connected } else { LinkState::Reconnecting };
            let link = Mutex::new(TargetLinkReport::new(state, None));
            ViewPath { address, past, link, ana: Mutex::default() }
        };
        let path_slots: Arc<[ViewPath]> = addresses.into_iter().enumerate().map(entry).collect();
        HostControllerView {
            info: Arc::new(Mutex::new(info)),
            counters: (0..lanes * path_slots.len()).map(|_| LaneCounters::default()).collect(),
            path_slots,
            pinned: ExpectedNamespaces::default(),
            old_commands: OldCommands::default(),
            writes: WriteVerifiers::default(),
            namespace_reporter: Arc::new(AtomicUsize::new(first)),
            meters: affinities.iter().map(|_| Arc::default()).collect(),
            reactors: affinities.iter().map(|_| Arc::default()).collect(),
            affinities: affinities.into(),
            watchers: Arc::default(),
            lost: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Returns the affinities of the reactors' threads and memory.
    #[must_use]
    pub fn affinities(&self) -> &[Affinity] {
        &self.affinities
    }

    /// Returns the connection state of the best of its paths.
    #[must_use]
    pub fn link(&self) -> TargetLinkReport {
        let links =
            self.path_slots.iter().filter(|entry| entry.address().is_some()).map(ViewPath::link);
        let rank = |link: &TargetLinkReport| match link.state {
            LinkState::Connected => 0,
            LinkState::Reconnecting => 1,
            LinkState::Failing => 2,
        };
        links.min_by_key(rank).expect("there is a path")
    }

    /// True if the slot has a path.
    pub(super) fn has_path(&self, path: usize) -> bool {
        self.path_slots[path].address().is_some()
    }

    /// Returns the connection state of a path.
    pub(super) fn link_of(&self, path: usize) -> TargetLinkReport {
        self.path_slots[path].link()
    }

    /// Returns the paths to the namespaces: one for each address.
    #[must_use]
    pub fn routes(&self) -> Vec<PathReport> {
        let lanes = self.counters.len() / self.path_slots.len();
        let route = |(entry, counters): (&ViewPath, &[LaneCounters])| {
            let address = entry.address().clone()?;
            let ana = entry.ana.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (past, sum) = (entry.past(), sum(counters));
            let done = sum.batching - past.batching;
            Some(PathReport {
                address,
                link: entry.link(),
                ana: ana.iter().map(|(_, state)| *state).min(),
                requests: done.requests,
                data_bytes: done.data_bytes,
                losses: sum.reconnects.saturating_sub(past.reconnects),
                in_flight: sum.in_flight,
                waiting: sum.waiting,
            })
        };
        self.path_slots.iter().zip(self.counters.chunks(lanes.max(1))).filter_map(route).collect()
    }

    /// Adds a path to this address in a free slot.
    pub(super) fn open_path(&self, path: usize, address: String) {
        let lanes = self.counters.len() / self.path_slots.len();
        let counters = &self.counters[path * lanes..][..lanes];
        *self.path_slots[path].past() = sum(counters);
        let link = TargetLinkReport::new(LinkState::Reconnecting, None);
        *self.path_slots[path].link.lock().unwrap_or_else(PoisonError::into_inner) = link;
        self.set_ana(path, AnaTable::default());
        *self.path_slots[path].address() = Some(address);
    }

    /// Returns the address of a path.
    pub(super) fn address_of(&self, path: usize) -> String {
        self.path_slots[path].address().clone().unwrap_or_default()
    }

    /// Removes a path.
    pub(super) fn close_path(&self, path: usize) {
        *self.path_slots[path].address() = None;
    }

    /// Returns the path whose controller reports the namespaces.
    pub(super) fn namespace_reporter(&self) -> usize {
        self.namespace_reporter.load(Relaxed)
    }

    /// Changes the path whose controller reports the namespaces.
    pub(super) fn set_namespace_reporter(&self, path: usize) {
        self.namespace_reporter.store(path, Relaxed);
    }

    /// Sets the ANA states of a path.
    pub(super) fn set_ana(&self, path: usize, ana: AnaTable) {
        *self.path_slots[path].ana.lock().unwrap_or_else(PoisonError::into_inner) = ana;
    }

    /// Returns the lanes, by their number over all reactors, summed over all paths.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneReading> {
        let lanes = self.counters.len() / self.path_slots.len();
        let sum =
            |lane: usize| self.counters[lane..].iter().step_by(lanes).map(LaneCounters::read).sum();
        (0..lanes).map(sum).collect()
    }

    /// Returns the sample of each reactor, and its I/O counters.
    #[must_use]
    pub fn reactors(&self) -> Vec<(ReactorSample, IoCounters)> {
        let sample = |(number, counters): (usize, &Arc<ReactorCounters>)| {
            let (sample, io) = counters.sample(number, self.batching_of(number));
            let affinity = self.affinities.get(number);
            let core = affinity.and_then(|affinity| affinity.cpus.single());
            let node = affinity.and_then(|affinity| affinity.node);
            (ReactorSample { core, node, ..sample }, io)
        };
        self.reactors.iter().enumerate().map(sample).collect()
    }

    /// Returns the counters of a reactor's lanes, over all paths.
    fn batching_of(&self, reactor: usize) -> Batching {
        let lanes = self.counters.len() / self.path_slots.len();
        let is_its = |(number, _): &(usize, &LaneCounters)| {
            reactor_of(number % lanes, self.reactors.len()) == reactor
        };
        let its = self.counters.iter().enumerate().filter(is_its);
        its.map(|(_, lane)| lane.batching()).sum()
    }

    /// Returns the state of the reactors' waits.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitState> {
        self.meters.iter().map(|meter| meter.read()).collect()
    }

    /// Returns the lanes' parts of links, if they have no connections of their own.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReading> {
        self.counters.iter().flat_map(LaneCounters::paths).collect()
    }

    /// Returns the number of requests without a completion at the end of the controller: their writes may be lost.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.counters.iter().map(LaneCounters::abandoned).sum()
    }

    /// Adds a description of data that may not have reached the target before the end.
    pub fn lose(&self, what: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Describes data that may be lost, once the controller has ended. Empty after a normal end.
    #[must_use]
    pub fn lost(&self) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let requests = match self.abandoned() {
            0 => None,
            count => Some(format!(
                "{count} requests that the target did not answer have failed: writes among them may be lost"
            )),
        };
        let open = self.open_writes();
        requests.into_iter().chain(lost).chain(open.iter().map(open_text)).collect()
    }

    /// Returns the failure of a reactor, if any: the controller has ended then, too.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn fail(&self, failure: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Sets the connection state of a path. Its start time changes only with the state.
    pub(super) fn set_link(&self, path: usize, state: LinkState, error: Option<String>) {
        let mut link = self.path_slots[path].link.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if link.state == state { link.since } else { Instant::now() };
        *link = TargetLinkReport { state, since, error };
    }

    /// Returns the controller's properties at the last update.
    #[must_use]
    pub fn info(&self) -> ControllerInfo {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the namespace `nsid`, if it is active.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<NamespaceInfo> {
        let info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        info.namespaces.iter().find(|namespace| namespace.nsid == nsid).cloned()
    }

    pub(super) fn set(&self, info: ControllerInfo) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) = info;
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.upgrade().inspect(|watcher| watcher()).is_some());
    }

    /// Calls `watcher` whenever the namespaces may have changed, as long as it exists.
    pub fn watch_namespaces(&self, watcher: Weak<NamespaceWatcher>) {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    /// Returns since when no path to the namespace is usable: none is connected with an ANA state that permits access,
    /// or it is gone, or another one has its NSID. `None`: one is usable. `Some(None)`: at an unknown time.
    #[must_use]
    pub fn unreachable_since(&self, expected: &NamespaceInfo) -> Option<Option<Instant>> {
        let nsid = expected.nsid;
        let is_there = self.namespace(nsid).is_some_and(|there| there.is_same(expected));
        let (mut lost_at, mut is_connected) = (None, false);
        for path in self.path_slots.iter().filter(|path| path.address().is_some()) {
            let link = path.link();
            if link.state != LinkState::Connected {
                lost_at = lost_at.max(Some(link.since));
                continue;
            }
            let ana = path.ana.lock().unwrap_or_else(PoisonError::into_inner);
            let at = ana.binary_search_by_key(&nsid, |&(nsid, _)| nsid);
            match at.map_or(AnaState::Optimized, |at| ana[at].1) {
                AnaState::Optimized | AnaState::NonOptimized if is_there => return None,
                _ => is_connected = true,
            }
        }
        Some(lost_at.filter(|_| !is_connected))
    }
}
