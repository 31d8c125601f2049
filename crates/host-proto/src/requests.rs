//! The requests of a lane, from when they are taken to their end, whatever becomes of its connections.
//!
//! A request that is taken ends exactly once. It *waits* for a slot, has a *slot* of the queue pair while its command
//! is under way, and *rests* until it is tried again. When the connection is lost all requests wait again, in the
//! order in which they were taken. Without an answer of the controller a request fails for four reasons: nobody has
//! answered it too often, its NSID stands for another namespace now ([`Barred`]), the controller is lost, or it
//! was under way and may not be carried out twice ([`Addressed::may_repeat`]): nobody knows whether it was. It fails
//! when it cannot be carried out any more, so whoever looks then sees what has become of it.
//!
//! A request may be in one place only, and moves as a value: nothing is allocated for it.
//!
//! With several paths to the namespaces ([`super::paths`]) a lane has requests on each of them. Those that a path cannot
//! carry now move to another one ([`Requests::take_free`]), but for those that the path's target may still execute.
//!
//! Writes that an old one may still overwrite are *held*, whatever connection there is ([`super::old_commands`]).

mod held;
mod moves;

pub use moves::Moved;

use super::express::Traffic;
use super::old_commands::{BlockRange, ControllerSerial, LaneGuard};
use super::overdue::{IoTimer, Watch};
use super::paths::Meter;
use super::pins::Barred;
use super::retry::{RetryRules, Tries, is_of_path};
use super::write_verifier::{Durability, LaneWrites, PathWrites};
use core::cmp::Ordering;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BinaryHeap, VecDeque};

/// Nobody knows whether it was carried out, and it is not tried again.
const UNKNOWN: Status = Status::HOST_ABORTED;
/// Of requests to a namespace that is there no more.
const STALE: Status = Status::INVALID_NAMESPACE.dnr();
/// Of a Flush after the target's machine has lost acknowledged writes.
const LOST: Status = Status::WRITE_FAULT.dnr();

/// What a request is for.
pub trait Addressed {
    /// Its namespace.
    fn nsid(&self) -> u32;
    /// Whether it may be carried out once more when nobody knows whether it was.
    fn may_repeat(&self) -> bool {
        true
    }
    /// Octets that are in the way of others on its lane.
    fn bulk(&self) -> u32 {
        self.traffic().bulk()
    }
    /// What it is to others.
    fn traffic(&self) -> Traffic {
        Traffic::Plain
    }
    /// Whether it matters that it is executed once more, later.
    fn has_effect(&self) -> bool {
        true
    }
    /// Blocks that it changes, if it has an effect.
    fn changes(&self) -> BlockRange {
        BlockRange::all(self.nsid())
    }
    /// What its success means for written data.
    fn durability(&self) -> Durability {
        Durability::Unchanged
    }
}

/// A queue pair with its connection, as far as requests need it.
pub trait Queue<R> {
    /// Commands that may be submitted now.
    fn room(&self) -> u32;
    /// Commands submitted and not completed.
    fn in_flight(&self) -> u32;
    /// Submits the request's command: its slot. `None`: it takes none.
    fn submit(&mut self, now: Instant, request: &mut R) -> Option<u16>;
}

/// A request with what is known about it.
#[derive(Debug)]
struct Entry<R> {
    request: R,
    /// Which of the lane's requests it is: what is tried again keeps its place.
    number: u64,
    since: Instant,
    tries: Tries,
    /// How long its command has been under way.
    watch: Watch,
    /// Controller that it was sent to and that may still execute it: its connection was lost before the answer.
    at_risk: Option<ControllerSerial>,
    /// It was not answered in time too often: it is not tried again.
    given_up: bool,
    /// Commands of the path that were under way with its own, if that is measured.
    depth: u16,
    /// Of a Flush: which writes it covers ([`LaneWrites::begin_flush`]).
    round: u64,
}

impl<R: Addressed> Entry<R> {
    /// Nobody knows whether it was carried out, and it is not to be once more.
    fn is_unknown(&self) -> bool {
        self.at_risk.is_some() && (self.given_up || !self.request.may_repeat())
    }
}

/// A request's end.
#[derive(Debug)]
pub struct Ended<R> {
    pub request: R,
    /// How it has ended.
    pub status: Status,
    /// When it was taken.
    pub since: Instant,
}

/// What an answer means for its request.
#[derive(Debug)]
pub enum Outcome<R> {
    /// It has ended.
    Ended(Ended<R>),
    /// It is tried again later.
    Rests {
        /// Its namespace.
        nsid: u32,
        /// None has rested since one succeeded.
        is_first: bool,
    },
}

