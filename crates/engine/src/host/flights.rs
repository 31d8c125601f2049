//! The requests that a lane carries: those in a slot of its queue pair, and those that wait for one.

use super::api::{Completion, Op, Request};
use crate::connection::Place;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;

/// Times a request is tried again after a status that permits it.
const RETRIES_MAX: u8 = 5;
/// Octets of a Dataset Management range.
pub(super) const RANGE_BYTES: usize = 16;

/// A request taken.
pub(super) struct Flight {
    pub(super) request: Request,
    /// Which of the lane's requests it is: what is tried again keeps its place.
    pub(super) number: u64,
    pub(super) submitted: Instant,
    pub(super) retries: u8,
}

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
    /// Requests without a slot: the connection is down, or they are tried again.
    pending: VecDeque<Flight>,
    /// Completed while their data was still in a blocked caravan.
    deferred: Vec<Completion>,
}

impl Flights {
    /// None, in a queue of so many slots.
    pub(super) fn new(slots: usize) -> Self {
        Flights {
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
            ranges: vec![[0; RANGE_BYTES]; slots].into_boxed_slice(),
            pending: VecDeque::new(),
            deferred: Vec::new(),
        }
    }

    /// Requests without a slot.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len()
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
    pub(super) fn seat(&mut self, slot: u16, flight: Flight) {
        self.ranges[usize::from(slot)] = range(&flight.request);
        self.slots[usize::from(slot)] = Some(flight);
    }

    /// The connection is gone: every request waits again, in the order of their submission.
    pub(super) fn unseat(&mut self) {
        self.pending.extend(self.slots.iter_mut().filter_map(Option::take));
        self.pending.make_contiguous().sort_unstable_by_key(|flight| flight.number);
    }

    /// Completions that waited for their caravan to leave.
    pub(super) fn take_deferred(&mut self) -> impl Iterator<Item = Completion> {
        self.deferred.drain(..)
    }

    /// Fails what has no slot.
    pub(super) fn fail_waiting(&mut self, now: Instant) -> impl Iterator<Item = Completion> {
        let failed = move |flight| completion(flight, Status::HOST_PATH_ERROR, now);
        self.pending.drain(..).map(failed)
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
        if is_retriable(status) && flight.retries < RETRIES_MAX && !end.blocked {
            flight.retries += 1;
            self.pending.push_back(flight);
            return None;
        }
        let sends = matches!(flight.request.op, Op::Write | Op::Compare);
        let completion = completion(flight, status, now);
        if end.blocked && sends {
            self.deferred.push(completion);
            return None;
        }
        Some(completion)
    }
}

/// A Dataset Management range: context attributes, length in blocks, starting LBA.
fn range(request: &Request) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&request.blocks.to_le_bytes());
    range[8..].copy_from_slice(&request.slba.to_le_bytes());
    range
}

/// Statuses that pass: the transport's, a namespace not ready yet, a queue that goes away.
fn is_retriable(status: Status) -> bool {
    let passing = [
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::NAMESPACE_NOT_READY,
        Status::ABORTED_SQ_DELETION,
        Status::ABORT_REQUESTED,
    ];
    !status.is_dnr() && passing.iter().any(|&s| status.is(s))
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
