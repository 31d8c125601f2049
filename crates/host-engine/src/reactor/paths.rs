//! Several paths for each lane: one more lane for each of them, which the front does not see.
//!
//! Each path has a lane in the reactor's table for each lane of the front. Which of them takes a
//! request is decided by `host_proto::paths`, for each lane of the front by a selector of its own: nothing here is
//! shared with other threads.

use super::{HostLane, Parts, Reactor, Report};
use crate::api::{Class, Op, Request};
use crate::numbers::Numbers;
use roadtrain_host_proto::express::Traffic;
use roadtrain_host_proto::paths::{AnaTable, Choice, Offer, Selector, WayState};
use roadtrain_host_proto::pins::Barred;
use roadtrain_host_proto::requests::{Addressed, Moved};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::Table;
use std::time::Duration;

/// How lanes are made.
#[derive(Clone, Copy)]
pub(super) struct NewLane {
    queue_entries: u16,
    class: Class,
    io_timeout: Option<Duration>,
    express: bool,
    /// There are several paths, or may be.
    is_shared: bool,
}

impl NewLane {
    pub(super) fn of(parts: &Parts) -> Self {
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

/// What chooses paths.
pub(super) struct Paths {
    /// One for each lane of the front; none where there is one path.
    selectors: Vec<Selector>,
    /// That there are, or have been.
    paths: u32,
    /// Lanes of the front.
    lanes: u32,
    /// How lanes are made.
    new: NewLane,
    /// By path and lane of the front: the place of its lane.
    places: Vec<u32>,
    /// By place: whose lane it is, by path and lane of the front; none for express connections.
    owners: Vec<Option<(u32, u32)>>,
    /// Places of lanes whose paths are leaving, and that have not said that they have nothing left.
    leaving: Vec<u32>,
    /// Requests have moved since the turn began: their lanes may have had theirs.
    pub(super) has_moved: bool,
}

impl Paths {
    /// Of a reactor with those parts.
    pub(super) fn new(parts: &Parts) -> Self {
        let (paths, lanes) = (parts.paths, parts.lanes.len());
        let new = NewLane::of(parts);
        let selectors = if new.is_shared { lanes } else { 0 };
        let selectors = (0..selectors).map(|_| Selector::new(parts.path_policy, paths)).collect();
        let (paths, lanes, leaving) = (paths as u32, lanes as u32, Vec::new());
        let places = (0..paths * lanes).collect();
        let of_path = |path| (0..lanes).map(move |home| Some((path, home)));
        let owners = (0..paths).flat_map(of_path).collect();
        Paths { selectors, paths, lanes, new, places, owners, leaving, has_moved: false }
    }

    #[inline]
    pub(super) fn are_several(&self) -> bool {
        !self.selectors.is_empty()
    }

    /// The place of the lane that the front's lane `home` has on that path.
    #[inline]
    fn at(&self, path: usize, home: u32) -> u32 {
        self.places[path * self.lanes as usize + home as usize]
    }

    /// The places of the lanes that the front's lane `home` has, path by path.
    pub(super) fn places(&self, home: usize) -> impl Iterator<Item = u32> {
        self.places.iter().skip(home).step_by(self.lanes.max(1) as usize).copied()
    }

    /// Lanes of a path.
    pub(super) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The selector of the lane at that place, and its path; `None` where there is one path, and of express connections.
    fn of(&mut self, index: u32) -> Option<(&mut Selector, usize)> {
        let (path, home) = (*self.owners.get(index as usize)?)?;
        self.selectors.get_mut(home as usize).map(|selector| (selector, path as usize))
    }

    /// The front's lane that the lane at that place is for.
    fn front_lane(&self, index: u32) -> u32 {
        let owner = self.owners.get(index as usize).copied().flatten();
        owner.map_or(0, |(_, home)| home)
    }

    pub(super) fn set_barred(&mut self, index: u32, barred: &Barred) {
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

/// What the lane at that place offers to a request of that kind.
#[inline]
fn offer(lanes: &Table<HostLane>, index: u32, now: Instant, (op, traffic): (Op, Traffic)) -> Offer {
    let Some(lane) = lanes.get(index) else { return Offer::default() };
    let own = lane.path_offer(now, traffic);
    if op == Op::CompareAndWrite {
        return Offer { is_last: !lane.fuses(), ..own };
    }
    // What is latency-critical takes the express connection, if there is one.
    let express = lane.express_at.filter(|_| matches!(traffic, Traffic::Critical));
    let Some(express) = express.and_then(|at| lanes.get(at)) else { return own };
    let express = express.path_offer(now, traffic);
    Offer {
        in_flight: own.in_flight + express.in_flight,
        expected: own.expected.min(express.expected),
        wants_probe: own.wants_probe && express.wants_probe,
        ..own
    }
}

impl Reactor {
    /// Tells the control thread of the path that the lane of that number is on; it is told the number there.
    pub(super) fn report(&self, number: usize, report: impl FnOnce(usize) -> Report) {
        let (path, number) = self.layout().split(number);
        self.reports[path].send(report(number));
    }

    /// How lanes and express connections are numbered.
    pub(super) fn layout(&self) -> Numbers {
        Numbers::new(self.counters.len() / self.reports.len(), self.reports.len())
    }

    /// The place of the lane that takes a request of the front's lane `home`.
    #[inline]
    pub(super) fn path_for(&mut self, home: u32, request: &Request) -> Option<u32> {
        let now = self.shared.now;
        let Paths { selectors, places, lanes: per_path, .. } = &mut self.paths;
        let at = |path: usize| places[path * *per_path as usize + home as usize];
        let class = self.lanes.get(at(0))?.class_of(request);
        let traffic = Traffic::of(class, request.octets());
        let lanes = &self.lanes;
        let offer = |path: usize| offer(lanes, at(path), now, (request.op, traffic));
        match selectors.get_mut(home as usize)?.choose(now, request.nsid, offer) {
            Choice::Path(path) | Choice::Wait(path) => Some(at(path)),
            Choice::Full => None,
        }
    }

    /// A path that reaches a namespace, for what is no request.
    pub(super) fn path_to(&self, nsid: u32) -> Option<usize> {
        match self.paths.selectors.first() {
            Some(selector) => selector.best(self.shared.now, nsid),
            None => Some(0),
        }
    }

    /// Lanes that share what is a path's.
    pub(super) fn lanes_of_path(&self) -> usize {
        if self.paths.are_several() { self.paths.lanes as usize } else { self.lanes.len() }
    }

    /// Requests that the front's lane takes over all its paths.
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

    /// The connection of the lane at that place is lost.
    pub(super) fn way_lost(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        match selector.state(path) {
            WayState::Live => self.way_changed(index, WayState::Connecting),
            WayState::Gone => self.let_go(index),
            WayState::Connecting | WayState::Lost => {}
        }
    }

    /// A path is to be connected that may not have been there before.
    pub(super) fn open_path(&mut self, path: usize) {
        let (per_path, paths) = (self.paths.lanes, (path as u32 + 1).max(self.paths.paths));
        for path in self.paths.paths..paths {
            (0..per_path).for_each(|home| self.add_lane(path, home));
        }
        self.paths.paths = paths;
        for (home, selector) in self.paths.selectors.iter_mut().enumerate() {
            selector.grow(paths as usize);
            selector.set_state(path, WayState::Connecting);
            selector.set_access(path, AnaTable::default());
            selector.set_barred(path, Barred::default());
            // What an earlier path at this place has come to is over.
            let index = self.paths.places[path * per_path as usize + home];
            if let Some(lane) = self.lanes.get_mut(index) {
                lane.requests.core.reopen();
            }
        }
    }

    /// One more lane, of a path that was not there before.
    fn add_lane(&mut self, path: u32, home: u32) {
        let (index, _) = self.lanes.reserve();
        self.lanes.put(index, self.paths.new.make());
        let number = self.numbers[self.paths.at(0, home) as usize]; // of the first path
        let number = self.layout().of(path as usize, number);
        self.set_number(index, number);
        let Paths { places, owners, .. } = &mut self.paths;
        places.push(index);
        owners.resize(owners.len().max(index as usize + 1), None);
        owners[index as usize] = Some((path, home));
    }

    /// The path of the lane at that place takes no more requests: it is told when there is none left.
    pub(super) fn leave(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        selector.set_state(path, WayState::Gone);
        self.paths.leaving.push(index);
        self.let_go(index);
    }

    /// Whether lanes are to say that they have nothing left.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        !self.paths.leaving.is_empty()
    }

    /// Says so for the lane at that place, once.
    #[cold]
    pub(super) fn check_leaving(&mut self, index: u32) {
        let Some(at) = self.paths.leaving.iter().position(|&leaving| leaving == index) else {
            return;
        };
        let is_done = |lane: Option<&HostLane>| lane.is_none_or(|lane| lane.outstanding() == 0);
        if is_done(self.lanes.get(index)) && is_done(self.express_of(index)) {
            self.paths.leaving.swap_remove(at);
            self.express_closed(index);
            self.report(self.numbers[index as usize], |_| Report::Left);
        }
    }

    /// The connection of the lane at that place has come or gone: requests that wait may go elsewhere now.
    pub(super) fn way_changed(&mut self, index: u32, state: WayState) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) != WayState::Gone {
            selector.set_state(path, state);
        }
        let home = self.paths.front_lane(index);
        for path in 0..self.paths.paths as usize {
            self.let_go(self.paths.at(path, home));
        }
    }

    /// A controller executes nothing any more of what was sent to it.
    pub(super) fn release(&mut self, index: u32) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        lane.release(&mut self.shared);
        self.let_go(index);
    }

