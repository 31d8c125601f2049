//! Lanes of a path that want an express connection ([`crate::express`]), or have one.

use std::collections::VecDeque;

/// Express connections of lanes.
#[derive(Debug, Default)]
pub(super) struct Expresses {
    /// Lanes that want one.
    wanting: VecDeque<usize>,
    /// Lanes that have one or are getting it, by place.
    places: Vec<Option<usize>>,
    /// The place of the one that is on its way.
    connecting: Option<usize>,
}

impl Expresses {
    /// A lane wants one.
    pub(super) fn want(&mut self, lane: usize) {
        self.wanting.push_back(lane);
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanting.is_empty()
    }

    /// The lane whose turn it is.
    pub(super) fn next_wanted(&mut self) -> Option<usize> {
        self.wanting.pop_front()
    }

    /// The lane is getting one, at that place of so many. `None`: none is free, or it has one.
    pub(super) fn begin(&mut self, lane: usize, places: usize) -> Option<usize> {
        self.places.resize(places, None);
        if self.places.contains(&Some(lane)) {
            return None;
        }
        let place = self.places.iter().position(Option::is_none)?;
        self.places[place] = Some(lane);
        self.connecting = Some(place);
        Some(place)
    }

    /// The lane that is getting one.
    pub(super) fn on_its_way(&self) -> Option<usize> {
        self.places.get(self.connecting?).copied().flatten()
    }

    /// The one that is on its way is there, or nobody waits for it any more.
    pub(super) fn arrived(&mut self) {
        self.connecting = None;
    }

    /// The one that is on its way does not come.
    pub(super) fn failed(&mut self) {
        if let Some(place) = self.connecting.take() {
            self.places[place] = None;
        }
    }

    /// Closes that of a lane. Another lane may have the place by now.
    pub(super) fn closed(&mut self, lane: usize, place: usize) {
        if let Some(place) = self.places.get_mut(place).filter(|place| **place == Some(lane)) {
            *place = None;
        }
    }
}
