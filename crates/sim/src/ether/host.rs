//! Host end of a lane.

use super::cipher::{SimSeal, sealed};
use super::settings::Sending;
use super::setup::EtherNetwork;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival, ConnectionLost};
use crate::plan::NQN;
use crate::request::LoadRequest;
use crate::transport::{CompletedCommand, SimHostEnd};
use core::time::Duration;
use roadtrain_ether_proto::frame_writer::MemoryWriter;
use roadtrain_ether_proto::host_queue::{EtherHostConfig, EtherHostEvent, EtherHostQpair};
use roadtrain_ether_proto::liveness::{LaneLoss, Liveness};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::RequestQueue;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::parse;
use roadtrain_wire::ether::setup::LeaveReason;
use roadtrain_wire::sqe::Sqe;

/// Longest data of a request in bytes.
pub const DATA_BYTES_MAX: u32 = 1 << 17;

/// Time without any frame after which a lane is lost.
const SILENCE: Duration = Duration::from_secs(30);

/// Host end of a lane.
pub struct HostLink {
    /// The lane.
    pub id: ConnId,
    /// Queue pair, once the target has joined.
    pub qpair: Option<EtherHostQpair>,
    is_admin: bool,
    /// Check that the target still has the lane.
    liveness: Liveness,
    /// True once the loss of the lane was reported.
    is_over: bool,
    frames_per_send: usize,
    seal: Option<SimSeal>,
    buffers: Vec<Vec<u8>>,
}

impl HostLink {
    pub(super) fn new(id: ConnId, is_admin: bool) -> Self {
        let liveness = Liveness::new(Instant(0), SILENCE);
        let (qpair, buffers) = (None, Vec::new());
        HostLink {
            id,
            qpair,
            is_admin,
            liveness,
            is_over: false,
            frames_per_send: 0,
            seal: None,
            buffers,
        }
    }

    /// Takes over the lane once the target has joined.
    fn join(&mut self, now: Instant, network: &mut EtherNetwork) {
        let Some((links, queue_entries)) = network.links(now, self.id, ConnEnd::Host) else {
            return;
        };
        let whole = network.plan();
        let plan = &whole.ether;
        let Sending { packing, frames_per_send, .. } = plan.host;
        let config = EtherHostConfig {
            queue_entries,
            pages: plan.pages,
            piece_bytes: plan.piece_bytes,
            data_bytes_max: DATA_BYTES_MAX,
            policy: PolicyConfig::none(),
            packing,
            body_crc: plan.body_crc,
        };
        let silence_max = match whole.keep_alive {
            keep_alive if self.is_admin && !keep_alive.is_zero() => keep_alive,
            _ => SILENCE,
        };
        self.liveness = Liveness::new(now, silence_max);
        self.frames_per_send = frames_per_send;
        self.buffers = vec![Vec::new(); usize::from(queue_entries)];
        self.qpair = Some(EtherHostQpair::new(config, links));
    }
}

impl RequestQueue<LoadRequest> for HostLink {
    fn room(&self) -> u32 {
        self.qpair.as_ref().map_or(0, EtherHostQpair::room)
    }

    fn in_flight(&self) -> u32 {
        self.qpair.as_ref().map_or(0, EtherHostQpair::in_flight)
    }

    fn submit(&mut self, now: Instant, request: &mut LoadRequest) -> Option<u16> {
        let qpair = self.qpair.as_mut()?;
        let slot = qpair.submit(now, &request.sqe, request.data, request.urgency)?;
        self.buffers[usize::from(slot)] = std::mem::take(&mut request.buffer);
        Some(slot)
    }
}

impl SimHostEnd for HostLink {
    type Network = EtherNetwork;

    fn opened(&self) -> Option<u32> {
        self.qpair.as_ref().map(EtherHostQpair::data_bytes_max)
    }

    fn set_policy(&mut self, policy: PolicyConfig) {
        self.qpair.iter_mut().for_each(|qpair| qpair.set_policy(policy));
    }

    fn cid(&self, slot: u16) -> u16 {
        self.qpair.as_ref().map_or(0, |qpair| qpair.cid(slot))
    }