    /// What waits for a connection of the lane at that place, and may go, goes where there is one.
    pub(super) fn let_go(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) == WayState::Live {
            return;
        }
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let moved = lane.take_free();
        self.place(index, moved);
    }

    /// What the path has refused goes elsewhere, or is tried there again, at its time. The lane says when that may be
    /// ([`HostLane::diverts`]).
    #[cold]
    pub(super) fn divert(&mut self, index: u32) {
        let now = self.shared.now;
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let diverted = lane.requests.core.take_diverted();
        let index = self.home_of(index); // of an express connection
        let Some((selector, path)) = self.paths.of(index) else { return };
        for moved in &diverted {
            selector.refused(now, path, moved.request().nsid());
        }
        let is_free =
            |moved: &Moved<Request>| selector.has_other(now, path, moved.request().nsid());
        let (go, stay) = diverted.into_iter().partition(is_free);
        self.place(index, go);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let stay: Vec<Moved<Request>> = stay;
        stay.into_iter().for_each(|moved| lane.requests.core.keep(moved));
    }

    /// Gives each request of the lane at that place to the path that takes it.
    fn place(&mut self, index: u32, moved: Vec<Moved<Request>>) {
        let (now, home) = (self.shared.now, self.paths.front_lane(index));
        for moved in moved {
            let what = (moved.request().op, moved.request().traffic());
            let lanes = &self.lanes;
            let Paths { selectors, places, lanes: per_path, .. } = &mut self.paths;
            let at = |path: usize| places[path * *per_path as usize + home as usize];
            let offer = |path: usize| Offer { room: 1, ..offer(lanes, at(path), now, what) };
            let Some(selector) = selectors.get_mut(home as usize) else { return };
            let to = match selector.choose(now, moved.request().nsid, offer) {
                Choice::Path(path) | Choice::Wait(path) => at(path),
                Choice::Full => index,
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
