//! A reactor's lanes: a place for each, whose number and generation mark what the ring has of it; and lists of those
//! that have something to do, each lane once in each list.

use super::event::{self, LANE_IN, LANE_OUT, mark};
use roadtrain_proto::time::Instant;
use roadtrain_system::ring::{Ring, UserData};
use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::os::fd::RawFd;

/// What lanes may have to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// Receive: something has come, or more may be there.
    Ready,
    /// End their turn: frames for them have come.
    Framed,
    /// Send answers of this turn.
    Answered,
    /// Nothing: to be polled before the reactor waits.
    Idle,
    /// Something at a later time.
    Timed,
    /// Wait for buffers.
    Starved,
    /// Carry latency-critical requests.
    Express,
}

const LISTS: usize = 7;

/// What the table has to know of a lane to poll it.
pub trait Pollable {
    /// Its own descriptor; `None` when it has none, or none any more.
    fn fd(&self) -> Option<RawFd>;
    /// Whether it would receive.
    fn listens(&self) -> bool;
    /// Whether it could go on sending when its socket is writable.
    fn is_blocked(&self) -> bool;
}

struct Place<L> {
    lane: Option<L>,
    /// Differs for each use.
    generation: u32,
    /// A bit for each list. An entry may be of an earlier use: it is passed over when its turn comes.
    listed: u8,
    polls_in: bool,
    polls_out: bool,
}

/// The lanes of a reactor, by index.
pub struct Table<L> {
    places: Vec<Place<L>>,
    free: Vec<u32>,
    lists: [VecDeque<u32>; LISTS],
}

impl<L> Default for Table<L> {
    fn default() -> Self {
        Table { places: Vec::new(), free: Vec::new(), lists: Default::default() }
    }
}

/// Lanes that stay.
impl<L> FromIterator<L> for Table<L> {
    fn from_iter<I: IntoIterator<Item = L>>(lanes: I) -> Self {
        let mut table = Table::default();
        for lane in lanes {
            let (index, _) = table.reserve();
            table.put(index, lane);
        }
        table
    }
}

impl<L> Table<L> {
    /// A free place, and which use of it this is.
    pub fn reserve(&mut self) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            let (lane, generation, listed) = (None, 0, 0);
            self.places.push(Place { lane, generation, listed, polls_in: false, polls_out: false });
            (self.places.len() - 1) as u32
        });
        self.renew(index);
        (index, self.generation(index))
    }

    /// The lane that a place was reserved for.
    #[inline]
    pub fn put(&mut self, index: u32, lane: L) {
        let place = &mut self.places[index as usize];
        (place.lane, place.polls_in, place.polls_out) = (Some(lane), false, false);
    }

    /// There is no lane for the place that was reserved.
    #[inline]
    pub fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Takes the lane, if it is so; its place is free then.
    #[inline]
    pub fn take_if(&mut self, index: u32, is_so: impl FnOnce(&mut L) -> bool) -> Option<L> {
        let lane = self.places[index as usize].lane.take_if(is_so)?;
        self.release(index);
        Some(lane)
    }

    /// The lane at an index.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&L> {
        self.places.get(index as usize)?.lane.as_ref()
    }

    /// The lane at an index.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut L> {
        self.places.get_mut(index as usize)?.lane.as_mut()
    }

    /// All lanes.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &L> {
        self.places.iter().filter_map(|place| place.lane.as_ref())
    }

    /// All lanes.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.places.iter_mut().filter_map(|place| place.lane.as_mut())
    }

    /// Of all places, free ones too.
    #[inline]
    pub fn indices(&self) -> Range<u32> {
        0..self.places.len() as u32
    }

    /// Places that are not free.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Tells whether all places are free.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Generation of the place: another one for each use.
    #[inline]
    pub fn generation(&self, index: u32) -> u32 {
        self.places[index as usize].generation
    }

    /// What the ring has of the place up to now is of the past.
    #[inline]
    pub fn renew(&mut self, index: u32) {
        let generation = &mut self.places[index as usize].generation;
        *generation = (*generation + 1) & UserData::GENERATION_MASK;
    }

    /// The lane is to have its turn in that list; `false` when it is listed there already.
    pub fn note(&mut self, list: List, index: u32) -> bool {
        let listed = &mut self.places[index as usize].listed;
        let before = mem::replace(listed, *listed | 1 << list as u8);
        let is_new = before != *listed;
        if is_new {
            self.lists[list as usize].push_back(index);
        }
        is_new
    }

    /// Tells whether the lane is in that list.
    #[inline]
    pub fn is_noted(&self, list: List, index: u32) -> bool {
        self.places[index as usize].listed & 1 << list as u8 != 0
    }

    /// How many are in a list. Whoever takes so many leaves those that come to be listed meanwhile for later.
    #[inline]
    pub fn count(&self, list: List) -> usize {
        self.lists[list as usize].len()
    }

    /// In the order in which they came to be listed.
    #[inline]
    pub fn noted(&self, list: List) -> impl Iterator<Item = u32> {
        self.lists[list as usize].iter().copied()
    }

    /// The earliest of what those in a list wait for.
    #[inline]
    pub fn earliest(
        &mut self,
        list: List,
        when: impl Fn(&mut L) -> Option<Instant>,
    ) -> Option<Instant> {
        let places = &mut self.places;
        let lanes = self.lists[list as usize].iter();
        lanes.filter_map(|&index| when(places[index as usize].lane.as_mut()?)).min()
    }

    /// Takes the first of a list.
    #[inline]
    pub fn next(&mut self, list: List) -> Option<u32> {
        let index = self.lists[list as usize].pop_front()?;
        self.places[index as usize].listed &= !(1 << list as u8);
        Some(index)
    }
}

