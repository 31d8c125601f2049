//! The requests that a lane carries: those in a slot of its queue pair, and those that wait for one.

use super::api::{Completion, Op, Request};
use super::pins::Barred;
use crate::connection::Place;
use roadtrain_proto::host::overdue::Watch;
use roadtrain_proto::host::retry::{RetryRules, Tries};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::status::Status;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use tracing::warn;

/// Octets of a Dataset Management range.
pub(super) const RANGE_BYTES: usize = 16;

/// Of requests to a namespace that is there no more, though another is.
const BARRED: Status = Status::INVALID_NAMESPACE.dnr();

/// A request taken.
pub(super) struct Flight {
    pub(super) request: Request,
    /// Which of the lane's requests it is: what is tried again keeps its place.
    pub(super) number: u64,
    pub(super) submitted: Instant,
    tries: Tries,
    /// How long its command has been under way.
    watch: Watch,
}

impl Flight {
    pub(super) fn new(request: Request, number: u64, now: Instant) -> Self {
        let (tries, watch) = (Tries::default(), Watch::new(now));
        Flight { request, number, submitted: now, tries, watch }
    }
}

/// A request that is tried again at its time.
struct Resting {
    until: Instant,
    flight: Flight,
}

/// The earliest is the greatest.
impl Ord for Resting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.until, other.flight.number).cmp(&(self.until, self.flight.number))
    }
}

impl PartialOrd for Resting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Resting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Resting {}

/// How a slot's command ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) cqe: Cqe,
    /// All data has moved, unchanged.
    pub(super) data_intact: bool,
    /// What was sent may still be read by the kernel: a buffer cannot go back yet.
    pub(super) blocked: bool,
}

/// All requests of a lane.
pub(crate) struct Flights {
    slots: Vec<Option<Flight>>,
    /// Dataset Management ranges by slot: their place must not move while they are sent.
    ranges: Box<[[u8; RANGE_BYTES]]>,
    /// Requests without a slot: the connection is down, or they are tried again now.
    pending: VecDeque<Flight>,
    /// Requests that are tried again later.
    resting: BinaryHeap<Resting>,
    rules: RetryRules,
    /// It was said that requests wait for their namespace.
    has_said: bool,
    /// Completed while their data was still in a blocked caravan.
    deferred: Vec<Completion>,
    /// What may not be started.
    barred: Barred,
    /// Requests that were to be started, and are barred.
    refused: Vec<Flight>,
}

impl Flights {
    /// None, in a queue of so many slots.
    pub(super) fn new(slots: usize) -> Self {
        Flights {
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
            ranges: vec![[0; RANGE_BYTES]; slots].into_boxed_slice(),
            pending: VecDeque::new(),
            resting: BinaryHeap::new(),
            rules: RetryRules::default(),
            has_said: false,
            deferred: Vec::new(),
            barred: Barred::default(),
            refused: Vec::new(),
        }
    }

    /// What the controller of the next connection says about trying again.
    pub(super) fn set_rules(&mut self, rules: RetryRules) {
        self.rules = rules;
    }

    /// Requests that want a slot.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Requests that are tried again later.
    pub(super) fn resting(&self) -> usize {
        self.resting.len()
    }

