//! A host's requests, by slot.

use crate::pack::{Item, PackedRequests};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::{COMMAND_RECORD_BYTES, CommandRecord, DATA_IN, RecordHead, RecordKind};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::IntoBytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EtherHostSlotState {
    Free,
    /// Waiting for pages of the damq or for its frame: the target cannot know it yet.
    Queued,
    /// Sent, and waiting for its completion.
    Active,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EtherHostSlot {
    pub(super) sqe: Sqe,
    pub(super) data: CommandTransfer,
    pub(super) state: EtherHostSlotState,
    pub(super) generation: u32,
    pub(super) urgency: Urgency,
    /// First page in the damq.
    pub(super) position: u32,
    /// Bytes that the target sends, as stated in its data records.
    pub(super) bytes: Option<u32>,
    pub(super) arrived: u16,
    pub(super) completion: Option<(Cqe, u16)>,
    pub(super) submitted: Instant,
}

impl EtherHostSlot {
    pub(super) fn new(sqe: Sqe, data: CommandTransfer, urgency: Urgency) -> Self {
        EtherHostSlot {
            sqe,
            data,
            state: EtherHostSlotState::Free,
            generation: 0,
            urgency,
            position: 0,
            bytes: None,
            arrived: 0,
            completion: None,
            submitted: Instant::default(),
        }
    }
}

pub(super) struct EtherHostSlots(pub(super) Vec<EtherHostSlot>);

impl EtherHostSlots {
    pub(super) fn get(&self, number: u16) -> &EtherHostSlot {
        &self.0[usize::from(number)]
    }

    pub(super) fn get_mut(&mut self, number: u16) -> &mut EtherHostSlot {
        &mut self.0[usize::from(number)]
    }
}

impl PackedRequests for EtherHostSlots {
    const TAIL_BYTES: usize = COMMAND_RECORD_BYTES;

    fn is_pending(&self, item: Item) -> bool {
        let slot = self.get(item.slot);
        slot.generation == item.generation && slot.state != EtherHostSlotState::Free
    }

    fn data(&self, slot: u16) -> (u32, u32) {
        let slot = self.get(slot);
        (slot.data.out_bytes(), slot.position)
    }

    fn put_tail(&self, number: u16, out: &mut [u8]) {
        let slot = self.get(number);
        let bytes = match slot.data {
            CommandTransfer::None => 0,
            CommandTransfer::In(bytes) => bytes | DATA_IN,
            CommandTransfer::Out(bytes) => bytes,
        };
        let kind = RecordKind::Command;
        let command = CommandRecord {
            head: RecordHead::new(kind, COMMAND_RECORD_BYTES, number, slot.generation),
            sqe: slot.sqe,
            position: slot.position.into(),
            bytes: bytes.into(),
        };
        out.copy_from_slice(command.as_bytes());
    }

    fn mark_framed(&mut self, item: Item) {
        if item.piece().is_none() {
            self.get_mut(item.slot).state = EtherHostSlotState::Active;
        }
    }
}
