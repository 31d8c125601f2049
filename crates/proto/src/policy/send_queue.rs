//! A queue pair's PDUs that wait to be sent: a FIFO for each freight, and the account of what may leave.

use super::{Batcher, Freight, Parcel, PolicyConfig, Role};
use crate::time::Instant;
use std::collections::VecDeque;

/// So many caravans may leave without a freight of which something is released; then it goes first for once.
const PASSED_MAX: u8 = 8;

/// What a caravan holds so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    count: u32,
    bytes: u32,
    freight: Option<Freight>,
    /// Freights it has something of.
    has: [bool; 3],
}

impl Load {
    /// PDUs in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The last PDU was not put in after all.
    pub fn uncount(&mut self) {
        self.count -= 1;
    }
}

/// PDUs of type `T` that wait.
pub struct SendQueue<T> {
    fifos: [VecDeque<T>; 3],
    batcher: Batcher,
    /// Caravans that have left without each freight while it was due.
    passed: [u8; 3],
}

impl<T: Copy> SendQueue<T> {
    /// Nothing waits.
    #[must_use]
    pub fn new(policy: &PolicyConfig, role: Role) -> Self {
        let batcher = Batcher::new(policy, role);
        SendQueue { fifos: Default::default(), batcher, passed: [0; 3] }
    }

    /// One more waits.
    pub fn push(&mut self, now: Instant, tx: T, parcel: &Parcel) {
        let freight = self.batcher.enqueue(now, parcel);
        self.fifos[freight as usize].push_back(tx);
    }

    /// The next for a caravan with `load` that is released and fits; `size` says its octets of data, `blocked`
    /// whether it may not leave yet (nor what is behind it in its freight).
    ///
    /// The first freight goes first, but none starves: a full caravan still takes one PDU of each other, and where
    /// it cannot (it has no room, freights do not mix) one that was passed too often goes first.
    pub fn next(
        &mut self,
        load: &mut Load,
        size: impl Fn(&T) -> u32,
        blocked: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let starved = if load.freight.is_none() { self.starved() } else { None };
        for freight in starved.into_iter().chain(Freight::ALL) {
            if self.batcher.released_of(freight) == 0 {
                continue;
            }
            if load.freight.is_some_and(|other| other != freight && !self.batcher.mixes()) {
                return None;
            }
            let tx = *self.fifos[freight as usize].front()?;
            if blocked(&tx) {
                continue;
            }
            let bytes = size(&tx);
            let is_owed = !load.has[freight as usize];
            if !is_owed && !self.batcher.limits(freight).fits(load.count, load.bytes, bytes) {
                continue;
            }
            self.take(load, freight, bytes);
            return Some(tx);
        }
        None
    }

    fn starved(&self) -> Option<Freight> {
        let is_starved = |&freight: &Freight| self.passed[freight as usize] >= PASSED_MAX;
        Freight::ALL.into_iter().find(is_starved)
    }

    /// Puts the head of a freight into the caravan.
    fn take(&mut self, load: &mut Load, freight: Freight, bytes: u32) {
        if load.freight.is_none() {
            for other in Freight::ALL {
                let is_due = self.batcher.released_of(other) > 0;
                let passed = &mut self.passed[other as usize];
                *passed = if is_due { passed.saturating_add(1) } else { 0 };
            }
        }
        self.passed[freight as usize] = 0;
        self.fifos[freight as usize].pop_front();
        self.batcher.taken(freight);
        load.count += 1;
        load.bytes = load.bytes.saturating_add(bytes);
        load.freight = Some(freight);
        load.has[freight as usize] = true;
    }

    /// Whether something released may leave; `blocked` as for [`SendQueue::next`].
    #[must_use]
    pub fn is_due(&self, blocked: impl Fn(&T) -> bool) -> bool {
        self.batcher.released() > 0
            && Freight::ALL
                .into_iter()
                .filter(|&freight| self.batcher.released_of(freight) > 0)
                .filter_map(|freight| self.fifos[freight as usize].front())
                .any(|tx| !blocked(tx))
    }

    /// Everything that waits, to be changed in place.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.fifos.iter_mut().flatten()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fifos.iter().all(VecDeque::is_empty)
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.fifos.iter_mut().for_each(VecDeque::clear);
        self.batcher.clear();
    }

    /// The account.
    #[must_use]
    pub fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// The account: deadline, doorbells; the lane says when a turn is drained.
    pub fn batcher_mut(&mut self) -> &mut Batcher {
        &mut self.batcher
    }
}
