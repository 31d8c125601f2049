//! Several paths for each lane of the front: one more lane for each path, which the front does not see.
//!
//! Each path has a lane in the reactor's table for each lane of the front. `host_proto::paths` decides which of them
//! takes a request, with one selector for each lane of the front: no state here is shared with other threads.

use super::{HostLane, HostReactor, HostReactorParts, HostReactorReport};
use crate::api::{Class, IoOp, IoRequest};
use crate::numbers::ConnectionNumbers;
use roadtrain_host_proto::express::RequestTraffic;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::paths::{AnaTable, PathChoice, PathLinkState, PathOffer, Selector};
use roadtrain_host_proto::requests::{MovedRequest, RequestProperties};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::LaneTable;
use std::time::Duration;

/// Parameters of new lanes.
#[derive(Clone, Copy)]
pub(super) struct NewLane {
    queue_entries: u16,
    class: Class,
    io_timeout: Option<Duration>,
    express: bool,
    /// True if there are several paths, or may be.
    is_shared: bool,
}

impl NewLane {
    pub(super) fn of(parts: &HostReactorParts) -> Self {
        NewLane {
            queue_entries: parts.queue_entries,
            class: parts.class,
            io_timeout: parts.io_timeout,
            express: parts.express,
            is_shared: parts.reports.len() > 1,
        }
    }

    pub(super) fn make(self) -> HostLane {
        let mut lane = HostLane::new(self.queue_entries, self.class, self.io_timeout);
        if self.express {
            lane.allow_express();
        }
        if self.is_shared {
            lane.requests.core.share();
        }
        lane
    }
}

/// Path selection of a reactor.
pub(super) struct ReactorPaths {
    /// Selectors, one for each lane of the front; empty with a single path.
    selectors: Vec<Selector>,
    /// Number of path slots that have been used.
    paths: u32,
    /// Number of lanes of the front.
    lanes: u32,
    /// Parameters of new lanes.
    new: NewLane,
    /// Index of each lane, by path and lane of the front.
    places: Vec<u32>,
    /// Path and lane of the front of each lane, by index; `None` for express connections.
    owners: Vec<Option<(u32, u32)>>,
    /// Lanes of leaving paths that have not reported that they are empty.
    leaving: Vec<u32>,
    /// True if requests have moved in this turn: their new lanes may have had their turn already.
    pub(super) has_moved: bool,
}

impl ReactorPaths {
    /// Creates the path selection of a reactor.
    pub(super) fn new(parts: &HostReactorParts) -> Self {
        let (paths, lanes) = (parts.paths, parts.lanes.len());
        let new = NewLane::of(parts);
        let selectors = if new.is_shared { lanes } else { 0 };
        let selectors = (0..selectors).map(|_| Selector::new(parts.path_policy, paths)).collect();
        let (paths, lanes, leaving) = (paths as u32, lanes as u32, Vec::new());
        let places = (0..paths * lanes).collect();
        let of_path = |path| (0..lanes).map(move |home| Some((path, home)));
        let owners = (0..paths).flat_map(of_path).collect();
        ReactorPaths { selectors, paths, lanes, new, places, owners, leaving, has_moved: false }
    }

    #[inline]
    pub(super) fn are_several(&self) -> bool {
        !self.selectors.is_empty()
    }

    /// Returns the index of the lane of the front's lane `home` on a path.
    #[inline]
    fn at(&self, path: usize, home: u32) -> u32 {
        self.places[path * self.lanes as usize + home as usize]
    }

    /// Returns the indexes of the lanes of the front's lane `home`, path by path.
    pub(super) fn places(&self, home: usize) -> impl Iterator<Item = u32> {
        self.places.iter().skip(home).step_by(self.lanes.max(1) as usize).copied()
    }

    /// Returns the number of lanes of a path.
    pub(super) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Returns the selector and path of a lane; `None` with a single path, and for express connections.
    fn of(&mut self, index: u32) -> Option<(&mut Selector, usize)> {
        let (path, home) = (*self.owners.get(index as usize)?)?;
        self.selectors.get_mut(home as usize).map(|selector| (selector, path as usize))
    }

    /// Returns the front's lane of a lane.
    fn front_lane(&self, index: u32) -> u32 {
        let owner = self.owners.get(index as usize).copied().flatten();
        owner.map_or(0, |(_, home)| home)
    }

    pub(super) fn set_barred(&mut self, index: u32, barred: &BarredNsids) {
        if let Some((selector, path)) = self.of(index) {
            selector.set_barred(path, barred.clone());
        }
    }

