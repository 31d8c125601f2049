//! Lanes of a reactor, and lists of lanes with pending work. Index and generation of a lane's slot mark its entries in
//! the ring. Each list holds a lane once.

use super::event::{self, LANE_IN, LANE_OUT, mark};
use roadtrain_proto::time::Instant;
use roadtrain_system::ring::{ReactorRing, UserData};
use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::os::fd::RawFd;

/// Kinds of pending work of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LaneList {
    /// Receive: something has arrived, or more may be available.
    Ready,
    /// End their turn: frames for them have arrived.
    Framed,
    /// Send responses of this turn.
    Answered,
    /// None: to be polled before the reactor waits.
    Idle,
    /// Work at a later time.
    Timed,
    /// Waiting for buffers.
    WaitingForBuffers,
    /// Carrying latency-critical requests.
    Express,
}

const LISTS: usize = 7;

/// Properties of a lane that the table needs to poll it.
pub trait Pollable {
    /// Descriptor of the lane; `None` when it has none, or none any more.
    fn fd(&self) -> Option<RawFd>;
    /// True if the lane wants to receive.
    fn listens(&self) -> bool;
    /// True if the lane could continue sending when its socket is writable.
    fn is_blocked(&self) -> bool;
}

struct LaneSlot<L> {
    lane: Option<L>,
    /// Generation: differs for each use of the slot.
    generation: u32,
    /// Bit mask of the lists with this lane. An entry may be of an earlier use: it is skipped when its turn comes.
    listed: u8,
    polls_in: bool,
    polls_out: bool,
}

/// Lanes of a reactor, by index.
pub struct LaneTable<L> {
    slots: Vec<LaneSlot<L>>,
    free: Vec<u32>,
    lists: [VecDeque<u32>; LISTS],
}

impl<L> Default for LaneTable<L> {
    fn default() -> Self {
        LaneTable { slots: Vec::new(), free: Vec::new(), lists: Default::default() }
    }
}

/// Table of lanes that stay.
impl<L> FromIterator<L> for LaneTable<L> {
    fn from_iter<I: IntoIterator<Item = L>>(lanes: I) -> Self {
        let mut table = LaneTable::default();
        for lane in lanes {
            let (index, _) = table.reserve();
            table.put(index, lane);
        }
        table
    }
}

impl<L> LaneTable<L> {
    /// Reserves a free slot; returns its index and generation.
    pub fn reserve(&mut self) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            let (lane, generation, listed) = (None, 0, 0);
            self.slots.push(LaneSlot {
                lane,
                generation,
                listed,
                polls_in: false,
                polls_out: false,
            });
            (self.slots.len() - 1) as u32
        });
        self.renew(index);
        (index, self.generation(index))
    }

    /// Puts the lane into its reserved slot.
    #[inline]
    pub fn put(&mut self, index: u32, lane: L) {
        let slot = &mut self.slots[index as usize];
        (slot.lane, slot.polls_in, slot.polls_out) = (Some(lane), false, false);
    }

    /// Frees a slot that was reserved or whose lane was taken.
    #[inline]
    pub fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Takes the lane if `is_so`, and frees its slot.
    #[inline]
    pub fn take_if(&mut self, index: u32, is_so: impl FnOnce(&mut L) -> bool) -> Option<L> {
        let lane = self.slots[index as usize].lane.take_if(is_so)?;
        self.release(index);
        Some(lane)
    }

    /// Returns the lane at an index.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&L> {
        self.slots.get(index as usize)?.lane.as_ref()
    }

    /// Returns the lane at an index.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut L> {
        self.slots.get_mut(index as usize)?.lane.as_mut()
    }

    /// Returns all lanes.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &L> {
        self.slots.iter().filter_map(|slot| slot.lane.as_ref())
    }

    /// Returns all lanes.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.slots.iter_mut().filter_map(|slot| slot.lane.as_mut())
    }

    /// Returns the indices of all slots, free ones too.
    #[inline]
    pub fn indices(&self) -> Range<u32> {
        0..self.slots.len() as u32
    }

    /// Number of slots in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if all slots are free.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the generation of the slot: another one for each use.
    #[inline]
    pub fn generation(&self, index: u32) -> u32 {
        self.slots[index as usize].generation
    }

    /// Invalidates all entries that the ring has for the slot.
    #[inline]
    pub fn renew(&mut self, index: u32) {
        let generation = &mut self.slots[index as usize].generation;
        *generation = (*generation + 1) & UserData::GENERATION_MASK;
    }

    /// Adds the lane to a list. False if it is listed there already.
    pub fn add(&mut self, list: LaneList, index: u32) -> bool {
        let listed = &mut self.slots[index as usize].listed;
        let before = mem::replace(listed, *listed | 1 << list as u8);
        let is_new = before != *listed;
        if is_new {
            self.lists[list as usize].push_back(index);
        }
        is_new
    }

    /// True if the lane is in that list.
    #[inline]
    pub fn is_listed(&self, list: LaneList, index: u32) -> bool {
        self.slots[index as usize].listed & 1 << list as u8 != 0
    }

    /// Returns the length of a list. A caller that takes that many leaves lanes that are added meanwhile for later.
    #[inline]
    pub fn count(&self, list: LaneList) -> usize {
        self.lists[list as usize].len()
    }

    /// Returns the lanes of a list in the order in which they were added.
    #[inline]
    pub fn listed(&self, list: LaneList) -> impl Iterator<Item = u32> {
        self.lists[list as usize].iter().copied()
    }

    /// Returns the earliest time for which lanes of a list wait.
    #[inline]
    pub fn earliest(
        &mut self,
        list: LaneList,
        when: impl Fn(&mut L) -> Option<Instant>,
    ) -> Option<Instant> {
        let slots = &mut self.slots;
        let lanes = self.lists[list as usize].iter();
        lanes.filter_map(|&index| when(slots[index as usize].lane.as_mut()?)).min()
    }

    /// Takes the first lane of a list.
    #[inline]
    pub fn next(&mut self, list: LaneList) -> Option<u32> {
        let index = self.lists[list as usize].pop_front()?;
        self.slots[index as usize].listed &= !(1 << list as u8);
        Some(index)
    }
}

