//! A target's requests, by slot.

use crate::cut::PieceCut;
use crate::pack::{Item, PackedRequests};
use roadtrain_proto::policy::Urgency;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::{
    COMPLETION_RECORD_BYTES, CompletionRecord, GENERATION_MASK, RecordHead, RecordKind,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EtherTargetSlotState {
    /// The host has acknowledged the last response.
    Idle,
    /// A part of the request has not arrived.
    Receiving,
    /// The caller executes the request.
    Executing,
    /// Responded; the host may not have acknowledged all of it.
    Responding,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EtherTargetSlot {
    pub(super) generation: u32,
    pub(super) state: EtherTargetSlotState,
    pub(super) sqe: Sqe,
    pub(super) has_command: bool,
    /// True if data has arrived: `bytes` and `position` are known.
    pub(super) has_data: bool,
    pub(super) bytes: u32,
    pub(super) position: u32,
    pub(super) arrived: u16,
    /// Bytes of data that the host accepts, later those of the response.
    pub(super) room: u32,
    /// Bytes of data in the command's SGL: more than `room` if they exceed MDTS.
    pub(super) sgl_bytes: u32,
    pub(super) urgency: Urgency,
    /// True if the command specifies no urgency.
    pub(super) is_unclassed: bool,
    pub(super) status: Status,
    pub(super) result: u64,
    /// Records of the response that are not in a frame yet.
    pub(super) unsent: u16,
    /// Records of the response that the host has not acknowledged.
    pub(super) unacked: u16,
}

impl EtherTargetSlot {
    pub(super) fn new(generation: u32, state: EtherTargetSlotState) -> Self {
        EtherTargetSlot {
            generation,
            state,
            sqe: Sqe::default(),
            has_command: false,
            has_data: false,
            bytes: 0,
            position: 0,
            arrived: 0,
            room: 0,
            sgl_bytes: 0,
            urgency: Urgency::Normal,
            is_unclassed: false,
            status: Status::SUCCESS,
            result: 0,
            unsent: 0,
            unacked: 0,
        }
    }
}

pub(super) struct EtherTargetSlots {
    pub(super) slots: Vec<EtherTargetSlot>,
    pub(super) cut: PieceCut,
    pub(super) entries: u16,
    pub(super) sqhd: u16,
    pub(super) sq_flow_control: bool,
    pub(super) in_flight: u32,
}

impl EtherTargetSlots {
    pub(super) fn get(&self, number: u16) -> &EtherTargetSlot {
        &self.slots[usize::from(number)]
    }

    pub(super) fn get_mut(&mut self, number: u16) -> &mut EtherTargetSlot {
        &mut self.slots[usize::from(number)]
    }

    /// True if received data is still in use.
    pub(super) fn keeps_data(&self) -> bool {
        let keeps = |slot: &EtherTargetSlot| {
            slot.has_data
                && matches!(
                    slot.state,
                    EtherTargetSlotState::Receiving | EtherTargetSlotState::Executing
                )
        };
        self.slots.iter().any(keeps)
    }

    /// Drops requests that have arrived in part.
    pub(super) fn forget_begun(&mut self) {
        for slot in
            self.slots.iter_mut().filter(|slot| slot.state == EtherTargetSlotState::Receiving)
        {
            let generation = slot.generation.wrapping_sub(1) & GENERATION_MASK;
            *slot = EtherTargetSlot::new(generation, EtherTargetSlotState::Idle);
        }
    }

    /// Records an acknowledgement. Returns true if it was the last one of the slot's response.
    pub(super) fn acked(&mut self, item: Item) -> bool {
        let slot = self.get_mut(item.slot);
        if slot.generation != item.generation || slot.state != EtherTargetSlotState::Responding {
            return false;
        }
        slot.unacked -= 1;
        if slot.unacked > 0 {
            return false;
        }
        slot.state = EtherTargetSlotState::Idle;
        true
    }

    pub(super) fn count_command(&mut self) {
        self.in_flight += 1;
        if self.sq_flow_control {
            self.sqhd = (self.sqhd + 1) % self.entries;
        }
    }
}

impl PackedRequests for EtherTargetSlots {
    const TAIL_BYTES: usize = COMPLETION_RECORD_BYTES;

    fn is_pending(&self, item: Item) -> bool {
        let slot = self.get(item.slot);
        slot.generation == item.generation && slot.state == EtherTargetSlotState::Responding
    }

    fn data(&self, slot: u16) -> (u32, u32) {
        (self.get(slot).room, 0)
    }

    fn put_tail(&self, number: u16, out: &mut [u8]) {
        let slot = self.get(number);
        let mut cqe = Cqe::new(number, slot.status).with_result(slot.result);
        cqe.sqhd = self.sqhd.into();
        let kind = RecordKind::Completion;
        let completion = CompletionRecord {
            head: RecordHead::new(kind, COMPLETION_RECORD_BYTES, number, slot.generation),
            cqe,
            pieces: self.cut.pieces(slot.room).into(),
            reserved: [0; 6],
        };
        out.copy_from_slice(completion.as_bytes());
    }

    fn mark_framed(&mut self, item: Item) {
        let slot = self.get_mut(item.slot);
        slot.unsent -= 1;
        if slot.unsent == 0 {
            self.in_flight -= 1;
        }
    }
}
