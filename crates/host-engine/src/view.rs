//! What other threads may know about a controller.

use super::counters::{
    LaneCounters, LaneReading, LinkReport, LinkState, PathReading, PathReport, ReactorCounters,
};
use super::threads::reactor_of;
use roadtrain_host_proto::bringup::{ControllerInfo, NamespaceInfo};
use roadtrain_host_proto::old_commands::{BlockRange, OldCommands, OpenController};
use roadtrain_host_proto::paths::AnaTable;
use roadtrain_host_proto::pins::Pinned;
use roadtrain_host_proto::write_verifier::WriteVerifiers;
use roadtrain_reactor::metrics::{Batching, Io, ReactorSample};
use roadtrain_reactor::waits::{Meter, WaitState};
use roadtrain_system::clock;
use roadtrain_system::platform::Affinity;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What everybody may know about the controller; shared with the fronts.
#[derive(Clone)]
pub struct ControllerView {
    info: Arc<Mutex<ControllerInfo>>,
    ways: Arc<[Way]>,
    /// What all paths mean by an NSID.
    pinned: Pinned,
    /// Writes that may still be executed though their controller is lost, over all paths.
    old_commands: OldCommands,
    /// What was acknowledged over all paths.
    writes: WriteVerifiers,
    /// The path whose controller tells of the namespaces.
    teller: Arc<AtomicUsize>,
    pub(super) counters: Arc<[LaneCounters]>,
    affinities: Arc<[Affinity]>,
    pub(super) meters: Arc<[Arc<Meter>]>,
    pub(super) reactors: Arc<[Arc<ReactorCounters>]>,
    lost: Arc<Mutex<Vec<String>>>,
    failure: Arc<Mutex<Option<String>>>,
}

/// A path, or a place for one.
struct Way {
    /// Where it leads, if there is one.
    address: Mutex<Option<String>>,
    /// What earlier ones there have counted.
    past: Mutex<LaneReading>,
    link: Mutex<LinkReport>,
    ana: Mutex<AnaTable>,
}