/// A request that is tried again at its time.
#[derive(Debug)]
struct Resting<R> {
    until: Instant,
    entry: Entry<R>,
}

/// The earliest is the greatest.
impl<R> Ord for Resting<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.until, other.entry.number).cmp(&(self.until, self.entry.number))
    }
}

impl<R> PartialOrd for Resting<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> PartialEq for Resting<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R> Eq for Resting<R> {}

/// All requests of a lane.
#[derive(Debug)]
pub struct Requests<R> {
    slots: Vec<Option<Entry<R>>>,
    /// Requests without a slot: there is no connection, or they are tried again now.
    waiting: VecDeque<Entry<R>>,
    /// Requests that are tried again later.
    resting: BinaryHeap<Resting<R>>,
    /// Requests that could be submitted, but old writes are in their way: in the order in which they began to wait.
    held: VecDeque<Entry<R>>,
    guard: LaneGuard,
    /// [`LaneGuard::ended_so_far`], when what is held was checked last.
    ended_so_far: u64,
    /// Requests that have failed, and nobody has been told.
    failed: VecDeque<Ended<R>>,
    rules: RetryRules,
    timer: IoTimer,
    barred: Barred,
    /// The controller is lost: requests fail at once.
    failing: bool,
    /// One has rested since one succeeded.
    has_rested: bool,
    /// Requests taken so far.
    taken: u64,
    /// How fast the path is, if there are others.
    meter: Option<Box<Meter>>,
    /// Requests that the path cannot carry now, as its controller says.
    diverted: Vec<Moved<R>>,
    /// Acknowledged writes that a power failure of the target may lose.
    writes: LaneWrites,
}

impl<R: Addressed> Requests<R> {
    /// None, for a queue of so many entries; what is not answered for `timeout` is overdue.
    #[must_use]
    pub fn new(queue_entries: u16, timeout: Option<Duration>) -> Self {
        Requests {
            slots: std::iter::repeat_with(|| None).take(queue_entries.into()).collect(),
            waiting: VecDeque::new(),
            resting: BinaryHeap::new(),
            held: VecDeque::new(),
            guard: LaneGuard::default(),
            ended_so_far: 0,
            failed: VecDeque::new(),
            rules: RetryRules::default(),
            timer: IoTimer::new(timeout),
            barred: Barred::default(),
            failing: false,
            has_rested: false,
            taken: 0,
            meter: None,
            diverted: Vec::new(),
            writes: LaneWrites::default(),
        }
    }

    // ---- In ----

    /// Requests that may be taken now, with that queue.
    #[inline]
    #[must_use]
    pub fn room<Q: Queue<R>>(&self, queue: Option<&Q>) -> u32 {
        match queue {
            Some(queue) if self.waiting.is_empty() => {
                queue.room().saturating_sub(self.resting.len() as u32 + self.crowd_held())
            }
            _ => (self.slots.len() as u32 - 1).saturating_sub(self.outstanding(queue)),
        }
    }

    /// Requests that were taken and have not ended.
    #[inline]
    #[must_use]
    pub fn outstanding<Q: Queue<R>>(&self, queue: Option<&Q>) -> u32 {
        let in_flight = queue.map_or(0, Queue::in_flight);
        in_flight
            + (self.waiting.len()
                + self.resting.len()
                + self.held.len()
                + self.failed.len()
                + self.diverted.len()) as u32
    }

    /// Takes a request; there is [`Requests::room`]. `true`: its command is under way.
    #[inline]
    pub fn take<Q: Queue<R>>(&mut self, now: Instant, request: R, queue: Option<&mut Q>) -> bool {
        self.taken += 1;
        let (tries, watch) = (Tries::default(), Watch::new(now));
        let (number, at_risk, given_up, depth) = (self.taken, None, false, 0);
        let is_flush = request.durability() == Durability::Flush;
        let round = if is_flush { self.writes.begin_flush() } else { 0 };
        let since = now;
        let entry = Entry { request, number, since, tries, watch, at_risk, given_up, depth, round };
        match queue {
            Some(queue) if self.waiting.is_empty() => self.start(now, entry, queue),
            _ => {
                self.put_off(entry);
                false
            }
        }
    }

    #[cold]
    fn put_off(&mut self, entry: Entry<R>) {
        if self.failing {
            self.fail_one(entry, Status::HOST_PATH_ERROR);
        } else {
            self.waiting.push_back(entry);
        }
    }

