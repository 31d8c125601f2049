//! Reception at the host.

use super::slots::EtherHostSlotState;
use super::{EtherHostEvent, EtherHostQpair, pages};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{
    self, CargoRecord, CargoRecords, CompletionRecord, FrameHeader, FrameType, RecordHead,
};

impl EtherHostQpair {
    /// Processes a frame of the lane: its header, type and body as `wire::ether::parse` found them.
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
        event: &mut impl FnMut(EtherHostEvent),
    ) {
        if self.end.receive(now, header, kind, body, &mut |_| ()) {
            self.handle_cargo(now, body, event);
        }
    }

    fn handle_cargo(&mut self, now: Instant, body: &[u8], event: &mut impl FnMut(EtherHostEvent)) {
        for record in CargoRecords::new(body) {
            match record {
                Ok(CargoRecord::Data { data, start, bytes }) => {
                    self.handle_data(now, data, start, bytes.len(), event);
                }
                Ok(CargoRecord::Completion(completion)) => {
                    self.handle_completion(now, completion, event)
                }
                Ok(CargoRecord::Command(command)) => {
                    self.end.rejected.records += 1;
                    self.end.break_off("records", "KIND", 1u64, Some(command.head.slot.get()));
                }
                Err(error) => {
                    self.end.rejected.records += 1;
                    self.end.break_off("records", error.field, error.value, None);
                }
            }
            if self.end.ended().is_some() {
                return;
            }
        }
    }

    /// Returns the slot of a record whose request was sent and is not complete.
    fn active(&mut self, head: &RecordHead) -> Option<u16> {
        let number = head.slot.get();
        let Some(slot) = self.slots.0.get(usize::from(number)) else {
            self.end.rejected.slots += 1;
            self.end.break_off("slots", "SLOT", number, Some(number));
            return None;
        };
        if slot.generation != head.generation() || slot.state == EtherHostSlotState::Free {
            self.end.rejected.late += 1;
        } else if slot.state == EtherHostSlotState::Queued {
            self.end.rejected.unexpected += 1;
            self.end.break_off("unexpected", "GENERATION", head.generation(), Some(number));
        } else {
            return Some(number);
        }
        None
    }

    fn handle_data(
        &mut self,
        now: Instant,
        data: &ether::DataRecord,
        start: usize,
        length: usize,
        event: &mut impl FnMut(EtherHostEvent),
    ) {
        let Some(number) = self.active(&data.head) else { return };
        let cut = self.end.packer.cut;
        let slot = self.slots.get_mut(number);
        let CommandTransfer::In(expected) = slot.data else {
            self.end.rejected.directions += 1;
            return self.end.break_off("directions", "BYTES", data.bytes.get(), Some(number));
        };
        let bytes = data.bytes.get();
        let is_of_response = slot.bytes.is_none_or(|sized| sized == bytes)
            && slot.completion.is_none_or(|(_, pieces)| pieces == data.pieces.get());
        if !cut.is_piece(data, length) || bytes > expected || !is_of_response {
            self.end.rejected.shapes += 1;
            return self.end.break_off("shapes", "INDEX", data.index.get(), Some(number));
        }
        if slot.bytes.is_none() {
            slot.bytes = Some(bytes);
            self.arrived.clear(number, data.pieces.get());
        }
        if !self.arrived.insert(number, data.index.get()) {
            self.end.rejected.repeated += 1;
            return;
        }
        slot.arrived += 1;
        let (offset, length) = (data.offset.get(), length as u32);
        event(EtherHostEvent::Data { slot: number, offset, start, length });
        self.finish_if_all(now, number, event);
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: &CompletionRecord,
        event: &mut impl FnMut(EtherHostEvent),
    ) {
        let Some(number) = self.active(&completion.head) else { return };
        let cut = self.end.packer.cut;
        let (cqe, pieces) = (completion.cqe, completion.pieces.get());
        let slot = self.slots.get_mut(number);
        let fits = match (slot.bytes, slot.data) {
            (Some(bytes), _) => pieces == cut.pieces(bytes),
            (None, CommandTransfer::In(expected)) => pieces <= cut.pieces(expected),
            (None, _) => pieces == 0,
        };
        if slot.completion.is_some() {
            self.end.rejected.repeated += 1;
        } else if cqe.cid.get() != number {
            self.end.rejected.unexpected += 1;
            self.end.break_off("unexpected", "CID", cqe.cid.get(), Some(number));
        } else if !fits {
            self.end.rejected.shapes += 1;
            self.end.break_off("shapes", "PIECES", pieces, Some(number));
        } else {
            slot.completion = Some((cqe, pieces));
            self.finish_if_all(now, number, event);
        }
    }

    /// Completes the command when its completion and all data that belongs to it have arrived.
    fn finish_if_all(&mut self, now: Instant, number: u16, event: &mut impl FnMut(EtherHostEvent)) {
        let slot = self.slots.get_mut(number);
        let Some((cqe, _)) = slot.completion.filter(|&(_, pieces)| pieces == slot.arrived) else {
            return;
        };
        slot.state = EtherHostSlotState::Free;
        let data_intact = match slot.data {
            CommandTransfer::In(expected) => slot.bytes.unwrap_or(0) == expected,
            CommandTransfer::None | CommandTransfer::Out(_) => true,
        };
        let (data, position) = (slot.data, slot.position);
        self.free.give(number);
        self.count_in_flight();
        self.end.out.batcher_mut().completed(now, data.bytes());
        if data.out_bytes() > 0 {
            self.damq.give(position, pages(data.out_bytes()));
            self.place_waiting(now);
        }
        event(EtherHostEvent::Complete { slot: number, cqe, data_intact });
    }
}
