//! A lane straight on Ethernet.

use super::{Link, LinkError, Transport};
use crate::host::api::Completion;
use crate::host::counters::LaneCounters;
use crate::host::ether::{EtherLane, Found, Heard, PastLane, Ports, Source};
use crate::host::lane::{Lane, Shared};
use crate::host::requests::{Ending, LaneRequests};
use crate::stats::LaneStats;
use roadtrain_proto::ether::host::RxEvent;
use roadtrain_proto::host::qpair::Data;
use roadtrain_proto::policy::{Batcher, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use std::collections::VecDeque;

/// A lane of a reactor's ports.
pub(crate) struct EtherLink {
    pub(crate) lane: EtherLane,
    stats: LaneStats,
}

impl Source for LaneRequests {
    fn data(&self, slot: u16, offset: u32, length: u32) -> Option<&[u8]> {
        LaneRequests::data(self, slot, offset, length)
    }
}

impl EtherLink {
    pub(crate) fn new(lane: EtherLane) -> Self {
        EtherLink { lane, stats: LaneStats::default() }
    }

    /// A frame of the lane has come.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        requests: &mut LaneRequests,
        completions: &mut VecDeque<Completion>,
    ) {
        let stats = &mut self.stats;
        self.lane.deliver(now, heard, &mut |event| match event {
            RxEvent::Data { slot, offset, start, length } => {
                requests.fill(slot, offset, &heard.body[start..start + length as usize]);
            }
            RxEvent::Complete { slot, cqe, data_intact } => {
                // Frames are flushed before others are received: nothing refers to the buffer.
                let end = Ending { cqe, data_intact, blocked: false };
                let (bytes, completion) = requests.end(slot, &end, now);
                stats.requests += u64::from(bytes.is_some());
                stats.data_bytes += bytes.unwrap_or(0);
                completions.extend(completion);
            }
        });
    }
}

impl Transport for EtherLink {
    fn room(&self) -> u32 {
        self.lane.qpair.room()
    }

    fn in_flight(&self) -> u32 {
        self.lane.qpair.in_flight()
    }

    fn submit(&mut self, now: Instant, sqe: &Sqe, data: Data, urgency: Urgency) -> Option<u16> {
        self.stats.caravan_requests += 1;
        self.lane.qpair.submit(now, sqe, data, urgency)
    }

    fn cid(&self, slot: u16) -> u16 {
        self.lane.qpair.cid(slot)
    }

    fn batcher(&mut self) -> &mut Batcher {
        self.lane.qpair.batcher()
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.lane.deadline(false)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.lane.qpair.has_tx(now)
    }

    fn end_turn(&mut self, shared: &mut Shared) -> Result<(), LinkError> {
        self.lane.keep(shared.now, &mut shared.ports, false);
        self.lane.qpair.batcher().drained(shared.now);
        self.lane.check(shared.now)
    }

    /// Frames leave when the reactor flushes its ports.
    fn flush(&mut self, requests: &LaneRequests, shared: &mut Shared) -> Result<(), LinkError> {
        let built = self.lane.send(shared.now, &mut shared.ports, requests);
        self.stats.caravans += built.frames;
        self.stats.caravan_bytes += built.octets;
        Ok(())
    }

    fn move_to(&mut self, now: Instant, ports: &Ports, lanes: usize) {
        self.lane.move_to(now, ports, lanes);
    }

    fn past(&self) -> Option<PastLane> {
        Some(self.lane.past())
    }

    fn gathers(&mut self) -> bool {
        self.lane.qpair.batcher().gathers()
    }

    fn end(&mut self, shared: &mut Shared) {
        self.lane.leave(shared.now, &mut shared.ports);
    }

    fn part(&mut self, shared: &mut Shared) {
        self.end(shared);
    }

    fn stats(&self) -> LaneStats {
        self.stats.with_doorbells(self.lane.qpair.doorbells())
    }
}

/// What the reactor's ports bring to a lane.
impl Lane {
    fn ether(&mut self) -> Option<&mut EtherLink> {
        match &mut self.link {
            Some(Link::Ether(link)) => Some(link),
            _ => None,
        }
    }

    /// A frame for the lane has come.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        heard: &Heard<'_>,
        completions: &mut VecDeque<Completion>,
        in_flight: &mut u32,
    ) {
        if let Some(Link::Ether(link)) = &mut self.link
            && link.lane.token() == heard.header.token.get()
        {
            let before = link.in_flight();
            link.deliver(now, heard, &mut self.requests, completions);
            let ended = before.saturating_sub(link.in_flight());
            *in_flight = in_flight.saturating_sub(ended);
        }
    }

    /// A path to that target was found: perhaps one more link.
    pub(crate) fn offer(&mut self, now: Instant, found: &Found) {
        if let Some(link) = self.ether() {
            link.lane.offer(now, &found.endpoint, found.path, &found.addresses);
        }
    }

    /// Interfaces have come or gone.
    pub(crate) fn check_carriers(&mut self, shared: &Shared) {
        if let Some(link) = self.ether() {
            link.lane.check_carriers(shared.now, &shared.ports);
        }
    }

    /// Its parts of links, for other threads.
    pub(crate) fn write_paths(&self, ports: &Ports, counters: &LaneCounters) {
        if let Some(Link::Ether(link)) = &self.link {
            counters.write_paths(link.lane.paths(ports));
        }
    }
}
