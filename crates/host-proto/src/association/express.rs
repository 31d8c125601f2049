//! Lanes of a path that request an express connection ([`crate::express`]), or have one.

use std::collections::VecDeque;

/// Express connections of lanes.
#[derive(Debug, Default)]
pub(super) struct Expresses {
    /// Lanes that wait for one.
    wanting: VecDeque<usize>,
    /// Lanes that have one or are getting it, by slot.
    places: Vec<Option<usize>>,
    /// Slot of the connection that is being established.
    connecting: Option<usize>,
}

impl Expresses {
    /// Queues a lane's request.
    pub(super) fn want(&mut self, lane: usize) {
        self.wanting.push_back(lane);
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanting.is_empty()
    }

    /// Takes the next lane from the queue.
    pub(super) fn next_wanted(&mut self) -> Option<usize> {
        self.wanting.pop_front()
    }

    /// Reserves one of the `places` slots for a lane. `None`: no slot is free, or the lane has one.
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

    /// Returns the lane whose connection is being established.
    pub(super) fn on_its_way(&self) -> Option<usize> {
        self.places.get(self.connecting?).copied().flatten()
    }

    /// Ends the attempt: it has succeeded, or its lane does not need it any more.
    pub(super) fn arrived(&mut self) {
        self.connecting = None;
    }

    /// Ends a failed attempt and frees its slot.
    pub(super) fn failed(&mut self) {
        if let Some(place) = self.connecting.take() {
            self.places[place] = None;
        }
    }

    /// Frees the slot of a lane, unless another lane has it by now.
    pub(super) fn closed(&mut self, lane: usize, place: usize) {
        if let Some(place) = self.places.get_mut(place).filter(|place| **place == Some(lane)) {
            *place = None;
        }
    }
}
