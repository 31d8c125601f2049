//! Requests of a lane, from submission to their end, independent of the lane's connections.
//!
//! A request that was taken ends exactly once. It *waits* for a slot, has a *slot* of the queue pair while its command
//! is in flight, and *rests* until its retry. When the connection is lost all requests wait again, in the order in
//! which they were taken.
//!
//! Without a completion from the controller a request fails for four reasons:
//! - its command timed out too often;
//! - its NSID now stands for another namespace ([`BarredNsids`]);
//! - the controller is lost;
//! - it was in flight and may not be repeated ([`RequestProperties::may_repeat`]), as its outcome is unknown.
//!
//! It fails only once it cannot be executed any more, so a later read shows its outcome.
//!
//! A request is in one place only, and moves as a value without an allocation.
//!
//! With several paths to the namespaces ([`super::paths`]) a lane has requests on each of them. Requests that a path
//! cannot carry now move to another one ([`RequestTable::take_free`]), except those that the path's target may still
//! execute.
//!
//! Writes that an old command may still overwrite are *held*, whatever the connection ([`super::old_commands`]).

mod held;
mod moves;

pub use moves::MovedRequest;

use super::express::RequestTraffic;
use super::namespace_identity::BarredNsids;
use super::old_commands::{BlockRange, ControllerSerial, LaneGuard};
use super::overdue::{CommandTimer, IoTimer};
use super::paths::PathMeter;
use super::retry::{RetryRules, Tries, is_of_path};
use super::write_verifier::{Durability, LaneWrites, PathWrites};
use core::cmp::Ordering;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;
use std::collections::{BinaryHeap, VecDeque};

/// Status of a request with an unknown outcome that is not retried.
const UNKNOWN: Status = Status::HOST_ABORTED;
/// Status of requests to a namespace that has disappeared.
const STALE: Status = Status::INVALID_NAMESPACE.dnr();
/// Status of a Flush after the target's machine has lost acknowledged writes.
const LOST: Status = Status::WRITE_FAULT.dnr();

/// Properties of a request.
pub trait RequestProperties {
    /// Returns the NSID.
    fn nsid(&self) -> u32;
    /// True if the request may be repeated when its outcome is unknown.
    fn may_repeat(&self) -> bool {
        true
    }
    /// Returns the bytes of bulk data, which delay other requests of the lane.
    fn bulk(&self) -> u32 {
        self.traffic().bulk()
    }
    /// Returns the traffic class.
    fn traffic(&self) -> RequestTraffic {
        RequestTraffic::Plain
    }
    /// True if a late second execution would change data.
    fn has_effect(&self) -> bool {
        true
    }
    /// Returns the blocks that it changes, if it has an effect.
    fn changes(&self) -> BlockRange {
        BlockRange::all(self.nsid())
    }
    /// Returns what its success means for written data.
    fn durability(&self) -> Durability {
        Durability::Unchanged
    }
}

/// Queue pair with its connection, as requests use it.
pub trait RequestQueue<R> {
    /// Returns the number of commands that may be submitted now.
    fn room(&self) -> u32;
    /// Returns the number of commands in flight.
    fn in_flight(&self) -> u32;
    /// Submits the request's command and returns its slot. `None`: the queue is full.
    fn submit(&mut self, now: Instant, request: &mut R) -> Option<u16>;
}

/// Request with its state.
#[derive(Debug)]
struct RequestEntry<R> {
    request: R,
    /// Sequence number in the lane: a retry keeps its position.
    number: u64,
    since: Instant,
    tries: Tries,
    /// Timer of its command.
    command_timer: CommandTimer,
    /// Controller that may still execute it, as the connection was lost before the completion.
    at_risk: Option<ControllerSerial>,
    /// True if it timed out too often and is not retried.
    has_timed_out: bool,
    /// Commands in flight on the path at its submission, if the path is measured.
    depth: u16,
    /// Round of a Flush, which selects the writes it covers ([`LaneWrites::begin_flush`]).
    round: u64,
}

impl<R: RequestProperties> RequestEntry<R> {
    /// True if its outcome is unknown and it may not be repeated.
    fn is_unknown(&self) -> bool {
        self.at_risk.is_some() && (self.has_timed_out || !self.request.may_repeat())
    }
}

/// Request that has ended.
#[derive(Debug)]
pub struct EndedRequest<R> {
    pub request: R,
    /// Final status.
    pub status: Status,
    /// Time at which it was taken.
    pub since: Instant,
}