    fn deadline(&mut self) -> Option<Instant> {
        let qpair = self.qpair.as_ref().filter(|_| !self.is_over)?;
        let alive = self.liveness.deadline(self.is_admin, &qpair.end.links);
        qpair.end.deadline().into_iter().chain([alive]).min()
    }

    fn run(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        buffer: Vec<u8>,
    ) -> Option<u16> {
        let slot = self.qpair.as_mut()?.submit(now, sqe, data, Urgency::Urgent)?;
        self.buffers[usize::from(slot)] = buffer;
        Some(slot)
    }

    fn take_buffer(&mut self, slot: u16) -> Vec<u8> {
        std::mem::take(&mut self.buffers[usize::from(slot)])
    }

    fn receive(
        &mut self,
        now: Instant,
        network: &mut EtherNetwork,
        completed: &mut Vec<CompletedCommand>,
    ) -> Result<(), ConnectionLost> {
        if self.qpair.is_none() {
            network.prepare(now, self.id)?;
            self.join(now, network);
        }
        while let Some(arrival) = network.receive(now, self.id, ConnEnd::Host) {
            let ConnectionArrival::Bytes(bytes) = arrival else { return Err(ConnectionLost) };
            let HostLink { qpair: Some(qpair), liveness, seal, buffers, .. } = self else {
                continue;
            };
            let Ok((header, kind, body)) = parse(&bytes) else { continue };
            let mut opened = vec![0; body.len()];
            let frame = (&header, kind, body);
            let Some(frame) = qpair.end.open(now, seal.as_mut(), frame, &mut opened) else {
                network.refused += 1;
                continue;
            };
            if !liveness.receive(now, kind, frame, &qpair.end.links) {
                continue;
            }
            let body = frame.body;
            qpair.receive(now, &header, kind, body, &mut |event| match event {
                EtherHostEvent::Data { slot, offset, start, length } => {
                    buffers[usize::from(slot)][offset as usize..][..length as usize]
                        .copy_from_slice(&body[start..][..length as usize]);
                }
                EtherHostEvent::Complete { slot, cqe, data_intact } => {
                    let data = std::mem::take(&mut buffers[usize::from(slot)]);
                    completed.push(CompletedCommand { slot, cqe, data_intact, data });
                }
            });
        }
        let Some(qpair) = &self.qpair else { return Ok(()) };
        let gone = self.liveness.loss(now);
        let is_over = qpair.end.ended().is_some() || gone.is_some();
        if !is_over || std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        network.silent += u64::from(gone == Some(LaneLoss::Silent) && now < network.echo_until);
        Err(ConnectionLost)
    }

    fn seal(&mut self, secret: &FrameSecret) {
        let Some(qpair) = &mut self.qpair else { return };
        let links = &qpair.end.links;
        let keys = secret.keys(links.token(), links.peer_token());
        let seal = SimSeal::host(&keys, KeyLimits::HOST).expect("it never fails");
        qpair.set_sealed(seal.proofs());
        self.seal = Some(seal);
    }

    fn end_turn(&mut self, now: Instant, network: &mut EtherNetwork) {
        let HostLink { qpair: Some(qpair), liveness, seal, buffers, .. } = self else { return };
        qpair.end.expire(now);
        if let Some((header, body)) = liveness.query(now, self.is_admin, &qpair.end.links, NQN) {
            network.query(now, self.id, header, &body);
        }
        qpair.batcher().drained(now);
        loop {
            let mut writer = MemoryWriter::new(self.frames_per_send, |slot, out, offset| {
                let data = &buffers[usize::from(slot)][offset as usize..];
                out.copy_from_slice(&data[..out.len()]);
            });
            if !qpair.poll_tx(now, &mut writer) {
                break;
            }
            network.net.send_frames(now, ConnEnd::Host, sealed(seal.as_mut(), writer.frames));
        }
        assert!(!qpair.end.has_tx(now), "what may leave is left behind");
    }

    fn close(&mut self, now: Instant, network: &mut EtherNetwork, _orderly: bool) {
        self.qpair.iter_mut().for_each(|qpair| qpair.end.leave(LeaveReason::Done));
        self.end_turn(now, network);
        network.close(self.id, ConnEnd::Host);
    }

    /// Ends without a notice to the target.
    fn kill(&mut self, _now: Instant, network: &mut EtherNetwork) {
        network.close(self.id, ConnEnd::Host);
    }
}
