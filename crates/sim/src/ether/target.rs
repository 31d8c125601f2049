//! Target end of a lane, with its damq.

use super::cipher::{SimSeal, sealed};
use super::host::DATA_BYTES_MAX;
use super::settings::Sending;
use super::setup::EtherNetwork;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival, ConnectionLost};
use crate::transport::{LaneData, SimTargetEnd, TargetEndEvent};
use roadtrain_ether_proto::frame_writer::MemoryWriter;
use roadtrain_ether_proto::target_queue::{
    EtherTargetConfig, EtherTargetEvent, EtherTargetQpair, HostProbe,
};
use roadtrain_proto::policy::Class;
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution::{CommandPayload, SlotData};
use roadtrain_wire::ether::setup::LeaveReason;
use roadtrain_wire::ether::{FrameType, PAGE_BYTES, parse};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Target end of a lane.
pub struct TargetLink {
    /// The queue pair.
    pub qpair: EtherTargetQpair,
    /// True if its host has joined, and no event has reported that.
    is_new: bool,
    frames_per_send: usize,
    seal: Option<SimSeal>,
    damq: Vec<u8>,
    /// Commands with all their data, and the position of that in the damq; `None` where sealing begins.
    commands: VecDeque<Option<(u16, Sqe, Range<usize>)>>,
    /// Frames that were dropped before they were processed.
    refused: u64,
    /// Data of commands in execution, which must not move.
    lent: BTreeMap<u16, (Range<usize>, Vec<u8>)>,
}

impl TargetLink {
    pub(super) fn new(now: Instant, id: ConnId, network: &mut EtherNetwork) -> Self {
        let (links, entries) = network.links(now, id, ConnEnd::Target).expect("just accepted");
        let plan = &network.plan().ether;
        let Sending { policy, packing, frames_per_send } = plan.target;
        let config = EtherTargetConfig {
            slots: entries - 1,
            pages: plan.pages,
            piece_bytes: plan.piece_bytes,
            data_bytes_max: DATA_BYTES_MAX,
            policy,
            packing,
            body_crc: plan.body_crc,
        };
        TargetLink {
            qpair: EtherTargetQpair::new(config, links),
            is_new: true,
            frames_per_send,
            seal: None,
            refused: 0,
            damq: vec![0xdd; plan.pages as usize * PAGE_BYTES],
            commands: VecDeque::new(),
            lent: BTreeMap::new(),
        }
    }

    fn check_lent(&mut self, slot: u16) {
        if let Some((place, data)) = self.lent.remove(&slot) {
            assert!(self.damq[place] == data, "a write's pages were used before it was done");
        }
    }
}

impl SimTargetEnd for TargetLink {
    type Network = EtherNetwork;

    fn take(
        &mut self,
        now: Instant,
        arrival: ConnectionArrival,
        hold: &mut LaneData<'_>,
    ) -> Result<(), ConnectionLost> {
        let ConnectionArrival::Bytes(bytes) = arrival else { return Err(ConnectionLost) };
        let Ok((header, kind, body)) = parse(&bytes) else { return Ok(()) };
        if kind == FrameType::Query {
            self.qpair.end.links.acknowledge(now, header.link);
            return Ok(());
        }
        let TargetLink { qpair, damq, commands, seal, refused, .. } = self;
        let mut opened = vec![0; body.len()];
        let frame = (&header, kind, body);
        let Some(frame) = qpair.open(now, seal.as_mut(), frame, &mut opened) else {
            *refused += 1;
            return Ok(());
        };
        if frame.is_first {
            commands.push_back(None);
        }
        let body = frame.body;
        qpair.receive(now, &header, kind, body, &mut |event| match event {
            EtherTargetEvent::Data { place, start, length, .. } => {
                let length = length as usize;
                damq[place as usize..][..length].copy_from_slice(&body[start..][..length]);
            }
            EtherTargetEvent::Command { slot, sqe, place, data_bytes, .. } => {
                let place = place as usize..place as usize + data_bytes as usize;
                commands.push_back(Some((slot, sqe, place)));
            }
            EtherTargetEvent::Released { slot } => {
                hold.execution.release(slot, |buffer| hold.pool.give(buffer));
            }
        });
        if self.qpair.end.ended().is_some() { Err(ConnectionLost) } else { Ok(()) }
    }