/// Effect of a completion on its request.
#[derive(Debug)]
pub enum RequestOutcome<R> {
    /// The request has ended.
    Ended(EndedRequest<R>),
    /// The request is retried later.
    Rests {
        /// Namespace of the request.
        nsid: u32,
        /// True for the first retry since the last success.
        is_first: bool,
    },
}

/// Request that waits for the time of its retry.
#[derive(Debug)]
struct RestingRequest<R> {
    until: Instant,
    entry: RequestEntry<R>,
}

/// Orders by time, with the earliest as the greatest.
impl<R> Ord for RestingRequest<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.until, other.entry.number).cmp(&(self.until, self.entry.number))
    }
}

impl<R> PartialOrd for RestingRequest<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> PartialEq for RestingRequest<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R> Eq for RestingRequest<R> {}

/// All requests of a lane on one connection.
#[derive(Debug)]
pub struct RequestTable<R> {
    slots: Vec<Option<RequestEntry<R>>>,
    /// Requests without a slot: there is no connection, or their retry is due.
    waiting: VecDeque<RequestEntry<R>>,
    /// Requests that wait for their retry.
    resting: BinaryHeap<RestingRequest<R>>,
    /// Requests that wait for old writes, in the order in which they began to wait.
    held: VecDeque<RequestEntry<R>>,
    guard: LaneGuard,
    /// [`LaneGuard::ended_so_far`] at the last check of held requests.
    ended_so_far: u64,
    /// Failed requests that are not reported yet.
    failed: VecDeque<EndedRequest<R>>,
    rules: RetryRules,
    timer: IoTimer,
    barred: BarredNsids,
    /// True while the controller is lost: requests fail at once.
    failing: bool,
    /// True if a request was put to rest since the last success.
    has_rested: bool,
    /// Requests taken so far.
    taken: u64,
    /// Latency of the path, if there are other paths.
    meter: Option<Box<PathMeter>>,
    /// Requests that the path's controller cannot serve now.
    diverted: Vec<MovedRequest<R>>,
    /// Acknowledged writes that a power failure of the target may lose.
    writes: LaneWrites,
}

impl<R: RequestProperties> RequestTable<R> {
    /// Creates an empty set for a queue of `queue_entries`; commands that take longer than `timeout` are overdue.
    #[must_use]
    pub fn new(queue_entries: u16, timeout: Option<Duration>) -> Self {
        RequestTable {
            slots: std::iter::repeat_with(|| None).take(queue_entries.into()).collect(),
            waiting: VecDeque::new(),
            resting: BinaryHeap::new(),
            held: VecDeque::new(),
            guard: LaneGuard::default(),
            ended_so_far: 0,
            failed: VecDeque::new(),
            rules: RetryRules::default(),
            timer: IoTimer::new(timeout),
            barred: BarredNsids::default(),
            failing: false,
            has_rested: false,
            taken: 0,
            meter: None,
            diverted: Vec::new(),
            writes: LaneWrites::default(),
        }
    }

    // ---- In ----

    /// Returns the number of requests that may be taken now, with this queue.
    #[inline]
    #[must_use]
    pub fn room<Q: RequestQueue<R>>(&self, queue: Option<&Q>) -> u32 {
        match queue {
            Some(queue) if self.waiting.is_empty() => {
                queue.room().saturating_sub(self.resting.len() as u32 + self.crowd_held())
            }
            _ => (self.slots.len() as u32 - 1).saturating_sub(self.outstanding(queue)),
        }
    }

    /// Returns the number of requests that were taken and have not ended.
    #[inline]
    #[must_use]
    pub fn outstanding<Q: RequestQueue<R>>(&self, queue: Option<&Q>) -> u32 {
        let in_flight = queue.map_or(0, RequestQueue::in_flight);
        in_flight
            + (self.waiting.len()
                + self.resting.len()
                + self.held.len()
                + self.failed.len()
                + self.diverted.len()) as u32
    }

    /// Takes a request; the caller has checked [`RequestTable::room`]. True if its command is in flight.
    #[inline]
    pub fn take<Q: RequestQueue<R>>(
        &mut self,
        now: Instant,
        request: R,
        queue: Option<&mut Q>,
    ) -> bool {
        self.taken += 1;
        let (tries, command_timer) = (Tries::default(), CommandTimer::new(now));
        let (number, at_risk, has_timed_out, depth) = (self.taken, None, false, 0);
        let is_flush = request.durability() == Durability::Flush;
        let round = if is_flush { self.writes.begin_flush() } else { 0 };
        let since = now;
        let entry = RequestEntry {
            request,
            number,
            since,
            tries,
            command_timer,
            at_risk,
            has_timed_out,
            depth,
            round,
        };
        match queue {
            Some(queue) if self.waiting.is_empty() => self.start(now, entry, queue),
            _ => {
                self.put_off(entry);
                false
            }
        }
    }

