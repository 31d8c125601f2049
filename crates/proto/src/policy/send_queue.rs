//! A queue pair's PDUs that wait to be sent: a FIFO for each freight, and the batcher that releases them.

use super::{Batcher, Freight, Freights, PduInfo, PolicyConfig, PolicyRole};
use crate::time::Instant;
use std::collections::VecDeque;

/// Caravans that may leave without a due freight before that freight goes first once.
const PASSED_MAX: u8 = 8;

/// Contents of a caravan so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaravanLoad {
    count: u32,
    bytes: u32,
    /// Freights with PDUs in the caravan.
    has: Freights,
}

impl CaravanLoad {
    /// Number of PDUs in the caravan.
    #[must_use]
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes back the count of the last PDU, which was not put in after all.
    #[inline]
    pub fn uncount(&mut self) {
        self.count -= 1;
    }
}

/// Waiting PDUs of type `T`.
pub struct SendQueue<T> {
    fifos: [VecDeque<T>; 3],
    batcher: Batcher,
    /// Caravans that have left without each freight while it was due.
    passed: [u8; 3],
}

impl<T: Copy> SendQueue<T> {
    /// A queue without PDUs.
    #[must_use]
    pub fn new(policy: &PolicyConfig, role: PolicyRole) -> Self {
        let batcher = Batcher::new(policy, role);
        SendQueue { fifos: Default::default(), batcher, passed: [0; 3] }
    }

    /// Adds a waiting PDU.
    #[inline]
    pub fn push(&mut self, now: Instant, tx: T, pdu: &PduInfo) {
        let freight = self.batcher.enqueue(now, pdu);
        self.fifos[freight as usize].push_back(tx);
    }

    /// Takes the next released PDU that fits a caravan with `load`. `size` returns a PDU's bytes of data. `blocked` is
    /// true if a PDU may not leave yet (nor any PDU behind it in its freight).
    ///
    /// The first freight goes first, but none starves: a full caravan still takes one PDU of each other. Where it
    /// cannot (no capacity, freights do not mix), a freight that was passed too often goes first.
    #[inline]
    pub fn next(
        &mut self,
        load: &mut CaravanLoad,
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

    /// Takes the head of the first freight that was passed too often, if it is due.
    #[cold]
    fn next_starved(
        &mut self,
        load: &mut CaravanLoad,
        size: &impl Fn(&T) -> u32,
        blocked: &impl Fn(&T) -> bool,
    ) -> Option<T> {
        let is_starved = |&freight: &Freight| self.passed[freight as usize] >= PASSED_MAX;
        let starved = Freight::ALL.into_iter().find(is_starved)?;
        self.batcher.due().has(starved).then(|| self.next_of(starved, load, size, blocked))?
    }

    /// Takes the head of a due freight, if the caravan may have it.
    #[inline(always)] // for the freight that is due, nearly always the only one
    fn next_of(
        &mut self,
        freight: Freight,
        load: &mut CaravanLoad,
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
    fn take(&mut self, load: &mut CaravanLoad, freight: Freight, bytes: u32) {
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

    /// Counts a caravan that leaves, perhaps without something that is due.
    #[cold]
    fn pass_others(&mut self) {
        for freight in Freight::ALL {
            let is_due = self.batcher.due().has(freight);
            let passed = &mut self.passed[freight as usize];
            *passed = if is_due { passed.saturating_add(1) } else { 0 };
        }
    }

    /// True if a released PDU may leave; `blocked` as for [`SendQueue::next`].
    #[inline]
    #[must_use]
    pub fn is_due(&self, blocked: impl Fn(&T) -> bool) -> bool {
        let mut heads = self.batcher.due().filter_map(|f| self.fifos[f as usize].front());
        heads.any(|tx| !blocked(tx))
    }

    /// Returns all waiting PDUs, to be changed in place.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.fifos.iter_mut().flatten()
    }

    /// True if nothing waits.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fifos.iter().all(VecDeque::is_empty)
    }

    /// Drops all PDUs.
    #[inline]
    pub fn clear(&mut self) {
        self.fifos.iter_mut().for_each(VecDeque::clear);
        self.batcher.clear();
    }

    /// Returns the batcher.
    #[must_use]
    #[inline]
    pub fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// Returns the batcher for changes; the lane ends its turns with [`Batcher::drained`].
    #[inline]
    pub fn batcher_mut(&mut self) -> &mut Batcher {
        &mut self.batcher
    }
}
