//! Several paths for each lane: one more lane for each of them, which the front does not see.
//!
//! The reactor's table has the lanes of the first path, then those of the next one, and so on. Which of them takes a
//! request is decided by `proto::host::paths`, for each lane of the front by a selector of its own: nothing here is
//! shared with other threads.

use super::{HostLane, Parts, Reactor, Report};
use crate::host::api::{Class, Request};
use crate::stats::LaneStats;
use roadtrain_proto::host::express::Traffic;
use roadtrain_proto::host::paths::{AnaTable, Choice, Offer, Selector, WayState};
use roadtrain_proto::host::requests::{Addressed, Moved, StaleNsids};
use roadtrain_proto::host::retry::RetryRules;
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
        Paths { selectors, paths, lanes, new, leaving, has_moved: false }
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
        match selector.state(path) {
            WayState::Live => self.way_changed(index, WayState::Connecting),
            WayState::Gone => self.let_go(index),
            WayState::Connecting | WayState::Lost => {}
        }
    }

    /// A path is to be connected that may not have been there before.
    pub(super) fn open_path(&mut self, path: usize) {
        let (per_path, paths) = (self.paths.lanes, (path as u32 + 1).max(self.paths.paths));
        let of_path = self.counters.len() / self.reports.len();
        for (path, home) in
            (self.paths.paths..paths).flat_map(|path| (0..per_path).map(move |home| (path, home)))
        {
            let (index, _) = self.lanes.reserve();
            debug_assert_eq!(index, path * per_path + home, "lanes of paths follow each other");
            self.lanes.put(index, self.paths.new.make());
            self.numbers.push(path as usize * of_path + self.numbers[home as usize]);
        }
        self.paths.paths = paths;
        for (home, selector) in self.paths.selectors.iter_mut().enumerate() {
            selector.grow(paths as usize);
            selector.set_state(path, WayState::Connecting);
            selector.set_access(path, AnaTable::default());
            selector.set_stale(path, StaleNsids::default());
            // What an earlier path at this place has come to is over.
            if let Some(lane) = self.lanes.get_mut(path as u32 * per_path + home as u32) {
                lane.requests.core.attach(RetryRules::default());
            }
        }
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
        if self.lanes.get(index).is_none_or(|lane| lane.outstanding() == 0) {
            self.paths.leaving.swap_remove(at);
            self.report(self.numbers[index as usize], |_| Report::Left);
        }
    }

    /// The connection of the lane at that place has come or gone: requests that wait may go elsewhere now.
    pub(super) fn way_changed(&mut self, index: u32, state: WayState) {
        let Some((selector, path)) = self.paths.of(index) else { return };
        if selector.state(path) != WayState::Gone {
            selector.set_state(path, state);
        }
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