    #[cold]
    fn put_off(&mut self, entry: RequestEntry<R>) {
        if self.failing {
            self.fail_one(entry, Status::HOST_PATH_ERROR);
        } else {
            self.waiting.push_back(entry);
        }
    }

    /// Submits its command, or holds it for old writes. False if neither was possible.
    #[inline(always)] // the entry is made where it stays
    fn start<Q: RequestQueue<R>>(
        &mut self,
        now: Instant,
        mut entry: RequestEntry<R>,
        queue: &mut Q,
    ) -> bool {
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
        (entry.command_timer, entry.at_risk) = (CommandTimer::new(now), None);
        if let Some(meter) = &mut self.meter {
            entry.depth = meter.begin(now, entry.request.traffic());
        }
        let slot = &mut self.slots[usize::from(slot)];
        debug_assert!(slot.is_none(), "the slot of a command in flight was used again");
        *slot = Some(entry);
        true
    }

    /// Submits waiting requests, and those whose retry is due.
    #[inline]
    pub fn resume<Q: RequestQueue<R>>(&mut self, now: Instant, queue: &mut Q) {
        if !self.held.is_empty() {
            self.review_held(now);
        }
        while self.rest_until().is_some_and(|until| until <= now)
            && let Some(RestingRequest { entry, .. }) = self.resting.pop()
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

    /// Calls [`start`](Self::start) for a request that has waited.
    #[cold]
    fn restart<Q: RequestQueue<R>>(
        &mut self,
        now: Instant,
        entry: RequestEntry<R>,
        queue: &mut Q,
    ) -> bool {
        self.start(now, entry, queue)
    }

    // ---- In flight ----

    /// Returns the request in a slot.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: u16) -> Option<&R> {
        self.slots.get(usize::from(slot))?.as_ref().map(|entry| &entry.request)
    }

