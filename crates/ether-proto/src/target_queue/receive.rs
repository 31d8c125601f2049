//! Reception at the target.

use super::slots::{EtherTargetSlot, EtherTargetSlotState};
use super::{EtherTargetEvent, EtherTargetQpair};
use crate::pack::Item;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::qpair::urgency_of;
use roadtrain_wire::ether::{
    CargoRecord, CargoRecords, CommandRecord, DATA_IN, DataRecord, FrameHeader, FrameType,
    GENERATION_MASK, PAGE_BYTES, RecordHead,
};

impl EtherTargetQpair {
    /// Processes a frame of the lane: its header, type and body as `wire::ether::parse` found them.
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
        event: &mut impl FnMut(EtherTargetEvent),
    ) {
        let EtherTargetQpair { end, slots, released, .. } = self;
        let has_cargo = end.receive(now, header, kind, body, &mut |item: Item| {
            if slots.acked(item) {
                released.push(item.slot);
            }
        });
        for slot in self.released.drain(..) {
            event(EtherTargetEvent::Released { slot });
        }
        if has_cargo {
            self.handle_cargo(body, event);
        }
    }

    fn handle_cargo(&mut self, body: &[u8], event: &mut impl FnMut(EtherTargetEvent)) {
        for record in CargoRecords::new(body) {
            match record {
                Ok(CargoRecord::Data { data, start, bytes }) => {
                    self.handle_data(data, start, bytes.len(), event);
                }
                Ok(CargoRecord::Command(command)) => self.handle_command(command, event),
                Ok(CargoRecord::Completion(completion)) => {
                    self.end.rejected.records += 1;
                    self.end.break_off("records", "KIND", 3u64, Some(completion.head.slot.get()));
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

    /// Returns the slot of a record whose request is arriving; its first record begins the request.
    fn receiving(
        &mut self,
        head: &RecordHead,
        event: &mut impl FnMut(EtherTargetEvent),
    ) -> Option<u16> {
        let number = head.slot.get();
        let Some(slot) = self.slots.slots.get_mut(usize::from(number)) else {
            self.end.rejected.slots += 1;
            self.end.break_off("slots", "SLOT", number, Some(number));
            return None;
        };
        let (generation, next) = (head.generation(), (slot.generation + 1) & GENERATION_MASK);
        if generation == slot.generation {
            if slot.state == EtherTargetSlotState::Receiving {
                return Some(number);
            }
            self.end.rejected.late += 1;
            return None;
        }
        if generation != next {
            self.end.rejected.late += 1;
            return None;
        }
        match slot.state {
            EtherTargetSlotState::Idle => (),
            EtherTargetSlotState::Responding if slot.unsent == 0 => {
                event(EtherTargetEvent::Released { slot: number })
            }
            _ => {
                self.end.rejected.busy += 1;
                self.end.break_off("busy", "GENERATION", generation, Some(number));
                return None;
            }
        }
        *slot = EtherTargetSlot::new(generation, EtherTargetSlotState::Receiving);
        Some(number)
    }

    fn handle_data(
        &mut self,
        data: &DataRecord,
        start: usize,
        length: usize,
        event: &mut impl FnMut(EtherTargetEvent),
    ) {
        let (bytes, position) = (data.bytes.get(), data.position.get());
        let at = Some(data.head.slot.get());
        if bytes > self.data_bytes_max && !self.has_begun(&data.head) {
            // Its command fails with Invalid Field, which informs the host that the data was not taken.
            self.end.rejected.shapes += 1;
            return;
        }
        if bytes > self.data_bytes_max || !self.slots.cut.is_piece(data, length) {
            self.end.rejected.shapes += 1;
            return self.end.break_off("shapes", "INDEX", data.index.get(), at);
        }
        if !self.is_in_damq(position, bytes) {
            self.end.rejected.places += 1;
            return self.end.break_off("places", "POSITION", position, at);
        }
        let Some(number) = self.receiving(&data.head, event) else { return };
        let slot = self.slots.get_mut(number);
        if (slot.has_command || slot.has_data) && slot.bytes != bytes {
            self.end.rejected.shapes += 1;
            return self.end.break_off("shapes", "BYTES", bytes, at);
        }
        if (slot.has_command || slot.has_data) && slot.position != position {
            self.end.rejected.places += 1;
            return self.end.break_off("places", "POSITION", position, at);
        }
        if !slot.has_data {
            (slot.has_data, slot.bytes, slot.position) = (true, bytes, position);
            self.arrived.clear(number, data.pieces.get());
        }
        if !self.arrived.insert(number, data.index.get()) {
            self.end.rejected.repeated += 1;
            return;
        }
        slot.arrived += 1;
        let place = u64::from(position) * PAGE_BYTES as u64 + u64::from(data.offset.get());
        event(EtherTargetEvent::Data { slot: number, place, start, length: length as u32 });
        self.execute_if_all(number, event);
    }

    /// True if the record's request has arrived in part.
    fn has_begun(&self, head: &RecordHead) -> bool {
        let slot = self.slots.slots.get(usize::from(head.slot.get()));
        slot.is_some_and(|slot| {
            slot.generation == head.generation() && slot.state == EtherTargetSlotState::Receiving
        })
    }

    fn is_in_damq(&self, position: u32, bytes: u32) -> bool {
        u64::from(position) * PAGE_BYTES as u64 + u64::from(bytes) <= self.damq_bytes
    }

    fn handle_command(
        &mut self,
        command: &CommandRecord,
        event: &mut impl FnMut(EtherTargetEvent),
    ) {
        let (bytes, position) = (command.bytes.get(), command.position.get());
        let (room, bytes) = if bytes & DATA_IN != 0 { (bytes & !DATA_IN, 0) } else { (0, bytes) };
        let (cid, number) = (command.sqe.cid.get(), command.head.slot.get());
        if cid != number {
            self.end.rejected.unexpected += 1;
            return self.end.break_off("unexpected", "CID", cid, Some(number));
        }
        let is_too_large = bytes.max(room) > self.data_bytes_max;
        if bytes > 0 && !is_too_large && !self.is_in_damq(position, bytes) {
            self.end.rejected.places += 1;
            return self.end.break_off("places", "POSITION", position, Some(number));
        }
        let Some(number) = self.receiving(&command.head, event) else { return };
        let slot = self.slots.get_mut(number);
        if slot.has_command {
            self.end.rejected.repeated += 1;
        } else if slot.has_data && slot.bytes != bytes {
            self.end.rejected.shapes += 1;
            self.end.break_off("shapes", "BYTES", bytes, Some(number));
        } else if slot.has_data && slot.position != position {
            self.end.rejected.places += 1;
            self.end.break_off("places", "POSITION", position, Some(number));
        } else {
            slot.has_command = true;
            (slot.sqe, slot.position, slot.sgl_bytes) = (command.sqe, position, room);
            // Larger than MDTS: executed without its data, which fails it with Invalid Field.
            (slot.bytes, slot.room) = if is_too_large { (0, 0) } else { (bytes, room) };
            (slot.urgency, slot.is_unclassed) = urgency_of(&command.sqe, self.is_io, self.class);
            self.execute_if_all(number, event);
        }
    }

    /// Executes a request when its command and all its data have arrived.
    fn execute_if_all(&mut self, number: u16, event: &mut impl FnMut(EtherTargetEvent)) {
        let pieces = |bytes| self.slots.cut.pieces(bytes);
        let slot = self.slots.get(number);
        if !slot.has_command || slot.arrived < pieces(slot.bytes) {
            return;
        }
        let (data_bytes, room_bytes, mut sqe) = (slot.bytes, slot.room, slot.sqe);
        let place = u64::from(slot.position) * PAGE_BYTES as u64;
        if data_bytes > 0 {
            sqe.set_in_capsule(data_bytes);
        } else {
            sqe.set_transport(slot.sgl_bytes);
        }
        self.slots.get_mut(number).state = EtherTargetSlotState::Executing;
        self.slots.count_command();
        event(EtherTargetEvent::Command { slot: number, sqe, place, data_bytes, room_bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packing;
    use crate::links::LaneLinks;
    use crate::target_queue::EtherTargetConfig;
    use roadtrain_proto::policy::PolicyConfig;
    use roadtrain_wire::ether::{COMMAND_RECORD_BYTES, RecordKind};
    use roadtrain_wire::sqe::Sqe;
    use roadtrain_wire::zerocopy::IntoBytes;

    fn flush(generation: u32) -> Vec<u8> {
        let kind = RecordKind::Command;
        let head = RecordHead::new(kind, COMMAND_RECORD_BYTES, 0, generation);
        let command =
            CommandRecord { head, sqe: Sqe::new(0, 1), position: 0.into(), bytes: 0.into() };
        command.as_bytes().to_vec()
    }

    #[test]
    fn generations_come_round() {
        let config = EtherTargetConfig {
            slots: 1,
            pages: 1,
            piece_bytes: 4096,
            data_bytes_max: 4096,
            policy: PolicyConfig::none(),
            packing: Packing::default(),
            body_crc: false,
        };
        let mut qpair = EtherTargetQpair::new(config, LaneLinks::new(1, 2, 3));
        let mut executed = |generation, last| {
            *qpair.slots.get_mut(0) = EtherTargetSlot::new(last, EtherTargetSlotState::Idle);
            let mut count = 0;
            qpair.handle_cargo(&flush(generation), &mut |_| count += 1);
            count > 0
        };
        assert!(executed(GENERATION_MASK, GENERATION_MASK - 1));
        assert!(executed(0, GENERATION_MASK));
        assert!(executed(1, 0));
        assert!(!executed(1, GENERATION_MASK), "not any newer one");
        assert!(!executed(GENERATION_MASK, 0));
    }
}