    pub(super) fn set_ana(&mut self, index: u32, ana: AnaTable) {
        if let Some((selector, path)) = self.of(index) {
            selector.set_access(path, ana);
        }
    }
}

/// Returns the capacity and latency of a lane for a request of this kind.
#[inline]
fn offer(
    lanes: &LaneTable<HostLane>,
    index: u32,
    now: Instant,
    (op, traffic): (IoOp, RequestTraffic),
) -> PathOffer {
    let Some(lane) = lanes.get(index) else { return PathOffer::default() };
    let own = lane.path_offer(now, traffic);
    if op == IoOp::CompareAndWrite {
        return PathOffer { is_last: !lane.fuses(), ..own };
    }
    // Latency-critical requests take the express connection, if there is one.
    let express = lane.express_at.filter(|_| matches!(traffic, RequestTraffic::Critical));
    let Some(express) = express.and_then(|at| lanes.get(at)) else { return own };
    let express = express.path_offer(now, traffic);
    PathOffer {
        in_flight: own.in_flight + express.in_flight,
        expected: own.expected.min(express.expected),
        wants_probe: own.wants_probe && express.wants_probe,
        ..own
    }
}

impl HostReactor {
    /// Reports to the control thread of the path of lane `number`; the report gets the number on that path.
    pub(super) fn report(&self, number: usize, report: impl FnOnce(usize) -> HostReactorReport) {
        let (path, number) = self.layout().split(number);
        self.reports[path].send(report(number));
    }

    /// Returns the numbering of lanes and express connections.
    pub(super) fn layout(&self) -> ConnectionNumbers {
        ConnectionNumbers::new(self.counters.len() / self.reports.len(), self.reports.len())
    }

    /// Returns the index of the lane that takes a request of the front's lane `home`.
    #[inline]
    pub(super) fn path_for(&mut self, home: u32, request: &IoRequest) -> Option<u32> {
        let now = self.shared.now;
        let ReactorPaths { selectors, places, lanes: per_path, .. } = &mut self.paths;
        let at = |path: usize| places[path * *per_path as usize + home as usize];
        let class = self.lanes.get(at(0))?.class_of(request);
        let traffic = RequestTraffic::of(class, request.bytes());
        let lanes = &self.lanes;
        let offer = |path: usize| offer(lanes, at(path), now, (request.op, traffic));
        match selectors.get_mut(home as usize)?.choose(now, request.nsid, offer) {
            PathChoice::Path(path) | PathChoice::Wait(path) => Some(at(path)),
            PathChoice::Full => None,
        }
    }

    /// Returns a path that reaches a namespace, for a query.
    pub(super) fn path_to(&self, nsid: u32) -> Option<usize> {
        match self.paths.selectors.first() {
            Some(selector) => selector.best(self.shared.now, nsid),
            None => Some(0),
        }
    }

    /// Returns the number of lanes that share the ports of a path.
    pub(super) fn lanes_of_path(&self) -> usize {
        if self.paths.are_several() { self.paths.lanes as usize } else { self.lanes.len() }
    }

    /// Returns the number of requests that the front's lane takes over all its paths.
    pub(super) fn room_of_paths(&self, home: u32) -> u32 {
        let Some(selector) = self.paths.selectors.get(home as usize) else { return 0 };
        let room = |path: usize| {
            let lane = self.lanes.get(self.paths.at(path, home));
            lane.map_or(0, HostLane::room)
        };
        match selector.live().map(room).reduce(|a, b| a + b) {
            Some(room) => room,
            None => (0..self.paths.paths as usize).map(room).min().unwrap_or(0),
        }
    }

    /// Handles the loss of a lane's connection.
    pub(super) fn path_lost(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        match selector.state(path) {
            PathLinkState::Live => self.path_changed(index, PathLinkState::Connecting),
            PathLinkState::Gone => self.move_waiting(index),
            PathLinkState::Connecting | PathLinkState::Lost => {}
        }
    }

    /// Prepares a path slot that may be new.
    pub(super) fn open_path(&mut self, path: usize) {
        let (per_path, paths) = (self.paths.lanes, (path as u32 + 1).max(self.paths.paths));
        for path in self.paths.paths..paths {
            (0..per_path).for_each(|home| self.add_lane(path, home));
        }
        self.paths.paths = paths;
        for (home, selector) in self.paths.selectors.iter_mut().enumerate() {
            selector.grow(paths as usize);
            selector.set_state(path, PathLinkState::Connecting);
            selector.set_access(path, AnaTable::default());
            selector.set_barred(path, BarredNsids::default());
            // The state of an earlier path in this slot is obsolete.
            let index = self.paths.places[path * per_path as usize + home];
            if let Some(lane) = self.lanes.get_mut(index) {
                lane.requests.core.reopen();
            }
        }
    }

