//! Operations that are alone with a range of a store, over all reactors. Why nobody else writes meanwhile is in
//! [`roadtrain_target_proto::exclusion`]; here are the messages between reactors.

use super::open_store::OpenStore;
use super::range_locks::{Grant, Teller, Waiter};
use roadtrain_store::{ByteRange, Op};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::exclusion::Gates;
use std::sync::Arc;

/// A range that is closed to the writes of all but one operation.
#[derive(Clone)]
pub(crate) struct Closed {
    number: u64,
    store: Arc<OpenStore>,
    range: ByteRange,
    /// Reactor, and index there.
    owner: (usize, u32),
}

impl Closed {
    /// Whether its store lends memory, which is written without tasks.
    pub(crate) fn is_in_place(&self) -> bool {
        self.store.store().in_place().is_some()
    }
}

/// Each reactor acknowledges by dropping this: the last one tells. One that has ended drops it, too.
pub(crate) struct Closing {
    index: u32,
    tell: Teller,
}

impl Drop for Closing {
    fn drop(&mut self) {
        (self.tell)(self.index, Grant::Alone);
    }
}

/// What every reactor is told.
#[derive(Clone)]
pub(crate) enum Notice {
    Close(Closed, Arc<Closing>),
    Open(Closed),
}

/// Who hears of what a reactor's operations want.
#[derive(Clone)]
pub(crate) struct Wires {
    /// Which of the reactors this one is.
    pub(crate) number: usize,
    /// To all reactors, this one too.
    pub(crate) notify: Arc<dyn Fn(&Notice) + Send + Sync>,
    /// To this one.
    pub(crate) tell: Teller,
}

/// A store, told from others by where it is.
struct Named(Arc<OpenStore>);

impl PartialEq for Named {
    fn eq(&self, other: &Named) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A write that is held back.
pub(crate) struct HeldBack {
    index: u32,
    pub(crate) op: Op,
    pub(crate) buffer: Option<Buffer>,
}

/// What one reactor knows of it.
pub(crate) struct Exclusions {
    wires: Wires,
    gates: Gates<Named, Arc<Closing>>,
    held_back: Vec<HeldBack>,
    /// What operations of this reactor have asked for.
    asked: Vec<Closed>,
}

impl Exclusions {
    pub(crate) fn new(wires: Wires) -> Self {
        Exclusions { wires, gates: Gates::default(), held_back: Vec::new(), asked: Vec::new() }
    }

    /// Whether nothing is closed: the only question that ordinary commands ask.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// Keeps the write `index` until its range is open; gives it back if it is.
    pub(crate) fn hold_back(
        &mut self,
        store: &Arc<OpenStore>,
        index: u32,
        (op, buffer): (Op, Option<Buffer>),
    ) -> Option<(Op, Option<Buffer>)> {
        let bytes = buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let holds = |range| self.gates.holds(&Named(store.clone()), &range, Some(index));
        if !op.changed(bytes).is_some_and(holds) {
            return Some((op, buffer));
        }
        self.held_back.push(HeldBack { index, op, buffer });
        None
    }

    /// The write is not wanted any more: what was held back of it, if it was.
    pub(crate) fn forget(&mut self, index: u32) -> Option<HeldBack> {
        if !self.gates.forget(index) {
            return None;
        }
        self.take(index)
    }

    fn take(&mut self, index: u32) -> Option<HeldBack> {
        let at = self.held_back.iter().position(|held| held.index == index)?;
        Some(self.held_back.swap_remove(at))
    }

    /// Whether a range of the store that `is_it` is closed.
    pub(crate) fn any(&self, store: &Arc<OpenStore>, is_it: impl Fn(&ByteRange) -> bool) -> bool {
        self.gates.any(|closed, range| Arc::ptr_eq(&closed.0, store) && is_it(range))
    }

    /// The operation `index` wants to be alone with the range; it is told.
    pub(crate) fn ask(&mut self, store: &Arc<OpenStore>, index: u32, range: ByteRange) {
        let waiter = Waiter { index, tell: self.wires.tell.clone() };
        let (number, is_held) = store.locks().lock(range, waiter);
        let owner = (self.wires.number, index);
        self.asked.push(Closed { number, store: store.clone(), range, owner });
        if is_held {
            self.locked(index);
        }
    }

    /// No other operation wants a part of the range of `index`: every reactor is to close it.
    pub(crate) fn locked(&self, index: u32) {
        let Some(closed) = self.asked.iter().find(|closed| closed.owner.1 == index) else { return };
        let closing = Arc::new(Closing { index, tell: self.wires.tell.clone() });
        (self.wires.notify)(&Notice::Close(closed.clone(), closing));
    }

    /// The operation has ended: if it was alone with a range, that is open again.
    pub(crate) fn release(&mut self, index: u32) {
        let Some(at) = self.asked.iter().position(|closed| closed.owner.1 == index) else { return };
        let closed = self.asked.swap_remove(at);
        // First this, so that no reactor hears of the next one before.
        (self.wires.notify)(&Notice::Open(closed.clone()));
        closed.store.locks().unlock(closed.number);
    }

    /// Closes a range here. `under_way` says of a range what begun operations change in it. What is returned is to be
    /// dropped when nothing changes it in place any more.
    pub(crate) fn close(
        &mut self,
        closed: &Closed,
        closing: Arc<Closing>,
        under_way: impl Fn(&Arc<OpenStore>, &ByteRange) -> Vec<u32>,
    ) -> Option<Arc<Closing>> {
        let mut begun = under_way(&closed.store, &closed.range);
        begun.retain(|index| self.held_back.iter().all(|held| held.index != *index));
        let (reactor, index) = closed.owner;
        let owner = (reactor == self.wires.number).then_some(index);
        let gate = (closed.number, Named(closed.store.clone()), closed.range);
        self.gates.close(gate, owner, begun, closing)
    }

    /// A part of the operation has ended.
    pub(crate) fn ended(&mut self, index: u32) {
        drop(self.gates.ended(index));
    }

    /// Opens a range here: what was held back, in order.
    pub(crate) fn open(&mut self, closed: &Closed) -> Vec<(u32, HeldBack)> {
        let indices = self.gates.open(&Named(closed.store.clone()), closed.number);
        indices.into_iter().filter_map(|index| Some((index, self.take(index)?))).collect()
    }
}