    fn poll(
        &mut self,
        _now: Instant,
        hold: &mut LaneData<'_>,
    ) -> Result<Option<TargetEndEvent>, ConnectionLost> {
        if std::mem::take(&mut self.is_new) {
            return Ok(Some(TargetEndEvent::Initialized));
        }
        let Some(next) = self.commands.pop_front() else { return Ok(None) };
        let Some((slot, sqe, place)) = next else { return Ok(Some(TargetEndEvent::Sealed)) };
        let data = self.damq[place.clone()].to_vec();
        let payload = match data.len() {
            0 => CommandPayload::OnRequest,
            _ => CommandPayload::Here(hold.pool.copy(&data)),
        };
        self.lent.insert(slot, (place, data));
        Ok(Some(TargetEndEvent::Command(slot, sqe, payload)))
    }

    fn seal(&mut self, secret: &FrameSecret) {
        let links = &self.qpair.end.links;
        let keys = secret.keys(links.peer_token(), links.token());
        let seal = SimSeal::target(&keys, KeyLimits::TARGET).expect("it never fails");
        self.qpair.end.prove_leave(seal.proofs());
        self.seal = Some(seal);
    }

    fn end_turn(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut EtherNetwork,
        hold: &mut LaneData<'_>,
    ) {
        network.refused += std::mem::take(&mut self.refused);
        network.set_proof(id, self.qpair.end.proofs());
        let qpair = &mut self.qpair;
        qpair.end.expire(now);
        qpair.batcher().drained(now);
        loop {
            let mut writer = MemoryWriter::new(self.frames_per_send, |slot, out, offset| {
                let SlotData::Buffer(data) = hold.execution.data(slot) else {
                    panic!("data is kept until released")
                };
                out.copy_from_slice(&data[offset as usize..][..out.len()]);
            });
            if !qpair.poll_tx(now, &mut writer) {
                break;
            }
            network.net.send_frames(
                now,
                ConnEnd::Target,
                sealed(self.seal.as_mut(), writer.frames),
            );
        }
        assert!(!qpair.end.has_tx(now), "what may leave is left behind");
    }

    fn close(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut EtherNetwork,
        hold: &mut LaneData<'_>,
        _orderly: bool,
    ) {
        self.qpair.end.leave(LeaveReason::Shutdown);
        self.end_turn(now, id, network, hold);
        network.close(id, ConnEnd::Target);
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn deadline(&mut self) -> Option<Instant> {
        let EtherTargetQpair { end, host, .. } = &self.qpair;
        end.deadline().into_iter().chain(host.deadline()).min()
    }

    fn query_host(&mut self, now: Instant) -> HostProbe {
        self.qpair.host.probe(now, &mut self.qpair.end.links)
    }

    fn has_host_confirmed(&mut self) -> bool {
        self.qpair.host.has_replied(&self.qpair.end.links)
    }

    fn is_host_gone(&self, now: Instant) -> bool {
        self.qpair.host.is_over(now)
    }

    fn in_flight(&self) -> u32 {
        self.qpair.in_flight()
    }

    fn slot_of(&mut self, cid: u16) -> Option<u16> {
        self.qpair.slot_of(cid)
    }

    fn event_request_of(&mut self, cid: u16) -> Option<u16> {
        self.qpair.event_request_of(cid)
    }

    fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class) {
        self.qpair.set_connected(qid, entries, flow, class);
    }

    fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        self.check_lent(slot);
        self.qpair.respond(now, slot, status, result);
    }

    fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        self.check_lent(slot);
        self.qpair.respond_with_data(now, slot, bytes, result);
    }

    /// Refuses: data arrives with its command, or there is none.
    fn request_data(&mut self, now: Instant, slot: u16, _bytes: u32) {
        self.qpair.respond(now, slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), 0);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.qpair.set_class(slot, class);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        Some((self.qpair.slot_of(cid)?, false))
    }

    fn set_in_store(&mut self, commands: u32) {
        self.qpair.set_in_store(commands);
    }
}