    /// When the next of them is.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.resting.peek().map(|resting| resting.until)
    }

    /// Those whose time has come want a slot.
    pub(super) fn wake(&mut self, now: Instant) {
        while self.rests_until().is_some_and(|until| until <= now)
            && let Some(Resting { flight, .. }) = self.resting.pop()
        {
            self.pending.push_back(flight);
        }
    }

    /// The commands under way.
    pub(super) fn watches(&mut self) -> impl Iterator<Item = (u16, &mut Watch)> {
        let slots = (0..).zip(&mut self.slots);
        slots.filter_map(|(slot, flight)| Some((slot, &mut flight.as_mut()?.watch)))
    }

    /// Puts a request behind those without a slot.
    pub(super) fn wait(&mut self, flight: Flight) {
        self.pending.push_back(flight);
    }

    /// The first request without a slot.
    pub(super) fn next_waiting(&mut self) -> Option<Flight> {
        self.pending.pop_front()
    }

    /// Puts a request into its slot.
    pub(super) fn seat(&mut self, slot: u16, mut flight: Flight, now: Instant) {
        flight.watch = Watch::new(now);
        self.ranges[usize::from(slot)] = range(&flight.request);
        self.slots[usize::from(slot)] = Some(flight);
    }

    /// The connection is gone: every request waits again, in the order of their submission. Those that were not
    /// answered in time have a few tries, and fail then.
    pub(super) fn unseat(&mut self, now: Instant) -> Vec<Completion> {
        let mut given_up = Vec::new();
        for mut flight in self.slots.iter_mut().filter_map(Option::take) {
            if flight.watch.is_overdue() && !flight.tries.may_pass() {
                given_up.push(completion(flight, Status::HOST_ABORTED, now));
            } else {
                self.pending.push_back(flight);
            }
        }
        self.pending.make_contiguous().sort_unstable_by_key(|flight| flight.number);
        given_up
    }

    /// Completions that waited for their caravan to leave.
    pub(super) fn take_deferred(&mut self) -> impl Iterator<Item = Completion> {
        self.deferred.drain(..)
    }

    /// Fails what has no slot.
    pub(super) fn fail_waiting(&mut self, now: Instant) -> impl Iterator<Item = Completion> {
        let failed = move |flight| completion(flight, Status::HOST_PATH_ERROR, now);
        let resting = self.resting.drain().map(|resting| resting.flight);
        self.pending.drain(..).chain(resting).map(failed)
    }

    /// Whether another namespace is there than the request means.
    #[inline]
    pub(super) fn is_barred(&self, request: &Request) -> bool {
        !self.barred.is_empty() && self.barred.contains(&request.nsid)
    }

    /// What may not be started from now on.
    pub(super) fn bar(&mut self, barred: Barred) {
        self.barred = barred;
    }

    /// The request may not be started: it fails when nothing reads its buffer any more.
    pub(super) fn refuse(&mut self, flight: Flight) {
        self.refused.push(flight);
    }

    /// Whether there are requests that may not be started.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Fails them.
    pub(super) fn take_refused(&mut self, now: Instant) -> impl Iterator<Item = Completion> {
        self.refused.drain(..).map(move |flight| completion(flight, BARRED, now))
    }

    /// Data that the slot's command sends.
    pub(super) fn data(&self, slot: u16, offset: u32, length: u32) -> Option<&[u8]> {
        let flight = self.slots[usize::from(slot)].as_ref()?;
        let data: &[u8] = match &flight.request.buffer {
            Some(buffer) => buffer,
            None => &self.ranges[usize::from(slot)],
        };
        Some(&data[offset as usize..][..length as usize])
    }

    /// Where data of the slot's command belongs. It is ours until the request completes.
    pub(super) fn place(&mut self, slot: u16, offset: u32, length: u32) -> Option<Place> {
        let buffer = self.slots[usize::from(slot)].as_mut()?.request.buffer.as_mut()?;
        let rest = &mut buffer[offset as usize..][..length as usize];
        Some(Place { data: rest.as_mut_ptr(), length: rest.len() })
    }

    /// Copies data of the slot's command to where it belongs.
    pub(super) fn fill(&mut self, slot: u16, offset: u32, data: &[u8]) {
        let flight = self.slots[usize::from(slot)].as_mut();
        if let Some(buffer) = flight.and_then(|flight| flight.request.buffer.as_mut()) {
            buffer[offset as usize..][..data.len()].copy_from_slice(data);
        }
    }

    /// The slot's command has ended. Its request completes now, or waits for another try or for its caravan.
    /// Also the octets of its data, for a slot that was used.
    pub(super) fn end(
        &mut self,
        slot: u16,
        end: &Ending,
        now: Instant,
    ) -> (Option<u64>, Option<Completion>) {
        let Some(flight) = self.slots[usize::from(slot)].take() else { return (None, None) };
        let bytes = flight.request.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        (Some(bytes), self.finish(flight, end, now))
    }

    fn finish(&mut self, mut flight: Flight, end: &Ending, now: Instant) -> Option<Completion> {
        let mut status = end.cqe.status();
        if status.is_success() && !end.data_intact {
            status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        if !status.is_success()
            && !self.is_barred(&flight.request)
            && let Some(until) = flight.tries.next(now, status, &self.rules)
        {
            self.say(flight.request.nsid, status);
            // Its buffer stays with it, whatever still reads it.
            self.resting.push(Resting { until, flight });
            return None;
        }
        self.has_said &= !status.is_success();
        let sends = matches!(flight.request.op, Op::Write | Op::Compare);
        let completion = completion(flight, status, now);
        if end.blocked && sends {
            self.deferred.push(completion);
            return None;
        }
        Some(completion)
    }

    /// Says that a request waits: once, until one succeeds again.
    #[cold]
    fn say(&mut self, nsid: u32, status: Status) {
        if !std::mem::replace(&mut self.has_said, true) {
            warn!(nsid, "{status}: trying again");
        }
    }
}

/// A Dataset Management range: context attributes, length in blocks, starting LBA.
fn range(request: &Request) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&request.blocks.to_le_bytes());
    range[8..].copy_from_slice(&request.slba.to_le_bytes());
    range
}

/// A request's end.
pub(super) fn completion(flight: Flight, status: Status, now: Instant) -> Completion {
    Completion {
        token: flight.request.token,
        status,
        buffer: flight.request.buffer,
        latency_ns: now.0.saturating_sub(flight.submitted.0),
    }
}
