//! A lane straight on Ethernet.

use super::LinkError;
use crate::host::api::Completion;
use crate::host::ether::{EtherLane, Heard, Ports, Source};
use crate::host::requests::{Ending, LaneRequests};
use crate::stats::LaneStats;
use roadtrain_proto::ether::host::RxEvent;
use roadtrain_proto::time::Instant;
use std::collections::VecDeque;

/// A lane of a reactor's ports.
pub(crate) struct EtherLink {
    pub(crate) lane: EtherLane,
    pub(super) stats: LaneStats,
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

    pub(super) fn end_turn(&mut self, now: Instant, ports: &mut Ports) -> Result<(), LinkError> {
        self.lane.keep(now, ports, false);
        self.lane.qpair.batcher().drained(now);
        self.lane.check(now)
    }

    pub(super) fn flush(&mut self, now: Instant, requests: &LaneRequests, ports: &mut Ports) {
        let built = self.lane.send(now, ports, requests);
        self.stats.caravans += built.frames;
        self.stats.caravan_bytes += built.octets;
    }

    pub(super) fn stats(&self) -> LaneStats {
        self.stats.with_doorbells(self.lane.qpair.doorbells())
    }
}