impl Way {
    fn address(&self) -> MutexGuard<'_, Option<String>> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past(&self) -> MutexGuard<'_, LaneReading> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> LinkReport {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Ranges that are named; there may be thousands.
const RANGES_TOLD: usize = 8;

/// Blocks that a lost controller may still write, for people to read.
fn open_text(open: &OpenController) -> String {
    let name = match open.controller.instance {
        Some(instance) => format!("controller {}, which was lost,", instance.cntlid),
        None => "a controller that was lost".into(),
    };
    let range = |&BlockRange { nsid, first, count }: &BlockRange| match count {
        BlockRange::ALL => format!("namespace {nsid} from block {first} on"),
        count => format!("namespace {nsid} blocks {first} to {}", first + (count - 1)),
    };
    let mut ranges: Vec<String> = open.ranges.iter().take(RANGES_TOLD).map(range).collect();
    if let Some(more) = open.ranges.len().checked_sub(RANGES_TOLD).filter(|more| *more > 0) {
        ranges.push(format!("{more} more ranges"));
    }
    let until = match open.left {
        Some(left) => format!("for {left:.0?}"),
        None => "at any time, as there is no keep-alive timeout".into(),
    };
    format!("{name} may still execute writes {until}: {}", ranges.join(", "))
}

/// Of all lanes of a path.
fn sum(lanes: &[LaneCounters]) -> LaneReading {
    lanes.iter().map(LaneCounters::read).sum()
}

impl ControllerView {
    /// What all paths mean by an NSID.
    pub(super) fn pinned(&self) -> Pinned {
        self.pinned.clone()
    }

    /// Writes that may still be executed though their controller is lost, over all paths.
    pub(super) fn old_commands(&self) -> OldCommands {
        self.old_commands.clone()
    }

    /// What was acknowledged over all paths.
    pub(super) fn writes(&self) -> WriteVerifiers {
        self.writes.clone()
    }

    /// Controllers that an earlier process of this host has lost.
    pub(super) fn inherit(&self, open: &[OpenController]) {
        for open in open {
            self.old_commands.inherit(clock::now(), open.clone());
        }
    }

    /// Controllers of this host that may still write, because they were lost before they had answered.
    #[must_use]
    pub fn open_writes(&self) -> Vec<OpenController> {
        self.old_commands.open(clock::now())
    }

    /// With a path to each address, of which `first` is connected, and places for those that come later.
    pub(super) fn new(
        info: ControllerInfo,
        lanes: usize,
        addresses: Vec<Option<String>>,
        first: usize,
        affinities: Vec<Affinity>,
    ) -> Self {
        let way = |(path, address): (usize, Option<String>)| {
            let (address, past) = (Mutex::new(address), Mutex::default());
            let state = if path == first { LinkState::Connected } else { LinkState::Reconnecting };
            let link = Mutex::new(LinkReport::new(state, None));
            Way { address, past, link, ana: Mutex::default() }
        };
        let ways: Arc<[Way]> = addresses.into_iter().enumerate().map(way).collect();
        ControllerView {
            info: Arc::new(Mutex::new(info)),
            counters: (0..lanes * ways.len()).map(|_| LaneCounters::default()).collect(),
            ways,
            pinned: Pinned::default(),
            old_commands: OldCommands::default(),
            writes: WriteVerifiers::default(),
            teller: Arc::new(AtomicUsize::new(first)),
            meters: affinities.iter().map(|_| Arc::default()).collect(),
            reactors: affinities.iter().map(|_| Arc::default()).collect(),
            affinities: affinities.into(),
            lost: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Where the reactors' threads run and their memory is.
    #[must_use]
    pub fn affinities(&self) -> &[Affinity] {
        &self.affinities
    }

    /// How it stands with the target: as with the best of its paths.
    #[must_use]
    pub fn link(&self) -> LinkReport {
        let links = self.ways.iter().filter(|way| way.address().is_some()).map(Way::link);
        let rank = |link: &LinkReport| match link.state {
            LinkState::Connected => 0,
            LinkState::Reconnecting => 1,
            LinkState::Failing => 2,
        };
        links.min_by_key(rank).expect("there is a path")
    }

    /// Whether there is a path at that place.
    pub(super) fn has_path(&self, path: usize) -> bool {
        self.ways[path].address().is_some()
    }

    /// How it stands with one path.
    pub(super) fn link_of(&self, path: usize) -> LinkReport {
        self.ways[path].link()
    }

    /// The paths to the namespaces: one for each address.
    #[must_use]
    pub fn routes(&self) -> Vec<PathReport> {
        let lanes = self.counters.len() / self.ways.len();
        let route = |(way, counters): (&Way, &[LaneCounters])| {
            let address = way.address().clone()?;
            let ana = way.ana.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (past, sum) = (way.past(), sum(counters));
            let done = sum.batching - past.batching;
            Some(PathReport {
                address,
                link: way.link(),
                ana: ana.iter().map(|(_, state)| *state).min(),
                requests: done.requests,
                data_bytes: done.data_bytes,
                losses: sum.reconnects.saturating_sub(past.reconnects),
                in_flight: sum.in_flight,
                waiting: sum.waiting,
            })
        };
        self.ways.iter().zip(self.counters.chunks(lanes.max(1))).filter_map(route).collect()
    }

    /// A path that leads there is to be connected, at a place that had none.
    pub(super) fn open_path(&self, path: usize, address: String) {
        let lanes = self.counters.len() / self.ways.len();
        let counters = &self.counters[path * lanes..][..lanes];
        *self.ways[path].past() = sum(counters);
        let link = LinkReport::new(LinkState::Reconnecting, None);
        *self.ways[path].link.lock().unwrap_or_else(PoisonError::into_inner) = link;
        self.set_ana(path, AnaTable::default());
        *self.ways[path].address() = Some(address);
    }

    /// Where the path leads.
    pub(super) fn address_of(&self, path: usize) -> String {
        self.ways[path].address().clone().unwrap_or_default()
    }

    /// The path is not there any more.
    pub(super) fn close_path(&self, path: usize) {
        *self.ways[path].address() = None;
    }

    /// The path whose controller tells of the namespaces.
    pub(super) fn teller(&self) -> usize {
        self.teller.load(Relaxed)
    }

    /// Another one does.
    pub(super) fn set_teller(&self, path: usize) {
        self.teller.store(path, Relaxed);
    }

    /// What the controller of a path has said of each namespace.
    pub(super) fn set_ana(&self, path: usize, ana: AnaTable) {
        *self.ways[path].ana.lock().unwrap_or_else(PoisonError::into_inner) = ana;
    }

    /// The lanes, by their number over all reactors, over all paths.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneReading> {
        let lanes = self.counters.len() / self.ways.len();
        let sum =
            |lane: usize| self.counters[lane..].iter().step_by(lanes).map(LaneCounters::read).sum();
        (0..lanes).map(sum).collect()
    }

    /// What each reactor has counted, and what was done over it.
    #[must_use]
    pub fn reactors(&self) -> Vec<(ReactorSample, Io)> {
        let sample = |(number, counters): (usize, &Arc<ReactorCounters>)| {
            let (sample, io) = counters.sample(number, self.batching_of(number));
            let affinity = self.affinities.get(number);
            let core = affinity.and_then(|affinity| affinity.cpus.single());
            let node = affinity.and_then(|affinity| affinity.node);
            (ReactorSample { core, node, ..sample }, io)
        };
        self.reactors.iter().enumerate().map(sample).collect()
    }

    /// Counters of a reactor's lanes, over all paths.
    fn batching_of(&self, reactor: usize) -> Batching {
        let lanes = self.counters.len() / self.ways.len();
        let is_its = |(number, _): &(usize, &LaneCounters)| {
            reactor_of(number % lanes, self.reactors.len()) == reactor
        };
        let its = self.counters.iter().enumerate().filter(is_its);
        its.map(|(_, lane)| lane.batching()).sum()
    }

    /// State of the reactors' waits.
    #[must_use]
    pub fn waiting(&self) -> Vec<WaitState> {
        self.meters.iter().map(|meter| meter.read()).collect()
    }

    /// The lanes' parts of links, where they have no connections of their own.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReading> {
        self.counters.iter().flat_map(LaneCounters::paths).collect()
    }

    /// Requests that the target had not answered when the controller was ended: what they wrote may be lost.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.counters.iter().map(LaneCounters::abandoned).sum()
    }

    /// Something could not be brought to the target before the end.
    pub fn lose(&self, what: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What may be lost, for people to read, once the controller has ended. Nothing after an end in order.
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

    /// Why a reactor has ended, if that was a failure: the controller has ended then, too.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn fail(&self, failure: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Whoever stays in a state has been there since before.
    pub(super) fn set_link(&self, path: usize, state: LinkState, error: Option<String>) {
        let mut link = self.ways[path].link.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if link.state == state { link.since } else { Instant::now() };
        *link = LinkReport { state, since, error };
    }

    /// The controller as it was when it was last looked at.
    #[must_use]
    pub fn info(&self) -> ControllerInfo {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The namespace `nsid`, if it is there.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<NamespaceInfo> {
        let info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        info.namespaces.iter().find(|namespace| namespace.nsid == nsid).cloned()
    }

    pub(super) fn set(&self, info: ControllerInfo) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) = info;
    }
}