    /// Adds a lane of a new path.
    fn add_lane(&mut self, path: u32, home: u32) {
        let (index, _) = self.lanes.reserve();
        self.lanes.put(index, self.paths.new.make());
        let number = self.numbers[self.paths.at(0, home) as usize]; // number on the first path
        let number = self.layout().of(path as usize, number);
        self.set_number(index, number);
        let ReactorPaths { places, owners, .. } = &mut self.paths;
        places.push(index);
        owners.resize(owners.len().max(index as usize + 1), None);
        owners[index as usize] = Some((path, home));
    }

    /// Stops requests to the lane of a leaving path; a report follows when it has none left.
    pub(super) fn leave(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        selector.set_state(path, PathLinkState::Gone);
        self.paths.leaving.push(index);
        self.move_waiting(index);
    }

    /// True if lanes are to report that they are empty.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        !self.paths.leaving.is_empty()
    }

    /// Reports that the lane is empty, once.
    #[cold]
    pub(super) fn check_leaving(&mut self, index: u32) {
        let Some(at) = self.paths.leaving.iter().position(|&leaving| leaving == index) else {
            return;
        };
        let is_done = |lane: Option<&HostLane>| lane.is_none_or(|lane| lane.outstanding() == 0);
        if is_done(self.lanes.get(index)) && is_done(self.express_of(index)) {
            self.paths.leaving.swap_remove(at);
            self.express_closed(index);
            self.report(self.numbers[index as usize], |_| HostReactorReport::Left);
        }
    }

    /// Sets the connection state of a lane: waiting requests may move to other paths now.
    pub(super) fn path_changed(&mut self, index: u32, state: PathLinkState) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) != PathLinkState::Gone {
            selector.set_state(path, state);
        }
        let home = self.paths.front_lane(index);
        for path in 0..self.paths.paths as usize {
            self.move_waiting(self.paths.at(path, home));
        }
    }

    /// Releases requests that waited for a lost controller.
    pub(super) fn release(&mut self, index: u32) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        lane.release(&mut self.shared);
        self.move_waiting(index);
    }

    /// Moves requests that wait for the lane's connection, as far as permitted, to connected paths.
    pub(super) fn move_waiting(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) == PathLinkState::Live {
            return;
        }
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let moved = lane.take_free();
        self.place(index, moved);
    }

    /// Moves requests that the path has refused to other paths, or keeps them for a retry. The lane decides when this
    /// is permitted ([`HostLane::diverts`]).
    #[cold]
    pub(super) fn divert(&mut self, index: u32) {
        let now = self.shared.now;
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let diverted = lane.requests.core.take_diverted();
        let index = self.home_of(index); // the lane of an express connection
        let Some((selector, path)) = self.paths.of(index) else { return };
        for moved in &diverted {
            selector.refused(now, path, moved.request().nsid());
        }
        let is_free =
            |moved: &MovedRequest<IoRequest>| selector.has_other(now, path, moved.request().nsid());
        let (go, stay) = diverted.into_iter().partition(is_free);
        self.place(index, go);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let stay: Vec<MovedRequest<IoRequest>> = stay;
        stay.into_iter().for_each(|moved| lane.requests.core.keep(moved));
    }

    /// Moves each request of the lane to the path that takes it.
    fn place(&mut self, index: u32, moved: Vec<MovedRequest<IoRequest>>) {
        let (now, home) = (self.shared.now, self.paths.front_lane(index));
        for moved in moved {
            let what = (moved.request().op, moved.request().traffic());
            let lanes = &self.lanes;
            let ReactorPaths { selectors, places, lanes: per_path, .. } = &mut self.paths;
            let at = |path: usize| places[path * *per_path as usize + home as usize];
            let offer = |path: usize| PathOffer { room: 1, ..offer(lanes, at(path), now, what) };
            let Some(selector) = selectors.get_mut(home as usize) else { return };
            let to = match selector.choose(now, moved.request().nsid, offer) {
                PathChoice::Path(path) | PathChoice::Wait(path) => at(path),
                PathChoice::Full => index,
            };
            let Some(lane) = self.lanes.get_mut(to) else { continue };
            match to == index {
                true => lane.requests.core.keep(moved),
                false => lane.requests.core.adopt(moved),
            }
            self.paths.has_moved |= to != index;
        }
    }
}
