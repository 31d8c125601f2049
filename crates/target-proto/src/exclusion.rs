//! Exclusive access of one operation to a range of a store: no other write, of any reactor and connection, changes a
//! byte of the range meanwhile. Compare and Write uses this.
//!
//! Ordinary writes pay nothing for it: the state that they check belongs to their own reactor, and is empty while no
//! operation has exclusive access. The cost is with the exclusive operation, which messages every reactor:
//!
//! ```text
//! exclusive operation              the store's RangeLocks        each reactor's Gates (its own, too)
//! lock ---------------------------> waits until no other
//!                                   holds a part of the range
//! close ---------------------------------------------------------> holds back new writes to the range
//!                                                                   waits for those in flight
//! all have acknowledged <------------------------------------------ acknowledges
//! compares, writes
//! open ----------------------------------------------------------> begins the writes held back
//! unlock -------------------------> grants the next lock
//! ```
//!
//! # Why no other operation writes
//! A reactor is one thread. Between its acknowledgement of a close and the open that follows, it calls [`Gates::holds`]
//! before each of its writes, and holds back those that overlap the range. When it acknowledges, no write to the range
//! is in flight. So from the last acknowledgement to the first open only the lock holder changes the range. Two
//! operations on overlapping ranges run one after the other, as all reactors share one [`RangeLocks`]. The next holder
//! sees the writes of the last one: locks and messages between threads order memory.
//!
//! # Why it ends
//! A gate waits only for writes in a store, which end by themselves. It never waits for a host, and never for a write
//! that is held back, because that one has not begun. The holder of a lock takes no second one.

use roadtrain_proto::op::ByteRange;
use std::collections::VecDeque;

/// Exclusive locks on ranges of a store. `W` identifies a waiter.
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
    /// Requests a lock on a range. Returns the lock's number, and whether it is held now. Otherwise
    /// [`RangeLocks::unlock`] returns `who` later: first come, first served.
    pub fn lock(&mut self, range: ByteRange, who: W) -> (u64, bool) {
        self.last += 1;
        let is_free = self.is_free(&range) && self.waiting.iter().all(|w| !w.1.overlaps(&range));
        match is_free {
            true => self.held.push((self.last, range)),
            false => self.waiting.push_back((self.last, range, who)),
        }
        (self.last, is_free)
    }

    /// Releases a lock, or stops waiting for it. Returns the waiters that hold their lock now, with its number.
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

    /// True if no lock is held on a part of the range.
    fn is_free(&self, range: &ByteRange) -> bool {
        self.held.iter().all(|held| !held.1.overlaps(range))
    }
}

/// A closed range of a store.
#[derive(Debug)]
struct RangeGate<S, A> {
    /// Number of the lock, unique in its store.
    number: u64,
    store: S,
    range: ByteRange,
    /// Operation of this reactor that holds the lock.
    owner: Option<u32>,
    /// Writes in flight for whose end the acknowledgement waits.
    in_flight: Vec<u32>,
    acknowledgement: Option<A>,
    /// Writes that begin when the range opens.
    held_back: Vec<u32>,
}

/// Ranges closed to the writes of one reactor, which are numbered. `S` identifies a store; `A` is returned once no
/// write here changes the range any more.
#[derive(Debug)]
pub struct Gates<S, A> {
    closed: Vec<RangeGate<S, A>>,
}

impl<S, A> Default for Gates<S, A> {
    fn default() -> Self {
        Gates { closed: Vec::new() }
    }
}

impl<S: PartialEq, A> Gates<S, A> {
    /// True if no range is closed.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// Closes a range for an exclusive operation. `owner` is the operation if it runs on this reactor; `in_flight` are
    /// the writes to the range in flight. Returns the acknowledgement at once if there are none.
    pub fn close(
        &mut self,
        (number, store, range): (u64, S, ByteRange),
        owner: Option<u32>,
        in_flight: Vec<u32>,
        acknowledgement: A,
    ) -> Option<A> {
        let (held_back, mut later) = (Vec::new(), Some(acknowledgement));
        let now = if in_flight.is_empty() { later.take() } else { None };
        let acknowledgement = later;
        self.closed.push(RangeGate {
            number,
            store,
            range,
            owner,
            in_flight,
            acknowledgement,
            held_back,
        });
        now
    }

    /// True if a write to the range has to wait. It is held back by its number `write`, if it has one.
    pub fn holds(&mut self, store: &S, range: &ByteRange, write: Option<u32>) -> bool {
        let closed = |gate: &&mut RangeGate<S, A>| {
            gate.store == *store
                && gate.range.overlaps(range)
                && (gate.owner.is_none() || gate.owner != write)
        };
        let Some(gate) = self.closed.iter_mut().find(closed) else { return false };
        gate.held_back.extend(write);
        true
    }

    /// True if a closed range satisfies `is_it`.
    pub fn any(&self, mut is_it: impl FnMut(&S, &ByteRange) -> bool) -> bool {
        self.closed.iter().any(|gate| is_it(&gate.store, &gate.range))
    }

    /// Records the end of a write. Returns the acknowledgements that waited for it.
    pub fn ended(&mut self, write: u32) -> Vec<A> {
        let mut given = Vec::new();
        for gate in &mut self.closed {
            gate.in_flight.retain(|other| *other != write);
            if gate.in_flight.is_empty() {
                given.extend(gate.acknowledgement.take());
            }
        }
        given
    }

    /// Drops a write that is held back. Returns false if it is not held back.
    pub fn forget(&mut self, write: u32) -> bool {
        self.closed.iter_mut().any(|gate| {
            let held = gate.held_back.iter().position(|other| *other == write);
            held.map(|at| gate.held_back.remove(at)).is_some()
        })
    }

    /// Opens a range. Returns the writes held back, in their order. Each has to call [`Gates::holds`] again.
    pub fn open(&mut self, store: &S, number: u64) -> Vec<u32> {
        let is_it = |gate: &mut RangeGate<S, A>| gate.number == number && gate.store == *store;
        let mut opened = self.closed.extract_if(.., is_it);
        opened.next().map(|gate| gate.held_back).unwrap_or_default()
    }
}
