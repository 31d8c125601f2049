//! A lane at the host: one queue pair, its connection, and the requests it carries.
//!
//! A request taken is completed exactly once. When the connection is lost its requests wait, in
//! order, for the next one; they fail only when the controller-loss timeout says so.

#[cfg(test)]
mod tests;

use super::api::{Class, Completion, Op, Request};
use super::meter::LaneReading;
use crate::connection::{Connection, Heard, Place, Received, RxBuffer};
use crate::gather::{Gather, Sent};
use crate::stats::LaneStats;
use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::host::qpair::{Data, Qpair, RxEvent};
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::io;
use thiserror::Error;

/// Times a request is tried again after a status that permits it.
const RETRIES_MAX: u8 = 5;
/// Octets of a Dataset Management range.
const RANGE_BYTES: usize = 16;

/// Why a connection is over.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The peer closed it.
    #[error("connection closed by the target")]
    Closed,
    /// The protocol was broken.
    #[error(transparent)]
    Qpair(#[from] QpairError),
}

/// A connected, ready queue pair.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) qpair: Qpair,
}

struct Flight {
    request: Request,
    /// Which of the lane's requests it is: what is tried again keeps its place.
    number: u64,
    submitted: Instant,
    retries: u8,
}

/// What the lanes of a reactor share in a turn.
pub(crate) struct Shared {
    pub(crate) rx: RxBuffer,
    pub(crate) gather: Box<Gather>,
    pub(crate) now: Instant,
    pub(crate) completions: VecDeque<Completion>,
}

pub(crate) struct Lane {
    link: Option<Link>,
    queue_entries: u16,
    /// Of requests that are of none.
    class: Class,
    flights: Vec<Option<Flight>>,
    /// Dataset Management ranges by slot: their place must not move while they are sent.
    ranges: Box<[[u8; RANGE_BYTES]]>,
    /// Requests without a slot: the connection is down, or they are tried again.
    pending: VecDeque<Flight>,
    /// Completed while their data was still in a blocked caravan.
    deferred: Vec<Completion>,
    failing: bool,
    /// Requests taken so far.
    taken: u64,
    /// Received octets not parsed yet: start and end in the receive buffer.
    unparsed: (usize, usize),
    past: LaneStats,
}

struct Filler<'a> {
    gather: &'a mut Gather,
    flights: &'a [Option<Flight>],
    ranges: &'a [[u8; RANGE_BYTES]],
    requests: u64,
}

impl Caravan for Filler<'_> {
    fn has_room(&self) -> bool {
        self.gather.has_room()
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.requests += 1;
        self.gather.header(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        let Some(flight) = &self.flights[usize::from(slot)] else { return };
        let data: &[u8] = match &flight.request.buffer {
            Some(buffer) => buffer,
            None => &self.ranges[usize::from(slot)],
        };
        let data = &data[offset as usize..][..length as usize];
        // SAFETY: the buffer stays with its flight, or in `deferred`, until the caravan has left.
        unsafe { self.gather.payload(data.as_ptr(), data.len()) };
        if digest {
            let crc = crate::digest::crc32c(data);
            self.gather.header(4).copy_from_slice(&crc.to_le_bytes());
        }
    }
}

impl Lane {
    pub(crate) fn new(queue_entries: u16, class: Class) -> Self {
        let slots = usize::from(queue_entries);
        Lane {
            link: None,
            queue_entries,
            class,
            flights: std::iter::repeat_with(|| None).take(slots).collect(),
            ranges: vec![[0; RANGE_BYTES]; slots].into_boxed_slice(),
            pending: VecDeque::new(),
            deferred: Vec::new(),
            failing: false,
            taken: 0,
            unparsed: (0, 0),
            past: LaneStats::default(),
        }
    }

    /// A new connection: what waits goes first, in order.
    pub(crate) fn attach(&mut self, link: Link, now: Instant) {
        debug_assert!(self.link.is_none(), "attached twice");
        self.link = Some(link);
        self.failing = false;
        self.submit_pending(now);
    }

