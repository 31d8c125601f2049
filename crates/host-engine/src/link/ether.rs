//! Lane over raw Ethernet.

use super::recording::record;
use super::{LaneShared, LinkError, LinkTransport};
use crate::api::IoCompletion;
use crate::commands::{CommandEnd, LinkCommands};
use crate::counters::MptcpSockets;
use crate::ether::{FoundPath, HostEtherLane, HostFrame, Ports, Survey};
use roadtrain_ether_proto::fence::EarlierLane;
use roadtrain_ether_proto::host_queue::EtherHostEvent;
use roadtrain_host_proto::qpair::{CommandTimestamps, CommandTransfer};
use roadtrain_proto::policy::{Batcher, PolicyConfig, Urgency};
use roadtrain_proto::recorder::FlightRecorder;
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::Batching;
use roadtrain_reactor::recorded::ConnectionInfo;
use roadtrain_wire::ether::FrameType;
use roadtrain_wire::sqe::{FUSE_SECOND, Sqe};
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::sync::Arc;

/// Lane, without the ports that it uses.
pub(crate) struct EtherLink {
    pub(crate) lane: HostEtherLane,
    seal_limits: KeyLimits,
    /// True for the admin queue, which queries the target's addresses.
    is_admin: bool,
    stats: Batching,
    line: Arc<ConnectionInfo>,
}

impl EtherLink {
    pub(crate) fn new(lane: HostEtherLane, seal_limits: KeyLimits, is_admin: bool) -> Self {
        let (stats, line) = Default::default();
        EtherLink { lane, seal_limits, is_admin, stats, line }
    }

    /// Handles a received frame of the lane.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        received: &HostFrame<'_>,
        commands: &mut impl LinkCommands,
        completions: &mut VecDeque<IoCompletion>,
        recorder: &mut FlightRecorder<Arc<ConnectionInfo>>,
    ) {
        let stats = &mut self.stats;
        let (mut to_record, mut has_sample) = (Vec::new(), false); // rarely any
        self.lane.deliver(now, received, &mut |body, event| match event {
            EtherHostEvent::Data { slot, offset, start, length } => {
                commands.fill(slot, offset, &body[start..start + length as usize]);
            }
            EtherHostEvent::Complete { slot, cqe, data_intact } => {
                // Frames are flushed before others are received: nothing refers to the buffer.
                let end = CommandEnd { cqe, data_intact, blocked: false };
                let Some(ended) = commands.end(slot, &end, now, completions) else { return };
                stats.requests += 1;
                stats.data_bytes += ended.bytes;
                let is_sample = !has_sample && recorder.until_sample(now) == 1;
                recorder.ended(1);
                has_sample |= is_sample;
                if is_sample || recorder.is_slow(ended.latency_ns) {
                    to_record.push((slot, cqe.status(), ended.latency_ns, is_sample));
                }
            }
        });
        for (slot, status, latency_ns, is_sample) in to_record {
            self.record_request(recorder, (slot, status), (now, latency_ns), is_sample);
        }
    }

    /// Records a request. Its frames may have been sent more than once, so the send time is not recorded.
    #[cold]
    fn record_request(
        &self,
        recorder: &mut FlightRecorder<Arc<ConnectionInfo>>,
        (slot, status): (u16, Status),
        (now, latency_ns): (Instant, u64),
        is_sample: bool,
    ) {
        let (sqe, data, submitted) = self.lane.qpair.command(slot);
        let timestamps = CommandTimestamps { submitted, sent: submitted, data: Instant::default() };
        let record = record(&self.line, (sqe, data), status, timestamps, (now, latency_ns));
        if recorder.is_slow(latency_ns) {
            recorder.slow(now, record.clone());
        }
        if is_sample {
            recorder.sample(now, record);
        }
    }
}

impl LinkTransport for EtherLink {
    fn room(&self) -> u32 {
        self.lane.qpair.room()
    }

    fn in_flight(&self) -> u32 {
        self.lane.qpair.in_flight()
    }

    fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        urgency: Urgency,
    ) -> Option<u16> {
        self.stats.caravan_requests += 1;
        self.lane.qpair.submit(now, sqe, data, urgency)
    }

    /// Submits the Write alone: frames arrive in any order, so commands are not fused, and the target refuses this one.
    fn submit_fused(
        &mut self,
        now: Instant,
        (_, second): (&Sqe, &Sqe),
        bytes: u32,
        urgency: Urgency,
    ) -> Option<u16> {
        let alone = Sqe { flags: second.flags | FUSE_SECOND, ..*second };
        self.submit(now, &alone, CommandTransfer::Out(bytes), urgency)
    }

    fn fuses(&self) -> bool {
        false
    }

    fn cid(&self, slot: u16) -> u16 {
        self.lane.qpair.cid(slot)
    }

    fn batcher(&mut self) -> &mut Batcher {
        self.lane.qpair.batcher()
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.lane.deadline(self.is_admin)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.lane.qpair.end.has_tx(now)
    }

    fn end_turn(&mut self, shared: &mut LaneShared) -> Result<(), LinkError> {
        self.lane.keep(shared.now, &mut shared.ports, self.is_admin);
        self.lane.qpair.batcher().drained(shared.now);
        self.lane.check(shared.now)
    }

    /// Builds frames; they are sent when the reactor flushes its ports.
    fn flush(
        &mut self,
        commands: &impl LinkCommands,
        shared: &mut LaneShared,
    ) -> Result<(), LinkError> {
        let (ports, cells) = (&mut shared.ports, Some(&*shared.cells));
        let built = self.lane.send(shared.now, ports, commands, cells);
        self.stats.caravans += built.frames;
        self.stats.caravan_bytes += built.bytes;
        Ok(())
    }

    fn begin(&mut self, _: u32, policy: PolicyConfig) {
        self.lane.qpair.set_policy(policy);
    }

    fn receive_frame(
        &mut self,
        now: Instant,
        received: &HostFrame<'_>,
        commands: &mut impl LinkCommands,
        completions: &mut VecDeque<IoCompletion>,
        recorder: &mut FlightRecorder<Arc<ConnectionInfo>>,
    ) {
        if received.kind == FrameType::Offer {
            self.lane.receive_offer(now, received);
        } else if received.header.token.get() == self.lane.token() {
            self.deliver(now, received, commands, completions, recorder);
        }
    }

    fn check_carriers(&mut self, shared: &LaneShared) {
        self.lane.check_carriers(shared.now, &shared.ports);
    }

    fn offer(&mut self, now: Instant, found: &FoundPath) {
        self.lane.offer(now, &found.endpoint, found.path, &found.addresses);
    }

    fn has_news(&self) -> bool {
        self.lane.has_news()
    }

    fn take_survey(&mut self) -> Option<Survey> {
        self.lane.take_survey()
    }

    fn seal(&mut self, secret: &FrameSecret) -> Result<(), LinkError> {
        self.lane.seal(secret, self.seal_limits)
    }

    fn data_bytes_max(&self) -> u32 {
        self.lane.qpair.data_bytes_max() & !4095
    }

    fn shift(&mut self, ports: usize) {
        self.lane.shift(ports);
    }

    fn move_to(&mut self, now: Instant, ports: &Ports, lanes: usize) {
        self.lane.move_to(now, ports, lanes);
    }

    fn earlier(&self) -> Option<EarlierLane> {
        Some(self.lane.earlier())
    }

    fn gathers(&mut self) -> bool {
        self.lane.qpair.batcher().gathers()
    }

    fn end(&mut self, shared: &mut LaneShared) {
        self.lane.leave(shared.now, &mut shared.ports);
    }

    fn shut_down(&mut self, shared: &mut LaneShared) {
        self.end(shared);
    }

    fn set_line(&mut self, line: ConnectionInfo) {
        self.line = Arc::new(line);
    }

    fn list_socket(&mut self, _sockets: &Arc<MptcpSockets>) {}

    fn count_on(&mut self, earlier: Batching) {
        self.stats += earlier;
    }

    fn batching(&self) -> Batching {
        self.stats.with_doorbells(self.lane.qpair.end.doorbells())
    }
}