impl<L: Pollable> LaneTable<L> {
    /// Polls a lane's connection for the events that it waits for.
    pub fn poll(&mut self, ring: &mut ReactorRing, index: u32) {
        let receives = !self.is_listed(LaneList::Ready, index);
        let slot = &mut self.slots[index as usize];
        let Some(lane) = &slot.lane else { return };
        let Some(fd) = lane.fd() else { return };
        if receives && lane.listens() && !mem::replace(&mut slot.polls_in, true) {
            event::poll(ring, fd, libc::POLLIN, mark(LANE_IN, index, slot.generation));
        }
        if lane.is_blocked() && !mem::replace(&mut slot.polls_out, true) {
            event::poll(ring, fd, libc::POLLOUT, mark(LANE_OUT, index, slot.generation));
        }
    }

    /// Records the end of a poll. True if it was of the current lane.
    pub fn polled(&mut self, data: &UserData) -> bool {
        let slot = self.slots.get_mut(data.index as usize);
        let is_current = |p: &&mut LaneSlot<L>| p.generation == data.generation && p.lane.is_some();
        let Some(slot) = slot.filter(is_current) else { return false };
        match data.kind {
            LANE_IN => slot.polls_in = false,
            _ => slot.polls_out = false,
        }
        true
    }

    /// Cancels a lane's polls: its descriptor is about to be closed.
    pub fn forget_polls(&mut self, ring: &mut ReactorRing, index: u32) {
        let slot = &mut self.slots[index as usize];
        for (kind, polls) in [(LANE_IN, &mut slot.polls_in), (LANE_OUT, &mut slot.polls_out)] {
            if mem::take(polls) {
                event::forget(ring, mark(kind, index, slot.generation));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_in_a_list_once_and_leaves_it_in_its_order() {
        let mut table = LaneTable::default();
        for name in ["a", "b", "c"] {
            let (index, _) = table.reserve();
            table.put(index, name);
        }
        for index in [2, 0, 2, 1] {
            table.add(LaneList::Ready, index);
        }
        table.add(LaneList::Timed, 0);
        assert!(table.is_listed(LaneList::Ready, 0) && !table.is_listed(LaneList::Timed, 1));
        assert_eq!(table.listed(LaneList::Ready).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(table.next(LaneList::Ready), Some(2));
        assert!(table.add(LaneList::Ready, 2), "it may be listed again");
        let rest: Vec<_> = std::iter::from_fn(|| table.next(LaneList::Ready)).collect();
        assert_eq!(rest, [0, 1, 2]);
        assert_eq!(table.count(LaneList::Timed), 1);
    }

    #[test]
    fn a_slot_is_used_again_with_another_generation() {
        let mut table = LaneTable::default();
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
