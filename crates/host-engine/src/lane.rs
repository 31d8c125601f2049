//! Lane of the host: one queue pair, its connection, and its requests.
//!
//! `host_proto::requests` decides about requests whose connection is lost or whose command times out.

mod ether;
mod express;
#[cfg(test)]
pub(crate) mod tests;

use super::api::{Class, IoRequest};
use super::counters::LaneCounters;
use super::link::{LaneShared, LinkError, QpairLink};
use super::requests::LaneRequests;
use roadtrain_host_proto::express::{ExpressPolicy, RequestTraffic};
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::overdue::IoTimer;
use roadtrain_host_proto::paths::PathOffer;
use roadtrain_host_proto::requests::MovedRequest;
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::{ReceivedData, RemainingInput, RxBuffer};
use roadtrain_reactor::metrics::Batching;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) struct HostLane {
    pub(crate) link: Option<QpairLink>,
    /// Default class for requests without one.
    class: Class,
    pub(crate) requests: LaneRequests,
    timeout: Option<Duration>,
    /// Command identifiers of commands to abort.
    overdue: Vec<u16>,
    /// Counters of earlier connections while it has none, and the number of lost ones.
    past: Batching,
    reconnects: u64,
    /// State of the express connection, and the choice of its requests.
    pub(crate) express: ExpressPolicy,
    /// Index of the express connection in the reactor's table of lanes.
    pub(crate) express_at: Option<u32>,
    /// Number of times that an express connection was opened.
    pub(crate) expresses_opened: u64,
}

impl HostLane {
    pub(crate) fn new(queue_entries: u16, class: Class, timeout: Option<Duration>) -> Self {
        HostLane {
            link: None,
            class,
            requests: LaneRequests::new(queue_entries, timeout),
            timeout,
            overdue: Vec::new(),
            past: Batching::default(),
            reconnects: 0,
            express: ExpressPolicy::new(None),
            express_at: None,
            expresses_opened: 0,
        }
    }

    /// Attaches a new connection: waiting requests are submitted first, in order, as far as the guard permits.
    pub(crate) fn attach(
        &mut self,
        mut link: QpairLink,
        (rules, guard): (RetryRules, LaneGuard),
        now: Instant,
    ) {
        debug_assert!(self.link.is_none(), "attached twice");
        link.count_on(mem::take(&mut self.past));
        self.link = Some(link);
        self.requests.core.attach(rules, guard);
        self.submit_waiting(now);
    }

    /// Sets stale NSIDs: requests to them fail.
    pub(crate) fn set_barred(&mut self, barred: BarredNsids) {
        self.requests.core.set_barred(barred);
    }

    /// Releases requests that waited for a lost controller, which executes nothing any more.
    pub(crate) fn release(&mut self, shared: &mut LaneShared) {
        self.requests.core.release();
        if !self.is_blocked() {
            shared.completions.extend(self.requests.take_held_back(shared.now));
        }
    }

    /// Takes requests that may move to another path. None while the caravan is blocked, as it may still point to their
    /// buffers: another path could complete the requests and return the buffers.
    pub(crate) fn take_free(&mut self) -> Vec<MovedRequest<IoRequest>> {
        if self.is_blocked() { Vec::new() } else { self.requests.core.take_free() }
    }

    /// True if the controller has refused requests that may move to another path now: see [`HostLane::take_free`].
    #[inline]
    pub(crate) fn diverts(&self) -> bool {
        self.requests.core.has_diverted() && !self.is_blocked()
    }

    /// Detaches the closed connection: its requests wait for the next one.
    pub(crate) fn detach(&mut self, shared: &mut LaneShared) {
        let Some(mut link) = self.link.take() else { return };
        link.end(shared);
        self.past = link.batching();
        self.reconnects += 1;
        drop(link);
        self.requests.core.detach();
        shared.completions.extend(self.requests.take_held_back(shared.now));
        self.overdue.clear();
    }