    /// Submits its command, or has it wait for old ones; `false`: that was not possible.
    #[inline(always)] // the entry is made where it stays
    fn start<Q: Queue<R>>(&mut self, now: Instant, mut entry: Entry<R>, queue: &mut Q) -> bool {
        if self.is_barred(entry.request.nsid()) {
            self.fail_one(entry, STALE);
            return true;
        }
        if self.guard.is_closed() && self.is_blocked(&entry.request) {
            self.hold(now, entry);
            return true;
        }
        let Some(slot) = queue.submit(now, &mut entry.request) else {
            self.waiting.push_front(entry);
            return false;
        };
        (entry.watch, entry.at_risk) = (Watch::new(now), None);
        if let Some(meter) = &mut self.meter {
            entry.depth = meter.begin(now, entry.request.traffic());
        }
        let slot = &mut self.slots[usize::from(slot)];
        debug_assert!(slot.is_none(), "the slot of a command under way was used again");
        *slot = Some(entry);
        true
    }

    /// Requests that wait get slots, and those whose time to be tried again has come.
    #[inline]
    pub fn resume<Q: Queue<R>>(&mut self, now: Instant, queue: &mut Q) {
        if !self.held.is_empty() {
            self.review_held(now);
        }
        while self.rest_until().is_some_and(|until| until <= now)
            && let Some(Resting { entry, .. }) = self.resting.pop()
        {
            self.waiting.push_back(entry);
        }
        while !self.waiting.is_empty()
            && queue.room() > 0
            && let Some(entry) = self.waiting.pop_front()
        {
            if !self.restart(now, entry, queue) {
                return;
            }
        }
    }

    /// The same as [`start`](Self::start), for one that has waited.
    #[cold]
    fn restart<Q: Queue<R>>(&mut self, now: Instant, entry: Entry<R>, queue: &mut Q) -> bool {
        self.start(now, entry, queue)
    }

    // ---- Under way ----

