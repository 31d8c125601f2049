//! One operation alone with a range of a store: no other write, of whatever reactor and connection, changes a byte of
//! the range while it lasts. Compare and Write is made of this.
//!
//! Ordinary writes pay nothing for it: what they look at belongs to their own reactor, and is empty while nobody is
//! alone with anything. The cost is with who wants to be alone, who asks every reactor:
//!
//! ```text
//! who wants to be alone            the store's RangeLocks        each reactor's Gates (its own, too)
//! lock ---------------------------> waits until no other
//!                                   holds a part of the range
//! close ---------------------------------------------------------> holds back what would begin to change the range
//!                                                                   waits for what is changing it
//! all have acknowledged <------------------------------------------ acknowledges
//! compares, writes
//! open ----------------------------------------------------------> begins what was held back
//! unlock -------------------------> the next one has it
//! ```
//!
//! # Why nobody else writes
//! A reactor is one thread. Between its acknowledgement of a close and the open that follows, [`Gates::holds`] is asked
//! before each of its writes begins, and holds those back that touch the range; when it acknowledged, none that touch it
//! was under way. So from the last acknowledgement to the first open nobody but the holder changes the range. Two that
//! want parts of one range have it one after the other, as [`RangeLocks`] is one for all reactors. What one of them has
//! written is there for the next: locks and messages between threads order memory.
//!
//! # Why it ends
//! A gate waits for writes that are in a store, which end by themselves, never for a host, and never for a write that is
//! held back: that one has not begun. Who holds a lock asks for no second one.

use roadtrain_proto::op::ByteRange;
use std::collections::VecDeque;

/// Who is alone with which range of a store. `W` is who waits.
#[derive(Debug)]
pub struct RangeLocks<W> {
    last: u64,
    held: Vec<(u64, ByteRange)>,
    waiting: VecDeque<(u64, ByteRange, W)>,
}

impl<W> Default for RangeLocks<W> {
    fn default() -> Self {
        RangeLocks { last: 0, held: Vec::new(), waiting: VecDeque::new() }
    }
}

impl<W> RangeLocks<W> {
    /// Asks for a range: the number of the lock, and whether it is held now. Else `who` is told by
    /// [`RangeLocks::unlock`]: first come, first served.
    pub fn lock(&mut self, range: ByteRange, who: W) -> (u64, bool) {
        self.last += 1;
        let is_free = self.is_free(&range) && self.waiting.iter().all(|w| !w.1.overlaps(&range));
        match is_free {
            true => self.held.push((self.last, range)),
            false => self.waiting.push_back((self.last, range, who)),
        }
        (self.last, is_free)
    }

    /// Gives a lock back, or gives up waiting for it: who has theirs by that, with its number.
    pub fn unlock(&mut self, number: u64) -> Vec<(u64, W)> {
        self.held.retain(|held| held.0 != number);
        self.waiting.retain(|waiting| waiting.0 != number);
        let mut granted = Vec::new();
        let mut still = VecDeque::new();
        for (number, range, who) in std::mem::take(&mut self.waiting) {
            let is_free = self.is_free(&range)
                && still.iter().all(|w: &(u64, ByteRange, W)| !w.1.overlaps(&range));
            if is_free {
                self.held.push((number, range));
                granted.push((number, who));
            } else {
                still.push_back((number, range, who));
            }
        }
        self.waiting = still;
        granted
    }

    /// Whether nobody holds a part of it.
    fn is_free(&self, range: &ByteRange) -> bool {
        self.held.iter().all(|held| !held.1.overlaps(range))
    }
}

/// A range of a store that is closed.
#[derive(Debug)]
struct Gate<S, A> {
    /// Of the lock, for its store.
    number: u64,
    store: S,
    range: ByteRange,
    /// The operation here that is alone with it.
    owner: Option<u32>,
    /// Writes for whose end the acknowledgement waits.
    under_way: Vec<u32>,
    acknowledgement: Option<A>,
    /// Writes that begin when it opens.
    held_back: Vec<u32>,
}

/// What is closed to the writes of one reactor, which are numbered. `S` names a store; `A` is given back when nothing
/// here changes the range any more.
#[derive(Debug)]
pub struct Gates<S, A> {
    closed: Vec<Gate<S, A>>,
}

impl<S, A> Default for Gates<S, A> {
    fn default() -> Self {
        Gates { closed: Vec::new() }
    }
}

impl<S: PartialEq, A> Gates<S, A> {
    /// Whether nothing is closed.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// Somebody is to be alone with a range: `owner` is the operation, if it is of this reactor, `under_way` what
    /// changes the range now. The acknowledgement comes back when that is nothing, maybe at once.
    pub fn close(
        &mut self,
        (number, store, range): (u64, S, ByteRange),
        owner: Option<u32>,
        under_way: Vec<u32>,
        acknowledgement: A,
    ) -> Option<A> {
        let (held_back, mut later) = (Vec::new(), Some(acknowledgement));
        let now = if under_way.is_empty() { later.take() } else { None };
        let acknowledgement = later;
        self.closed.push(Gate {
            number,
            store,
            range,
            owner,
            under_way,
            acknowledgement,
            held_back,
        });
        now
    }

    /// Whether a write to the range has to wait. `write` is its number, if it has one: it is held back then.
    pub fn holds(&mut self, store: &S, range: &ByteRange, write: Option<u32>) -> bool {
        let closed = |gate: &&mut Gate<S, A>| {
            gate.store == *store
                && gate.range.overlaps(range)
                && (gate.owner.is_none() || gate.owner != write)
        };
        let Some(gate) = self.closed.iter_mut().find(closed) else { return false };
        gate.held_back.extend(write);
        true
    }

    /// Whether a range that `is_it` is closed.
    pub fn any(&self, mut is_it: impl FnMut(&S, &ByteRange) -> bool) -> bool {
        self.closed.iter().any(|gate| is_it(&gate.store, &gate.range))
    }

    /// A write has ended that had begun: acknowledgements that waited for it.
    pub fn ended(&mut self, write: u32) -> Vec<A> {
        let mut given = Vec::new();
        for gate in &mut self.closed {
            gate.under_way.retain(|other| *other != write);
            if gate.under_way.is_empty() {
                given.extend(gate.acknowledgement.take());
            }
        }
        given
    }

    /// A write that is held back is not wanted any more; `false`: it is not held back.
    pub fn forget(&mut self, write: u32) -> bool {
        self.closed.iter_mut().any(|gate| {
            let held = gate.held_back.iter().position(|other| *other == write);
            held.map(|at| gate.held_back.remove(at)).is_some()
        })
    }

    /// The range is open: writes that were held back, in their order. Each has to be asked for again.
    pub fn open(&mut self, store: &S, number: u64) -> Vec<u32> {
        let is_it = |gate: &mut Gate<S, A>| gate.number == number && gate.store == *store;
        let mut opened = self.closed.extract_if(.., is_it);
        opened.next().map(|gate| gate.held_back).unwrap_or_default()
    }
}