impl<L: Pollable> Table<L> {
    /// Polls a lane's connection for what it waits for.
    pub fn poll(&mut self, ring: &mut Ring, index: u32) {
        let receives = !self.is_noted(List::Ready, index);
        let place = &mut self.places[index as usize];
        let Some(lane) = &place.lane else { return };
        let Some(fd) = lane.fd() else { return };
        if receives && lane.listens() && !mem::replace(&mut place.polls_in, true) {
            event::poll(ring, fd, libc::POLLIN, mark(LANE_IN, index, place.generation));
        }
        if lane.is_blocked() && !mem::replace(&mut place.polls_out, true) {
            event::poll(ring, fd, libc::POLLOUT, mark(LANE_OUT, index, place.generation));
        }
    }

    /// A poll has ended: `true` when it was of the lane that is there.
    pub fn polled(&mut self, data: &UserData) -> bool {
        let place = self.places.get_mut(data.index as usize);
        let is_current = |p: &&mut Place<L>| p.generation == data.generation && p.lane.is_some();
        let Some(place) = place.filter(is_current) else { return false };
        match data.kind {
            LANE_IN => place.polls_in = false,
            _ => place.polls_out = false,
        }
        true
    }

    /// Ends a lane's polls: its descriptor is about to be closed.
    pub fn forget_polls(&mut self, ring: &mut Ring, index: u32) {
        let place = &mut self.places[index as usize];
        for (kind, polls) in [(LANE_IN, &mut place.polls_in), (LANE_OUT, &mut place.polls_out)] {
            if mem::take(polls) {
                event::forget(ring, mark(kind, index, place.generation));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_in_a_list_once_and_leaves_it_in_its_order() {
        let mut table = Table::default();
        for name in ["a", "b", "c"] {
            let (index, _) = table.reserve();
            table.put(index, name);
        }
        for index in [2, 0, 2, 1] {
            table.note(List::Ready, index);
        }
        table.note(List::Timed, 0);
        assert!(table.is_noted(List::Ready, 0) && !table.is_noted(List::Timed, 1));
        assert_eq!(table.noted(List::Ready).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(table.next(List::Ready), Some(2));
        assert!(table.note(List::Ready, 2), "it may be listed again");
        let rest: Vec<_> = std::iter::from_fn(|| table.next(List::Ready)).collect();
        assert_eq!(rest, [0, 1, 2]);
        assert_eq!(table.count(List::Timed), 1);
    }

    #[test]
    fn a_place_is_used_again_with_another_generation() {
        let mut table = Table::default();
        let (index, first) = table.reserve();
        table.put(index, "a");
        assert_eq!(table.take_if(index, |_| false), None);
        assert_eq!(table.take_if(index, |_| true), Some("a"));
        assert_eq!(table.len(), 0);
        let (again, second) = table.reserve();
        assert_eq!(again, index);
        assert_ne!(first, second);
        assert_eq!(table.get(index), None, "reserved, not taken");
    }
}
