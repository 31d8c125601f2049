//! Target end of a TCP connection: queue pair, received bytes, and the caravan in flight.

use crate::ends::{ConnEnd, ConnId, ConnectionArrival, ConnectionLost};
use crate::network::Network;
use crate::plan::SimPlan;
use crate::transport::{LaneData, SimTargetEnd, TargetEndEvent};
use crate::wire::TcpWire;
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution::{CommandPayload, SlotData};
use roadtrain_target_proto::qpair::{TargetQpair, TargetRxEvent};
use roadtrain_wire::status::Status;
use std::borrow::Cow;

/// Target end of a connection.
pub struct TcpTargetEnd {
    wire: TcpWire,
    qpair: TargetQpair,
    /// Received bytes that are not offered yet.
    input: Vec<u8>,
    /// Bytes that are offered to the queue pair, from `at` on.
    offered: Vec<u8>,
    at: usize,
    /// Unsent rest of the present caravan.
    outbox: Vec<u8>,
    placed: bool,
    caravan_parts: usize,
}

impl TcpTargetEnd {
    /// Wraps an accepted connection; with `placed` data is received directly into its destination.
    #[must_use]
    pub fn new(plan: &SimPlan, id: ConnId, placed: bool) -> Self {
        TcpTargetEnd {
            wire: TcpWire::new(plan, id, ConnEnd::Target),
            qpair: TargetQpair::new(plan.target),
            input: Vec::new(),
            offered: Vec::new(),
            at: 0,
            outbox: Vec::new(),
            placed,
            caravan_parts: plan.caravan_parts,
        }
    }

    /// Moves received bytes to their destination, if placement is on and there is one, or to the queue pair.
    fn offer(&mut self, hold: &mut LaneData<'_>) {
        // A part of a block that was offered already precedes the bytes received next.
        let is_aligned = self.placed && self.at == self.offered.len();
        let whole = self.qpair.wanted_whole(self.input.len()).filter(|_| is_aligned);
        if let Some((slot, offset, length)) = whole
            && let SlotData::InPlace(place) = hold.execution.data_mut(slot)
        {
            let data: Vec<u8> = self.input.drain(..length as usize).collect();
            hold.disk.put(place.offset + u64::from(offset), &data);
            return self.qpair.placed(&data);
        }
        let wanted = self.qpair.wanted().filter(|_| self.placed);
        if let Some((slot, offset, length)) = wanted
            && let SlotData::Buffer(buffer) = hold.execution.data_mut(slot)
        {
            let length = self.input.len().min(length as usize);
            let data: Vec<u8> = self.input.drain(..length).collect();
            buffer[offset as usize..][..length].copy_from_slice(&data);
            return self.qpair.placed(&data);
        }
        // With placement, at most a header at once, so that the queue pair names the destination of data.
        let length = if self.placed { self.input.len().min(24) } else { self.input.len() };
        self.offered.drain(..std::mem::take(&mut self.at));
        self.offered.extend(self.input.drain(..length));
    }
}

impl SimTargetEnd for TcpTargetEnd {
    type Network = Network;

    fn keeps_order(&self) -> bool {
        true
    }

    fn take(
        &mut self,
        now: Instant,
        arrival: ConnectionArrival,
        _hold: &mut LaneData<'_>,
    ) -> Result<(), ConnectionLost> {
        let ConnectionArrival::Bytes(bytes) = arrival else { return Err(ConnectionLost) };
        self.input.extend(self.wire.receive(now, bytes));
        Ok(())
    }