    /// Fails all requests after the controller-loss timeout, and new ones until [`HostLane::attach`].
    pub(crate) fn fail(&mut self, shared: &mut LaneShared) {
        self.detach(shared);
        self.requests.core.fail();
        shared.completions.extend(self.requests.take_held_back(shared.now));
    }

    /// Closes the connection at the end of the reactor.
    pub(crate) fn shut_down(&mut self, shared: &mut LaneShared) {
        if let Some(mut link) = self.link.take() {
            link.shut_down(shared);
            self.past = link.batching();
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// True if its connection can carry fused commands.
    pub(crate) fn fuses(&self) -> bool {
        self.link.as_ref().is_none_or(QpairLink::fuses)
    }

    pub(crate) fn fd(&self) -> Option<i32> {
        self.link.as_ref().and_then(QpairLink::fd)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.link.as_ref().is_some_and(QpairLink::is_blocked)
    }

    /// Returns the commands in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.link.as_ref().map_or(0, QpairLink::in_flight)
    }

    /// Returns the requests in flight or waiting.
    pub(crate) fn outstanding(&self) -> u32 {
        self.requests.core.outstanding(self.link.as_ref())
    }

    pub(crate) fn room(&self) -> u32 {
        self.requests.core.room(self.link.as_ref())
    }

    /// Returns its capacity and latency for a request, if there are other paths.
    #[inline]
    pub(crate) fn path_offer(&self, now: Instant, traffic: RequestTraffic) -> PathOffer {
        let Some(meter) = self.requests.core.meter() else { return PathOffer::default() };
        PathOffer {
            room: self.room(),
            in_flight: meter.in_flight(),
            expected: meter.expected(now, traffic),
            wants_probe: meter.wants_probe(now, traffic),
            is_last: false,
        }
    }

    pub(crate) fn submit(
        &mut self,
        mut request: IoRequest,
        shared: &mut LaneShared,
    ) -> Result<(), IoRequest> {
        if self.room() == 0 {
            return Err(request);
        }
        request.class = self.class_of(&request);
        self.update_load(shared);
        let is_in_flight = self.requests.take(shared.now, request, self.link.as_mut());
        shared.in_flight += u32::from(is_in_flight);
        Ok(())
    }

    /// Updates the batcher with the commands in flight on other lanes.
    #[inline]
    fn update_load(&mut self, shared: &LaneShared) {
        if let Some(link) = &mut self.link {
            let in_others = shared.in_flight.saturating_sub(link.in_flight());
            link.batcher().set_in_others(in_others);
            link.batcher().set_polling(shared.polls);
        }
    }

    fn submit_waiting(&mut self, now: Instant) {
        if let Some(link) = &mut self.link {
            self.requests.resume(now, link);
        }
    }

    /// Receives once; [`HostLane::parse`] processes the data.
    pub(crate) fn receive<'a>(
        &mut self,
        rx: &'a mut RxBuffer,
        limit: usize,
    ) -> Result<(ReceivedData, Option<RemainingInput<'a>>), LinkError> {
        let Some(link) = &mut self.link else { return Ok((ReceivedData::default(), None)) };
        link.receive(&mut self.requests, rx, limit)
    }

