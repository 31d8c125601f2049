//! Operations with exclusive access to a range of a store, over all reactors. [`roadtrain_target_proto::exclusion`]
//! explains why no other write runs meanwhile. This module has the messages between reactors.

use super::open_store::OpenStore;
use super::range_locks::{Grant, GrantNotifier, RangeLockWaiter};
use roadtrain_store::{ByteRange, StoreOperation};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::exclusion::Gates;
use std::sync::Arc;

/// A range that is closed to the writes of all operations but one.
#[derive(Clone)]
pub(crate) struct ClosedRange {
    number: u64,
    store: Arc<OpenStore>,
    range: ByteRange,
    /// Reactor of the operation, and its index there.
    owner: (usize, u32),
}

impl ClosedRange {
    /// True if the store lends memory, which lanes write without tasks.
    pub(crate) fn is_in_place(&self) -> bool {
        self.store.store().in_place().is_some()
    }
}

/// Acknowledgement of a close. Each reactor drops its reference; the last one notifies the owner. A reactor that ends
/// drops its reference, too.
pub(crate) struct CloseAcknowledgement {
    index: u32,
    notify_grant: GrantNotifier,
}

impl Drop for CloseAcknowledgement {
    fn drop(&mut self) {
        (self.notify_grant)(self.index, Grant::Alone);
    }
}

/// Message to every reactor.
#[derive(Clone)]
pub(crate) enum RangeExclusionNotice {
    Close(ClosedRange, Arc<CloseAcknowledgement>),
    Open(ClosedRange),
}

/// Channels for the messages of one reactor.
#[derive(Clone)]
pub(crate) struct ExclusionChannels {
    /// Index of this reactor.
    pub(crate) number: usize,
    /// Sends a notice to all reactors, including this one.
    pub(crate) notify: Arc<dyn Fn(&RangeExclusionNotice) + Send + Sync>,
    /// Notifies this reactor.
    pub(crate) notify_grant: GrantNotifier,
}

/// A store that compares by address.
struct StoreByAddress(Arc<OpenStore>);

impl PartialEq for StoreByAddress {
    fn eq(&self, other: &StoreByAddress) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A write that is held back.
pub(crate) struct HeldBackWrite {
    index: u32,
    pub(crate) op: StoreOperation,
    pub(crate) buffer: Option<Buffer>,
}

/// Closed ranges and held-back writes of one reactor.
pub(crate) struct Exclusions {
    channels: ExclusionChannels,
    gates: Gates<StoreByAddress, Arc<CloseAcknowledgement>>,
    held_back: Vec<HeldBackWrite>,
    /// Ranges that operations of this reactor have requested.
    requested: Vec<ClosedRange>,
}

impl Exclusions {
    pub(crate) fn new(channels: ExclusionChannels) -> Self {
        Exclusions {
            channels,
            gates: Gates::default(),
            held_back: Vec::new(),
            requested: Vec::new(),
        }
    }

    /// True if no range is closed. Ordinary commands check only this.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// Holds back the write `index` while its range is closed; returns it if the range is open.
    pub(crate) fn hold_back(
        &mut self,
        store: &Arc<OpenStore>,
        index: u32,
        (op, buffer): (StoreOperation, Option<Buffer>),
    ) -> Option<(StoreOperation, Option<Buffer>)> {
        let bytes = buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let holds = |range| self.gates.holds(&StoreByAddress(store.clone()), &range, Some(index));
        if !op.changed(bytes).is_some_and(holds) {
            return Some((op, buffer));
        }
        self.held_back.push(HeldBackWrite { index, op, buffer });
        None
    }

    /// Cancels the write `index`. Returns it if it was held back.
    pub(crate) fn forget(&mut self, index: u32) -> Option<HeldBackWrite> {
        if !self.gates.forget(index) {
            return None;
        }
        self.take(index)
    }

    fn take(&mut self, index: u32) -> Option<HeldBackWrite> {
        let at = self.held_back.iter().position(|held| held.index == index)?;
        Some(self.held_back.swap_remove(at))
    }

    /// True if a range of the store that `is_it` accepts is closed.
    pub(crate) fn any(&self, store: &Arc<OpenStore>, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        self.gates.any(|closed, range| Arc::ptr_eq(&closed.0, store) && is_it(range))
    }

    /// Requests exclusive access to the range for the operation `index`, which is notified.
    pub(crate) fn request(&mut self, store: &Arc<OpenStore>, index: u32, range: ByteRange) {
        let waiter = RangeLockWaiter { index, notify_grant: self.channels.notify_grant.clone() };
        let (number, is_held) = store.locks().lock(range, waiter);
        let owner = (self.channels.number, index);
        self.requested.push(ClosedRange { number, store: store.clone(), range, owner });
        if is_held {
            self.locked(index);
        }
    }

    /// Closes the range of `index` at every reactor, now that no other operation has a lock on a part of it.
    pub(crate) fn locked(&self, index: u32) {
        let Some(closed) = self.requested.iter().find(|closed| closed.owner.1 == index) else {
            return;
        };
        let closing = Arc::new(CloseAcknowledgement {
            index,
            notify_grant: self.channels.notify_grant.clone(),
        });
        (self.channels.notify)(&RangeExclusionNotice::Close(closed.clone(), closing));
    }

    /// Ends the operation. Opens its range again if it had exclusive access.
    pub(crate) fn release(&mut self, index: u32) {
        let Some(at) = self.requested.iter().position(|closed| closed.owner.1 == index) else {
            return;
        };
        let closed = self.requested.swap_remove(at);
        // Open first, so that no reactor receives the next close before it.
        (self.channels.notify)(&RangeExclusionNotice::Open(closed.clone()));
        closed.store.locks().unlock(closed.number);
    }

    /// Closes a range at this reactor. `in_flight` returns the operations in flight that change a part of the range.
    /// The caller drops the result once no in-place access changes the range.
    pub(crate) fn close(
        &mut self,
        closed: &ClosedRange,
        closing: Arc<CloseAcknowledgement>,
        in_flight: impl Fn(&Arc<OpenStore>, &ByteRange) -> Vec<u32>,
    ) -> Option<Arc<CloseAcknowledgement>> {
        let mut begun = in_flight(&closed.store, &closed.range);
        begun.retain(|index| self.held_back.iter().all(|held| held.index != *index));
        let (reactor, index) = closed.owner;
        let owner = (reactor == self.channels.number).then_some(index);
        let gate = (closed.number, StoreByAddress(closed.store.clone()), closed.range);
        self.gates.close(gate, owner, begun, closing)
    }

    /// Reports that a part of the operation has ended.
    pub(crate) fn ended(&mut self, index: u32) {
        drop(self.gates.ended(index));
    }

    /// Opens a range at this reactor. Returns the held-back writes, in order.
    pub(crate) fn open(&mut self, closed: &ClosedRange) -> Vec<(u32, HeldBackWrite)> {
        let indices = self.gates.open(&StoreByAddress(closed.store.clone()), closed.number);
        indices.into_iter().filter_map(|index| Some((index, self.take(index)?))).collect()
    }
}
