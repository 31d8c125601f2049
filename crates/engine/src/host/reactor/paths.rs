//! Several paths for each lane: one more lane for each of them, which the front does not see.
//!
//! The reactor's table has the lanes of the first path, then those of the next one, and so on. Which of them takes a
//! request is decided by `proto::host::paths`, for each lane of the front by a selector of its own: nothing here is
//! shared with other threads.

use super::{HostLane, Reactor, Report};
use crate::host::api::Request;
use crate::stats::LaneStats;
use roadtrain_proto::host::express::Traffic;
use roadtrain_proto::host::paths::{AnaTable, Choice, Offer, PathPolicy, Selector, WayState};
use roadtrain_proto::host::requests::{Addressed, Moved, StaleNsids};

/// What chooses paths.
pub(super) struct Paths {
    /// One for each lane of the front; none where there is one path.
    selectors: Vec<Selector>,
    paths: u32,
    /// Lanes of the front.
    lanes: u32,
    /// Requests have moved since the turn began: their lanes may have had theirs.
    pub(super) has_moved: bool,
}

impl Paths {
    pub(super) fn new(policy: PathPolicy, paths: usize, lanes: usize) -> Self {
        let selectors = if paths > 1 { lanes } else { 0 };
        let selectors = (0..selectors).map(|_| Selector::new(policy, paths)).collect();
        Paths { selectors, paths: paths as u32, lanes: lanes as u32, has_moved: false }
    }

    #[inline]
    pub(super) fn are_several(&self) -> bool {
        !self.selectors.is_empty()
    }

    /// The front's lane and the path of the lane at that place; `None` where there is one path.
    fn of(&mut self, index: u32) -> Option<(&mut Selector, usize)> {
        let path = (index / self.lanes.max(1)) as usize;
        let home = (index % self.lanes.max(1)) as usize;
        self.selectors.get_mut(home).map(|selector| (selector, path))
    }

    pub(super) fn set_stale(&mut self, index: u32, stale: &StaleNsids) {
        if let Some((selector, path)) = self.of(index) {
            selector.set_stale(path, stale.clone());
        }
    }

    pub(super) fn set_ana(&mut self, index: u32, ana: AnaTable) {
        if let Some((selector, path)) = self.of(index) {
            selector.set_access(path, ana);
        }
    }
}

impl Reactor {
    /// Tells the control thread of the path that the lane of that number is on; it is told the number there.
    pub(super) fn report(&self, number: usize, report: impl FnOnce(usize) -> Report) {
        let lanes = self.counters.len() / self.reports.len();
        match self.paths.are_several() {
            true => self.reports[number / lanes].send(report(number % lanes)),
            false => self.reports[0].send(report(number)),
        };
    }

    /// The place of the lane that takes a request of the front's lane `home`.
    #[inline]
    pub(super) fn path_for(&mut self, home: u32, request: &Request) -> Option<u32> {
        let now = self.shared.now;
        let (lanes, per_path) = (&self.lanes, self.paths.lanes);
        let class = lanes.get(home)?.class_of(request);
        let traffic = Traffic::of(class, request.octets());
        let offer = |path: usize| {
            let lane = lanes.get(path as u32 * per_path + home);
            lane.map_or_else(Offer::default, |lane| lane.path_offer(now, traffic))
        };
        let selector = self.paths.selectors.get_mut(home as usize)?;
        match selector.choose(now, request.nsid, offer) {
            Choice::Path(path) | Choice::Wait(path) => Some(path as u32 * per_path + home),
            Choice::Full => None,
        }
    }

    /// Requests that the front's lane takes over all its paths.
    pub(super) fn room_of_paths(&self, home: u32) -> u32 {
        let Some(selector) = self.paths.selectors.get(home as usize) else { return 0 };
        let room = |path: usize| {
            let lane = self.lanes.get(path as u32 * self.paths.lanes + home);
            lane.map_or(0, HostLane::room)
        };
        match selector.live().map(room).reduce(|a, b| a + b) {
            Some(room) => room,
            None => (0..self.paths.paths as usize).map(room).min().unwrap_or(0),
        }
    }

    /// The counters of the front's lane on its other paths.
    pub(super) fn stats_of_other_paths(&self, home: u32) -> impl Iterator<Item = LaneStats> {
        let (lanes, paths) = (self.paths.lanes, self.paths.paths);
        let others = (1..paths).map(move |path| path * lanes + home);
        others.filter_map(|at| self.lanes.get(at)).map(HostLane::stats)
    }

    /// The connection of the lane at that place is lost.
    pub(super) fn way_lost(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) == WayState::Live {
            self.way_changed(index, WayState::Connecting);
        }
    }

    /// The connection of the lane at that place has come or gone: requests that wait may go elsewhere now.
    pub(super) fn way_changed(&mut self, index: u32, state: WayState) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        selector.set_state(path, state);
        let (lanes, paths) = (self.paths.lanes, self.paths.paths);
        let home = index % lanes;
        for path in 0..paths {
            self.let_go(path * lanes + home);
        }
    }

    /// Nothing can be executed any more of what the lane has sent.
    pub(super) fn release(&mut self, index: u32) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        lane.release(&mut self.shared);
        self.let_go(index);
    }

    /// What waits for a connection of the lane at that place, and may go, goes where there is one.
    fn let_go(&mut self, index: u32) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) == WayState::Live {
            return;
        }
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let moved = lane.requests.core.take_free();
        self.place(index, moved);
    }

    /// What the path has refused goes elsewhere, or is tried there again, at its time.
    #[cold]
    pub(super) fn divert(&mut self, index: u32) {
        let now = self.shared.now;
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let diverted = lane.requests.core.take_diverted();
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
        let (now, per_path) = (self.shared.now, self.paths.lanes.max(1));
        let home = index % per_path;
        for moved in moved {
            let traffic = moved.request().traffic();
            let lanes = &self.lanes;
            let offer = |path: usize| {
                let lane = lanes.get(path as u32 * per_path + home);
                let offer = lane.map_or_else(Offer::default, |lane| lane.path_offer(now, traffic));
                Offer { room: 1, ..offer }
            };
            let Some(selector) = self.paths.selectors.get_mut(home as usize) else { return };
            let to = match selector.choose(now, moved.request().nsid, offer) {
                Choice::Path(path) | Choice::Wait(path) => path as u32 * per_path + home,
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