    /// The connection is gone: its requests wait for the next one.
    pub(crate) fn detach(&mut self, shared: &mut Shared) {
        let Some(link) = self.link.take() else { return };
        link.connection.reset_on_close();
        self.past = self.past + link_stats(&link);
        self.past.reconnects += 1;
        drop(link);
        shared.completions.extend(self.deferred.drain(..));
        self.unparsed = (0, 0);
        self.pending.extend(self.flights.iter_mut().filter_map(Option::take));
        self.pending.make_contiguous().sort_unstable_by_key(|flight| flight.number);
        if self.failing {
            self.fail_pending(shared);
        }
    }

    /// The controller-loss timeout: everything fails, and goes on failing until [`Lane::attach`].
    pub(crate) fn fail(&mut self, shared: &mut Shared) {
        self.failing = true;
        self.detach(shared);
        self.fail_pending(shared);
    }

    fn fail_pending(&mut self, shared: &mut Shared) {
        let now = shared.now;
        for flight in self.pending.drain(..) {
            shared.completions.push_back(completion(flight, Status::HOST_PATH_ERROR, now));
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn fd(&self) -> Option<i32> {
        self.link.as_ref().map(|link| link.connection.fd())
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.connection.is_blocked())
    }

    /// Requests in flight or waiting.
    pub(crate) fn outstanding(&self) -> u32 {
        let sent = self.link.as_ref().map_or(0, |link| link.qpair.in_flight());
        sent + self.pending.len() as u32
    }

    pub(crate) fn room(&self) -> u32 {
        match &self.link {
            Some(link) if self.pending.is_empty() => link.qpair.room(),
            _ => u32::from(self.queue_entries - 1).saturating_sub(self.outstanding()),
        }
    }

    pub(crate) fn submit(
        &mut self,
        mut request: Request,
        shared: &mut Shared,
    ) -> Result<(), Request> {
        if self.room() == 0 {
            return Err(request);
        }
        if request.class == Class::Normal {
            request.class = self.class;
        }
        self.taken += 1;
        let flight = Flight { request, number: self.taken, submitted: shared.now, retries: 0 };
        if self.failing {
            shared.completions.push_back(completion(flight, Status::HOST_PATH_ERROR, shared.now));
        } else if self.link.is_none() || !self.pending.is_empty() {
            self.pending.push_back(flight);
        } else {
            self.start(flight, shared.now);
        }
        Ok(())
    }

    fn submit_pending(&mut self, now: Instant) {
        while self.link.as_ref().is_some_and(|link| link.qpair.room() > 0) {
            let Some(flight) = self.pending.pop_front() else { return };
            self.start(flight, now);
        }
    }

    /// Gives a request its slot; the link is there and has room.
    fn start(&mut self, flight: Flight, now: Instant) {
        let Some(link) = &mut self.link else { return self.pending.push_back(flight) };
        let (sqe, data) = command(&flight.request);
        let urgency = urgency(&flight.request);
        let range = range(&flight.request);
        match link.qpair.submit(now, &sqe, data, urgency) {
            Some(slot) => {
                self.ranges[usize::from(slot)] = range;
                self.flights[usize::from(slot)] = Some(flight);
            }
            None => self.pending.push_back(flight),
        }
    }

    /// One receive; [`Lane::parse`] handles what it brought.
    pub(crate) fn receive(
        &mut self,
        shared: &mut Shared,
        limit: usize,
    ) -> Result<Heard, LinkError> {
        let Some(link) = &mut self.link else { return Ok(Heard::default()) };
        let place = link.qpair.wanted().and_then(|(slot, offset, length)| {
            let buffer = self.flights[usize::from(slot)].as_mut()?.request.buffer.as_mut()?;
            let rest = &mut buffer[offset as usize..][..length as usize];
            Some(Place { data: rest.as_mut_ptr(), length: rest.len() })
        });
        // SAFETY: `place` lies in a buffer that its flight owns, and nothing else touches now.
        let received = unsafe { link.connection.receive(&mut shared.rx, place, limit) }?;
        match received {
            Received::Nothing => Ok(Heard::default()),
            Received::Closed => Err(LinkError::Closed),
            Received::Octets { direct, buffered, more } => {
                if let Some(place) = place {
                    // SAFETY: just received there.
                    let data = unsafe { std::slice::from_raw_parts(place.data, direct) };
                    link.qpair.placed(data);
                }
                self.unparsed = (0, buffered);
                Ok(Heard { something: true, more })
            }
        }
    }

    /// Parses until `batch` completions are there or the input is used up; `true` when some is left.
    pub(crate) fn parse(&mut self, shared: &mut Shared, batch: usize) -> Result<bool, LinkError> {
        let Some(link) = &mut self.link else { return Ok(false) };
        let (mut at, end) = self.unparsed;
        let input = shared.rx.filled(end);
        let mut completed = 0;
        while completed < batch {
            let Some(event) = link.qpair.poll_rx(shared.now, input, &mut at)? else {
                link.connection.keep(&input[at..]);
                self.unparsed = (0, 0);
                self.submit_pending(shared.now);
                return Ok(false);
            };
            match event {
                RxEvent::Ready => {}
                RxEvent::Data { slot, offset, start, length } => {
                    let flight = self.flights[usize::from(slot)].as_mut();
                    if let Some(buffer) = flight.and_then(|f| f.request.buffer.as_mut()) {
                        let data = &input[start..start + length as usize];
                        buffer[offset as usize..][..data.len()].copy_from_slice(data);
                    }
                }
                RxEvent::Complete { slot, cqe, data_intact } => {
                    completed += 1;
                    if let Some(flight) = self.flights[usize::from(slot)].take() {
                        let bytes = flight.request.buffer.as_ref().map_or(0, |b| b.len());
                        link.connection.stats.requests += 1;
                        link.connection.stats.data_bytes += bytes as u64;
                        let end =
                            Ending { cqe, data_intact, blocked: link.connection.is_blocked() };
                        finish(flight, &end, &mut self.pending, &mut self.deferred, shared.now)
                            .into_iter()
                            .for_each(|c| shared.completions.push_back(c));
                    }
                }
            }
        }
        self.unparsed = (at, end);
        self.submit_pending(shared.now);
        Ok(true)
    }

    /// Whether it has carried something latency-critical of late.
    pub(crate) fn is_express(&mut self, now: Instant) -> bool {
        self.link.as_mut().is_some_and(|link| link.qpair.batcher().is_express(now))
    }

    /// Whether a latency-critical lane has its turns in between.
    pub(crate) fn set_yielding(&mut self, yielding: bool) {
        if let Some(link) = &mut self.link {
            link.qpair.batcher().set_yielding(yielding);
        }
    }

    /// When the doorbell's timer must be looked at.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        self.link.as_mut().and_then(|link| link.qpair.batcher().deadline())
    }