    /// Returns the request in a slot, to fill its buffer.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, slot: u16) -> Option<&mut R> {
        self.slots.get_mut(usize::from(slot))?.as_mut().map(|entry| &mut entry.request)
    }

    /// Completes the slot's command with `status`. A success without all its data counts as a transport error.
    #[inline]
    pub fn end(
        &mut self,
        now: Instant,
        slot: u16,
        mut status: Status,
        data_intact: bool,
    ) -> Option<RequestOutcome<R>> {
        let place = &mut self.slots[usize::from(slot)];
        let entry = place.as_ref()?;
        if let Some(meter) = &mut self.meter {
            meter.end(now, entry.request.traffic(), entry.command_timer.since(), entry.depth);
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
        Some(RequestOutcome::Ended(EndedRequest {
            request: entry.request,
            status,
            since: entry.since,
        }))
    }

    #[cold]
    fn end_badly(
        &mut self,
        now: Instant,
        mut entry: RequestEntry<R>,
        status: Status,
    ) -> RequestOutcome<R> {
        let nsid = entry.request.nsid();
        if !self.is_barred(nsid)
            && let Some(until) = entry.tries.next(now, status, &self.rules)
        {
            if self.meter.is_some() && is_of_path(status) {
                self.diverted.push(MovedRequest::later(entry, until));
            } else {
                self.resting.push(RestingRequest { until, entry });
            }
            let is_first = !std::mem::replace(&mut self.has_rested, true);
            return RequestOutcome::Rests { nsid, is_first };
        }
        RequestOutcome::Ended(EndedRequest { request: entry.request, status, since: entry.since })
    }

    /// True if at least this many bytes of bulk are in flight or waiting. Visits requests until they are found.
    #[must_use]
    pub fn is_bulk(&self, least: u64) -> bool {
        let mut found = 0;
        let entries = self.slots.iter().flatten().chain(&self.waiting);
        entries.map(|entry| u64::from(entry.request.bulk())).any(|bytes| {
            found += bytes;
            found >= least
        })
    }

    /// Returns the number of requests that wait for a slot or for old writes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.held.len()
    }

    fn rest_until(&self) -> Option<Instant> {
        self.resting.peek().map(|resting| resting.until)
    }

    // ---- Time ----

    /// Returns the time of the next timer, with this many commands in flight.
    #[must_use]
    pub fn deadline(&self, in_flight: u32) -> Option<Instant> {
        let due = [self.rest_until(), self.held_until(), self.timer.deadline(in_flight)];
        due.into_iter().flatten().min()
    }

    /// True if [`RequestTable::check_overdue`] is due.
    #[inline]
    #[must_use]
    pub fn may_be_overdue(&self, now: Instant) -> bool {
        self.timer.is_due(now)
    }

    /// Checks the timers of commands. Calls `abort` once for each slot whose command is to be aborted. True if an
    /// aborted command did not complete either: the caller closes the connection.
    pub fn check_overdue(&mut self, now: Instant, abort: impl FnMut(u16)) -> bool {
        let entries = (0..).zip(&mut self.slots);
        let timers =
            entries.filter_map(|(slot, entry)| Some((slot, &mut entry.as_mut()?.command_timer)));
        self.timer.check(now, timers, abort)
    }

    // ---- Connections ----

    /// Attaches a new connection to a controller with these `rules`. [`RequestTable::resume`] submits waiting requests as
    /// far as `guard` permits.
    pub fn attach(&mut self, rules: RetryRules, guard: LaneGuard) {
        (self.rules, self.guard) = (rules, guard);
        self.failing = false;
        self.release();
    }

    /// Makes requests wait again, as the path is reconnected after the controller was lost.
    pub fn reopen(&mut self) {
        self.failing = false;
    }

    /// Detaches the closed connection: requests with a slot wait again, in the order in which they were taken.
    /// Timed-out commands get a few retries. After these the request fails, but not before it can no longer be
    /// executed.
    pub fn detach(&mut self) {
        let lost: Vec<RequestEntry<R>> = self.slots.iter_mut().filter_map(Option::take).collect();
        let of_effect = lost.iter().filter(|entry| entry.request.has_effect());
        let changed: Vec<BlockRange> = of_effect.map(|entry| entry.request.changes()).collect();
        let at_risk = if changed.is_empty() { None } else { self.guard.record(changed) };
        for mut entry in lost {
            entry.at_risk = at_risk.filter(|_| entry.request.has_effect());
            let may_repeat = entry.request.may_repeat();
            entry.has_timed_out =
                may_repeat && entry.command_timer.is_overdue() && !entry.tries.may_pass();
            if entry.has_timed_out && entry.at_risk.is_none() {
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

    /// Takes over the requests of another closed connection of the lane. They wait in the order in which all were
    /// taken.
    pub fn absorb(&mut self, other: &mut RequestTable<R>) {
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

    /// Fails requests without a slot, and new ones until [`RequestTable::attach`]: the controller is lost.
    pub fn fail(&mut self) {
        self.failing = true;
        self.fail_waiting();
    }

    /// Sorts waiting requests in the order in which they were taken. Each connection has its own numbers, so time comes
    /// first.
    fn sort_waiting(&mut self) {
        self.waiting.make_contiguous().sort_by_key(|entry| (entry.since, entry.number));
    }

    fn fail_waiting(&mut self) {
        self.waiting.append(&mut self.held);
        while let Some(entry) = self.waiting.pop_front() {
            let status = if entry.is_unknown() { UNKNOWN } else { Status::HOST_PATH_ERROR };
            self.fail_one(entry, status);
        }
        while let Some(RestingRequest { entry, .. }) = self.resting.pop() {
            self.fail_one(entry, Status::HOST_PATH_ERROR);
        }
    }

    #[cold]
    fn fail_one(&mut self, entry: RequestEntry<R>, status: Status) {
        let RequestEntry { request, since, .. } = entry;
        self.failed.push_back(EndedRequest { request, status, since });
    }

    /// Sets the path whose writes are recorded.
    pub fn set_writes(&mut self, writes: PathWrites) {
        self.writes.set_path(writes);
    }

    /// Sets the NSIDs whose requests are not submitted.
    pub fn set_barred(&mut self, barred: BarredNsids) {
        self.barred = barred;
    }

    #[inline]
    fn is_barred(&self, nsid: u32) -> bool {
        self.barred.has(nsid)
    }

    /// True if there is a [`RequestTable::next_failed`].
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Takes a request that has failed without a completion.
    pub fn next_failed(&mut self) -> Option<EndedRequest<R>> {
        self.failed.pop_front()
    }
}