    /// Parses until `batch` completions are found or the input is used up; returns the remaining input.
    #[inline]
    pub(crate) fn parse<'a>(
        &mut self,
        shared: &mut LaneShared,
        rest: RemainingInput<'a>,
        batch: usize,
    ) -> Result<Option<RemainingInput<'a>>, LinkError> {
        let Some(link) = &mut self.link else { return Ok(None) };
        let before = link.in_flight();
        let rest = link.parse(&mut self.requests, shared, rest, batch)?;
        let ended = before.saturating_sub(link.in_flight());
        shared.in_flight = shared.in_flight.saturating_sub(ended);
        self.submit_waiting(shared.now);
        Ok(rest)
    }

    /// True if it has carried latency-critical requests recently.
    pub(crate) fn is_express(&mut self, now: Instant) -> bool {
        self.link.as_mut().is_some_and(|link| link.batcher().is_express(now))
    }

    /// Sets whether a latency-critical lane has turns in between.
    pub(crate) fn set_yielding(&mut self, yielding: bool) {
        if let Some(link) = &mut self.link {
            link.batcher().set_yielding(yielding);
        }
    }

    /// Returns the time of the next timer: doorbells, the transport, retries, I/O timeouts.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        let link = self.link.as_mut()?;
        let requests = self.requests.core.deadline(link.in_flight());
        let due = link.deadline().into_iter().chain(requests).min();
        if !self.express.is_open() {
            return due;
        }
        due.into_iter().chain(self.express.deadline()).min()
    }

    /// True if the lane only needs to send at the end of a turn.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !(self.is_blocked() || self.express.is_busy() || self.requests.core.has_diverted())
            && self.overdue.is_empty()
    }

    /// Takes the command identifiers of commands to abort, if there are any.
    pub(crate) fn take_overdue(&mut self) -> Option<Vec<u16>> {
        (!self.overdue.is_empty()).then(|| std::mem::take(&mut self.overdue))
    }

    /// Checks commands for their I/O timeout.
    fn check_overdue(&mut self, now: Instant) -> Result<(), LinkError> {
        let (Some(link), Some(timeout)) = (&self.link, self.timeout) else { return Ok(()) };
        let overdue = &mut self.overdue;
        match self.requests.core.check_overdue(now, |slot| overdue.push(link.cid(slot))) {
            true => Err(LinkError::Unanswered(timeout + IoTimer::grace(timeout))),
            false => Ok(()),
        }
    }

    /// True if it is better to delay sending: see [`QpairLink::gathers`].
    pub(crate) fn gathers(&mut self) -> bool {
        self.link.as_mut().is_some_and(QpairLink::gathers)
    }

    /// True if a full caravan waits.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_due(now))
    }

    /// Ends the turn: rings doorbells as the policy permits, and sends.
    pub(crate) fn end_turn(&mut self, shared: &mut LaneShared) -> Result<(), LinkError> {
        self.submit_waiting(shared.now);
        if self.requests.core.has_failed() && !self.is_blocked() {
            shared.completions.extend(self.requests.take_held_back(shared.now));
        }
        if self.requests.core.may_be_overdue(shared.now) {
            self.check_overdue(shared.now)?;
        }
        let Some(link) = &mut self.link else { return Ok(()) };
        link.end_turn(shared)?;
        link.flush(&self.requests, shared)
    }

    /// Sends PDUs that doorbells have released.
    pub(crate) fn flush(&mut self, shared: &mut LaneShared) -> Result<(), LinkError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.flush(&self.requests, shared)
    }

    /// Resumes sending, as the socket is writable again.
    pub(crate) fn writable(&mut self, shared: &mut LaneShared) -> Result<(), LinkError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.resume()?;
        if !link.is_blocked() {
            shared.completions.extend(self.requests.take_held_back(shared.now));
        }
        link.flush(&self.requests, shared)
    }

    /// Publishes its counters and those of its express connection, with `errors` of its reactor.
    #[inline]
    pub(crate) fn publish(&self, counters: &LaneCounters, errors: u64, express: Option<&HostLane>) {
        match express {
            None => counters.write_batching(self.batching()),
            Some(express) => counters.write_batching(self.batching() + express.batching()),
        }
        counters.errors.store(errors, Relaxed);
        counters.reconnects.store(self.reconnects, Relaxed);
        counters.in_flight.store(self.outstanding(), Relaxed);
        counters.waiting.store(self.requests.core.waiting() as u32, Relaxed);
    }

    #[inline]
    pub(crate) fn batching(&self) -> Batching {
        self.link.as_ref().map_or(self.past, QpairLink::batching)
    }
}
