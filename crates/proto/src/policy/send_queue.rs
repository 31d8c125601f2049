//! A queue pair's PDUs that wait to be sent: a FIFO for each freight, and the account of what may leave.

use super::{Batcher, Freight, Freights, Parcel, PolicyConfig, Role};
use crate::time::Instant;
use std::collections::VecDeque;

/// So many caravans may leave without a freight of which something is released; then it goes first for once.
const PASSED_MAX: u8 = 8;

/// What a caravan holds so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    count: u32,
    bytes: u32,
    /// Freights it has something of.
    has: Freights,
}

impl Load {
    /// PDUs in it.
    #[must_use]
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The last PDU was not put in after all.
    #[inline]
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
    #[inline]
    pub fn push(&mut self, now: Instant, tx: T, parcel: &Parcel) {
        let freight = self.batcher.enqueue(now, parcel);
        self.fifos[freight as usize].push_back(tx);
    }

    /// The next for a caravan with `load` that is released and fits; `size` says its octets of data, `blocked`
    /// whether it may not leave yet (nor what is behind it in its freight).
    ///
    /// The first freight goes first, but none starves: a full caravan still takes one PDU of each other, and where
    /// it cannot (it has no room, freights do not mix) one that was passed too often goes first.
    #[inline]
    pub fn next(
        &mut self,
        load: &mut Load,
        size: impl Fn(&T) -> u32,
        blocked: impl Fn(&T) -> bool,
    ) -> Option<T> {
        if self.passed != [0; 3]
            && load.has.is_empty()
            && let Some(tx) = self.next_starved(load, &size, &blocked)
        {
            return Some(tx);
        }
        for freight in self.batcher.due() {
            if !(load.has.is_empty() || load.has.has(freight) || self.batcher.mixes()) {
                return None;
            }
            if let Some(tx) = self.next_of(freight, load, &size, &blocked) {
                return Some(tx);
            }
        }
        None
    }

    /// The head of the first freight that was passed too often, if something of it is due.
    #[cold]
    fn next_starved(
        &mut self,
        load: &mut Load,
        size: &impl Fn(&T) -> u32,
        blocked: &impl Fn(&T) -> bool,
    ) -> Option<T> {
        let is_starved = |&freight: &Freight| self.passed[freight as usize] >= PASSED_MAX;
        let starved = Freight::ALL.into_iter().find(is_starved)?;
        self.batcher.due().has(starved).then(|| self.next_of(starved, load, size, blocked))?
    }

    /// The head of a freight of which something is due, if the caravan may have it.
    #[inline(always)] // for the freight that is due, nearly always the only one
    fn next_of(
        &mut self,
        freight: Freight,
        load: &mut Load,
        size: &impl Fn(&T) -> u32,
        blocked: &impl Fn(&T) -> bool,
    ) -> Option<T> {
        let tx = *self.fifos[freight as usize].front()?;
        if blocked(&tx) {
            return None;
        }
        let bytes = size(&tx);
        let is_owed = !load.has.has(freight);
        if !is_owed && !self.batcher.limits(freight).fits(load.count, load.bytes, bytes) {
            return None;
        }
        self.take(load, freight, bytes);
        Some(tx)
    }

    /// Puts the head of a freight into the caravan.
    #[inline]
    fn take(&mut self, load: &mut Load, freight: Freight, bytes: u32) {
        let others_wait = self.passed != [0; 3] || !self.batcher.due().is_only(freight);
        if load.has.is_empty() && others_wait {
            self.pass_others();
        }
        self.passed[freight as usize] = 0;
        self.fifos[freight as usize].pop_front();
        self.batcher.taken(freight);
        load.count += 1;
        load.bytes = load.bytes.saturating_add(bytes);
        load.has.insert(freight);
    }

    /// A caravan leaves, which may be without something that is due.
    #[cold]
    fn pass_others(&mut self) {
        for freight in Freight::ALL {
            let is_due = self.batcher.due().has(freight);
            let passed = &mut self.passed[freight as usize];
            *passed = if is_due { passed.saturating_add(1) } else { 0 };
        }
    }

    /// Whether something released may leave; `blocked` as for [`SendQueue::next`].
    #[inline]
    #[must_use]
    pub fn is_due(&self, blocked: impl Fn(&T) -> bool) -> bool {
        let mut heads = self.batcher.due().filter_map(|f| self.fifos[f as usize].front());
        heads.any(|tx| !blocked(tx))
    }

    /// Everything that waits, to be changed in place.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.fifos.iter_mut().flatten()
    }

    /// Whether nothing waits.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fifos.iter().all(VecDeque::is_empty)
    }

    /// Drops everything.
    #[inline]
    pub fn clear(&mut self) {
        self.fifos.iter_mut().for_each(VecDeque::clear);
        self.batcher.clear();
    }

    /// The account.
    #[must_use]
    #[inline]
    pub fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// The account: deadline, doorbells; the lane says when a turn is drained.
    #[inline]
    pub fn batcher_mut(&mut self) -> &mut Batcher {
        &mut self.batcher
    }
}