    /// Whether a full caravan waits.
    pub(crate) fn is_due(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.qpair.has_tx() && !link.connection.is_blocked())
    }

    /// The turn is over: rings what the policy lets go, and sends it.
    pub(crate) fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LinkError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.qpair.batcher().expire(shared.now);
        link.qpair.batcher().drained(shared.now);
        self.flush(shared)
    }

    /// Sends what doorbells have released.
    pub(crate) fn flush(&mut self, shared: &mut Shared) -> Result<(), LinkError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        while !link.connection.is_blocked() && link.qpair.has_tx() {
            let (flights, ranges) = (&self.flights[..], &self.ranges[..]);
            let mut filler = Filler { gather: &mut shared.gather, flights, ranges, requests: 0 };
            link.qpair.poll_tx(&mut filler);
            link.connection.stats.caravan_requests += filler.requests;
            if shared.gather.is_empty() {
                break;
            }
            link.connection.send(&mut shared.gather)?;
        }
        Ok(())
    }

    /// The socket is writable again.
    pub(crate) fn writable(&mut self, shared: &mut Shared) -> Result<(), LinkError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if link.connection.resume()? == Sent::All {
            shared.completions.extend(self.deferred.drain(..));
        }
        self.flush(shared)
    }

    /// For other threads.
    pub(crate) fn reading(&self) -> LaneReading {
        let now = self.link.as_ref().map(|link| link.connection.stats).unwrap_or_default();
        LaneReading {
            requests: self.past.requests + now.requests,
            data_bytes: self.past.data_bytes + now.data_bytes,
            errors: 0, // the reactor's
            reconnects: self.past.reconnects,
            in_flight: self.outstanding(),
        }
    }

    pub(crate) fn stats(&mut self) -> LaneStats {
        self.link.as_mut().map_or(self.past, |link| self.past + link_stats(link))
    }
}