    /// The request whose command has a slot.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: u16) -> Option<&R> {
        self.slots.get(usize::from(slot))?.as_ref().map(|entry| &entry.request)
    }

    /// The same, to fill its buffer.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, slot: u16) -> Option<&mut R> {
        self.slots.get_mut(usize::from(slot))?.as_mut().map(|entry| &mut entry.request)
    }

    /// The slot's command was answered with `status`. A success without all its data is none.
    #[inline]
    pub fn end(
        &mut self,
        now: Instant,
        slot: u16,
        mut status: Status,
        data_intact: bool,
    ) -> Option<Outcome<R>> {
        let place = &mut self.slots[usize::from(slot)];
        let entry = place.as_ref()?;
        if let Some(meter) = &mut self.meter {
            meter.end(now, entry.request.traffic(), entry.watch.since(), entry.depth);
        }
        if status.is_success() && !data_intact {
            status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        match entry.request.durability() {
            Durability::NeedsFlush if status.is_success() => {
                self.writes.acknowledged(entry.request.nsid());
            }
            Durability::Flush => {
                let (nsid, round) = (entry.request.nsid(), entry.round);
                if status.is_success() && !self.writes.end_flush(nsid, round) {
                    status = LOST;
                }
            }
            Durability::Unchanged | Durability::NeedsFlush => {}
        }
        let entry = place.take()?;
        if !status.is_success() {
            return Some(self.end_badly(now, entry, status));
        }
        self.has_rested = false;
        Some(Outcome::Ended(Ended { request: entry.request, status, since: entry.since }))
    }

    #[cold]
    fn end_badly(&mut self, now: Instant, mut entry: Entry<R>, status: Status) -> Outcome<R> {
        let nsid = entry.request.nsid();
        if !self.is_barred(nsid)
            && let Some(until) = entry.tries.next(now, status, &self.rules)
        {
            if self.meter.is_some() && is_of_path(status) {
                self.diverted.push(Moved::later(entry, until));
            } else {
                self.resting.push(Resting { until, entry });
            }
            let is_first = !std::mem::replace(&mut self.has_rested, true);
            return Outcome::Rests { nsid, is_first };
        }
        Outcome::Ended(Ended { request: entry.request, status, since: entry.since })
    }

    /// Whether so many octets of bulk are under way or wait: looks at each request until they are found.
    #[must_use]
    pub fn is_bulk(&self, least: u64) -> bool {
        let mut found = 0;
        let entries = self.slots.iter().flatten().chain(&self.waiting);
        entries.map(|entry| u64::from(entry.request.bulk())).any(|octets| {
            found += octets;
            found >= least
        })
    }

    /// Requests that wait for a slot, or for old writes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.held.len()
    }

    fn rest_until(&self) -> Option<Instant> {
        self.resting.peek().map(|resting| resting.until)
    }

    // ---- Time ----

    /// When something is due, with so many commands under way.
    #[must_use]
    pub fn deadline(&self, in_flight: u32) -> Option<Instant> {
        let due = [self.rest_until(), self.held_until(), self.timer.deadline(in_flight)];
        due.into_iter().flatten().min()
    }

    /// Whether [`Requests::check_overdue`] is due.
    #[inline]
    #[must_use]
    pub fn may_be_overdue(&self, now: Instant) -> bool {
        self.timer.is_due(now)
    }

    /// Looks how long commands have been under way: the slots of those that are to be aborted go to `abort`, once.
    /// `true`: one was not answered after its abort either, and the connection is to be given up.
    pub fn check_overdue(&mut self, now: Instant, abort: impl FnMut(u16)) -> bool {
        let entries = (0..).zip(&mut self.slots);
        let watches = entries.filter_map(|(slot, entry)| Some((slot, &mut entry.as_mut()?.watch)));
        self.timer.check(now, watches, abort)
    }

    // ---- Connections ----

    /// There is a connection again, to a controller with these `rules`: [`Requests::resume`] submits what waits, as far as
    /// `guard` lets it.
    pub fn attach(&mut self, rules: RetryRules, guard: LaneGuard) {
        (self.rules, self.guard) = (rules, guard);
        self.failing = false;
        self.release();
    }

    /// The path of the lane is to be connected once more after it was given up: requests wait for it again.
    pub fn reopen(&mut self) {
        self.failing = false;
    }

    /// The connection is gone for good: whatever had a slot waits again, in the order in which it was taken. What was
    /// not answered in time has a few tries; then it fails, but not before it can be executed no more.
    pub fn detach(&mut self) {
        let lost: Vec<Entry<R>> = self.slots.iter_mut().filter_map(Option::take).collect();
        let of_effect = lost.iter().filter(|entry| entry.request.has_effect());
        let changed: Vec<BlockRange> = of_effect.map(|entry| entry.request.changes()).collect();
        let at_risk = if changed.is_empty() { None } else { self.guard.record(changed) };
        for mut entry in lost {
            entry.at_risk = at_risk.filter(|_| entry.request.has_effect());
            let may_repeat = entry.request.may_repeat();
            entry.given_up = may_repeat && entry.watch.is_overdue() && !entry.tries.may_pass();
            if entry.given_up && entry.at_risk.is_none() {
                self.fail_one(entry, UNKNOWN);
            } else {
                self.waiting.push_back(entry);
            }
        }
        self.waiting.append(&mut self.held);
        self.sort_waiting();
        if let Some(meter) = &mut self.meter {
            meter.lost();
        }
        if self.failing {
            self.fail_waiting();
        }
    }

    /// Takes over the requests of another connection of the lane, which is gone, too: they wait in the order in which
    /// all were taken.
    pub fn absorb(&mut self, other: &mut Requests<R>) {
        debug_assert!(other.slots.iter().all(Option::is_none), "the other one is detached");
        self.waiting.append(&mut other.waiting);
        self.waiting.append(&mut other.held);
        self.resting.append(&mut other.resting);
        self.diverted.append(&mut other.diverted);
        self.failed.append(&mut other.failed);
        self.sort_waiting();
        if self.failing {
            self.fail_waiting();
        }
    }

    /// The controller is lost: what has no slot fails, and what comes, until [`Requests::attach`].
    pub fn fail(&mut self) {
        self.failing = true;
        self.fail_waiting();
    }

    /// In the order in which they were taken. Each connection counts its own, so time comes first.
    fn sort_waiting(&mut self) {
        self.waiting.make_contiguous().sort_by_key(|entry| (entry.since, entry.number));
    }

    fn fail_waiting(&mut self) {
        self.waiting.append(&mut self.held);
        while let Some(entry) = self.waiting.pop_front() {
            let status = if entry.is_unknown() { UNKNOWN } else { Status::HOST_PATH_ERROR };
            self.fail_one(entry, status);
        }
        while let Some(Resting { entry, .. }) = self.resting.pop() {
            self.fail_one(entry, Status::HOST_PATH_ERROR);
        }
    }

    #[cold]
    fn fail_one(&mut self, entry: Entry<R>, status: Status) {
        let Entry { request, since, .. } = entry;
        self.failed.push_back(Ended { request, status, since });
    }

    /// The path of its connection, whose writes are followed.
    pub fn set_writes(&mut self, writes: PathWrites) {
        self.writes.set_path(writes);
    }

    /// What is not submitted from now on.
    pub fn set_barred(&mut self, barred: Barred) {
        self.barred = barred;
    }

    #[inline]
    fn is_barred(&self, nsid: u32) -> bool {
        self.barred.has(nsid)
    }

    /// Whether there is a [`Requests::next_failed`].
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// A request that has failed without an answer.
    pub fn next_failed(&mut self) -> Option<Ended<R>> {
        self.failed.pop_front()
    }
}