    fn poll(
        &mut self,
        now: Instant,
        hold: &mut LaneData<'_>,
    ) -> Result<Option<TargetEndEvent>, ConnectionLost> {
        loop {
            let fill = |slot, offset, data: &[u8]| match hold.execution.data_mut(slot) {
                SlotData::Buffer(buffer) => {
                    buffer[offset as usize..][..data.len()].copy_from_slice(data);
                }
                SlotData::InPlace(place) => hold.disk.put(place.offset + u64::from(offset), data),
                _ => {}
            };
            let event = self.qpair.poll_rx(now, &self.offered, &mut self.at, fill);
            let event = event.map_err(|_| ConnectionLost)?;
            return Ok(Some(match event {
                Some(TargetRxEvent::Initialized) => TargetEndEvent::Initialized,
                Some(TargetRxEvent::Command { slot, sqe, in_capsule_bytes }) => {
                    let payload = match in_capsule_bytes {
                        0 => CommandPayload::OnRequest,
                        bytes => CommandPayload::Follows(bytes),
                    };
                    TargetEndEvent::Command(slot, *sqe, payload)
                }
                Some(TargetRxEvent::SplitBlock { slot, offset }) => {
                    TargetEndEvent::SplitBlock(slot, offset)
                }
                Some(TargetRxEvent::DataDone { slot, intact }) => {
                    TargetEndEvent::DataDone(slot, intact)
                }
                None if self.input.is_empty() => return Ok(None),
                None => {
                    self.offer(hold);
                    continue;
                }
            }));
        }
    }

    fn end_turn(
        &mut self,
        now: Instant,
        _: ConnId,
        network: &mut Network,
        hold: &mut LaneData<'_>,
    ) {
        self.qpair.batcher().expire(now);
        self.qpair.batcher().drained(now);
        loop {
            let sent = self.wire.send(now, network, &self.outbox);
            self.outbox.drain(..sent);
            if !self.outbox.is_empty() {
                return;
            }
            self.qpair
                .sent(|slot, _, _| hold.execution.release(slot, |buffer| hold.pool.give(buffer)));
            let mut caravan = Manifest::with_capacity(self.caravan_parts);
            if !self.qpair.poll_tx(&mut caravan) {
                break;
            }
            self.outbox = caravan.bytes(|slot| match hold.execution.data(slot) {
                SlotData::Buffer(buffer) => Cow::Borrowed(&buffer[..]),
                SlotData::InPlace(place) => Cow::Owned(hold.disk.bytes(place.offset, place.length)),
                _ => Cow::Borrowed(&[][..]),
            });
        }
        assert!(!self.qpair.has_tx(), "released work is left behind");
        let batcher = self.qpair.batcher();
        let has_wake_up = batcher.deadline().is_some_and(|deadline| deadline > now);
        assert!(batcher.backlog().requests == 0 || has_wake_up, "held work without a wake-up");
    }

    fn close(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut Network,
        hold: &mut LaneData<'_>,
        orderly: bool,
    ) {
        if orderly {
            self.end_turn(now, id, network, hold);
        }
        self.wire.close(now, network, orderly);
    }

    fn is_blocked(&self) -> bool {
        !self.outbox.is_empty() || self.wire.is_blocked()
    }

    fn ends(&mut self) -> bool {
        self.wire.ends()
    }

    fn deadline(&mut self) -> Option<Instant> {
        self.qpair.batcher().deadline()
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
        self.qpair.respond(now, slot, status, result);
    }

    fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64) {
        self.qpair.respond_with_data(now, slot, bytes, result);
    }

    fn request_data(&mut self, now: Instant, slot: u16, bytes: u32) {
        self.qpair.request_data(now, slot, bytes);
    }

    fn set_class(&mut self, slot: u16, class: Class) {
        self.qpair.set_class(slot, class);
    }

    fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        self.qpair.deliver_whole(slot, block_bytes);
    }

    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)> {
        self.qpair.unanswered(cid)
    }

    fn awaits_data(&mut self, slot: u16) -> bool {
        self.qpair.awaits_data(slot)
    }

    fn has_data_digest(&self) -> bool {
        self.qpair.digests().data
    }

    fn set_in_store(&mut self, commands: u32) {
        self.qpair.set_in_store(commands);
    }
}