fn link_stats(link: &Link) -> LaneStats {
    link.connection.stats.with_doorbells(link.qpair.doorbells())
}

fn command(request: &Request) -> (Sqe, Data) {
    let length = request.buffer.as_ref().map_or(0, |buffer| buffer.len() as u32);
    let rw = |opcode| Sqe::rw(opcode, request.nsid, request.slba, request.blocks);
    let (mut sqe, data) = match request.op {
        Op::Read => (rw(opcode::READ), Data::In(length)),
        Op::Write => (rw(opcode::WRITE), Data::Out(length)),
        Op::Compare => (rw(opcode::COMPARE), Data::Out(length)),
        Op::Flush => (Sqe::new(opcode::FLUSH, request.nsid), Data::None),
        Op::WriteZeroes { deallocate } => {
            let mut sqe = rw(opcode::WRITE_ZEROES);
            if deallocate {
                sqe.cdw12 = (sqe.cdw12.get() | cdw12::DEAC).into();
            }
            (sqe, Data::None)
        }
        Op::Discard => {
            let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, request.nsid);
            sqe.cdw11 = 4.into(); // deallocate one range
            (sqe, Data::Out(RANGE_BYTES as u32))
        }
    };
    if matches!(request.op, Op::Read | Op::Write) {
        sqe.cdw13 = request.class.to_dsm().into(); // so that the target treats it likewise
    }
    if request.fua && request.op != Op::Flush {
        sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
    }
    (sqe, data)
}

fn urgency(request: &Request) -> Urgency {
    let plain = matches!(request.op, Op::Read | Op::Write) && !request.fua && !request.urgent;
    let at_least = if plain { Urgency::Bulk } else { Urgency::Urgent };
    request.class.urgency().max(at_least)
}

/// A Dataset Management range: context attributes, length in blocks, starting LBA.
fn range(request: &Request) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&request.blocks.to_le_bytes());
    range[8..].copy_from_slice(&request.slba.to_le_bytes());
    range
}

struct Ending {
    cqe: Cqe,
    data_intact: bool,
    blocked: bool,
}

/// Completes a request, or puts it where it waits for another try or for its caravan.
fn finish(
    mut flight: Flight,
    end: &Ending,
    pending: &mut VecDeque<Flight>,
    deferred: &mut Vec<Completion>,
    now: Instant,
) -> Option<Completion> {
    let mut status = end.cqe.status();
    if status.is_success() && !end.data_intact {
        status = Status::TRANSIENT_TRANSPORT_ERROR;
    }
    if is_retriable(status) && flight.retries < RETRIES_MAX && !end.blocked {
        flight.retries += 1;
        pending.push_back(flight);
        return None;
    }
    let sends = matches!(flight.request.op, Op::Write | Op::Compare);
    let completion = completion(flight, status, now);
    if end.blocked && sends {
        deferred.push(completion);
        return None;
    }
    Some(completion)
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

fn completion(flight: Flight, status: Status, now: Instant) -> Completion {
    Completion {
        token: flight.request.token,
        status,
        buffer: flight.request.buffer,
        latency_ns: now.0.saturating_sub(flight.submitted.0),
    }
}
