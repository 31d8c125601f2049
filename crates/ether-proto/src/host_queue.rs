//! The host's end of a lane: commands and data out, completions and data in (docs/reference/ethernet.md).
//!
//! Sans-IO, the counterpart of [`roadtrain_host_proto::qpair`]. The caller offers frames of the lane to
//! [`EtherHostQpair::receive`] and takes frames from [`EtherHostQpair::poll_tx`]. A command occupies a *slot* from [`EtherHostQpair::submit`] to
//! [`EtherHostEvent::Complete`]; the caller keeps the slot's data buffer. Each slot completes exactly once.

mod receive;
mod slots;

use crate::cut::{Arrived, PieceCut};
use crate::damq::DamqPages;
use crate::end::LaneEnd;
use crate::frame_writer::FrameWriter;
use crate::links::LaneLinks;
use crate::pack::{FramePacker, Item, Packing, RequestPart};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{
    Batcher, PduInfo, PduKind, PolicyConfig, PolicyRole, SendQueue, Urgency,
};
use roadtrain_proto::seal::Proofs;
use roadtrain_proto::slots::{FreeSlots, SLOTS_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::{GENERATION_MASK, PAGE_BYTES};
use roadtrain_wire::sqe::Sqe;
use slots::{EtherHostSlot, EtherHostSlotState, EtherHostSlots};
use std::collections::VecDeque;

/// Parameters that the ends of a lane have agreed on, and the host's policy for sending.
#[derive(Clone, Copy, Debug)]
pub struct EtherHostConfig {
    /// Entries of the queue, at most the lane's SLOTS and [`SLOTS_MAX`]; one less than this many commands may be in
    /// flight.
    pub queue_entries: u16,
    /// PAGES of the target's damq.
    pub pages: u32,
    pub piece_bytes: u16,
    /// Most bytes of a command's data; the damq or the number of pieces may limit it further.
    pub data_bytes_max: u32,
    pub policy: PolicyConfig,
    /// Limits of a frame's contents.
    pub packing: Packing,
    /// True if frames carry a checksum of their body.
    pub body_crc: bool,
}

/// An event of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtherHostEvent {
    /// Data of the slot: `length` bytes of the frame's body from `start`.
    Data {
        slot: u16,
        /// Offset in the slot's buffer.
        offset: u32,
        /// Offset in the body.
        start: usize,
        /// Number of bytes.
        length: u32,
    },
    /// The command is complete; the slot is free.
    Complete {
        slot: u16,
        cqe: Cqe,
        /// True if all data of the command has moved. A failed command may move less; a success without all its data
        /// is not valid.
        data_intact: bool,
    },
}

/// A host queue pair.
pub struct EtherHostQpair {
    /// Links, dropped frames, and the end of the lane.
    pub end: LaneEnd,
    slots: EtherHostSlots,
    free: FreeSlots,
    damq: DamqPages,
    /// Slots of writes that wait for pages, in order.
    waiting: VecDeque<u16>,
    arrived: Arrived,
    config: EtherHostConfig,
}

impl EtherHostQpair {
    /// Creates the queue pair of a new lane.
    ///
    /// # Panics
    /// When `queue_entries` is below 2 or above [`SLOTS_MAX`], or `piece_bytes` no multiple of 8.
    #[must_use]
    pub fn new(config: EtherHostConfig, links: LaneLinks<Item>) -> Self {
        assert!((2..=SLOTS_MAX).contains(&config.queue_entries), "queue entries out of range");
        let (cut, damq) = (PieceCut::new(config.piece_bytes), DamqPages::new(config.pages));
        let damq_bytes = damq.pages().saturating_mul(PAGE_BYTES as u32);
        let data_bytes_max = config.data_bytes_max.min(cut.bytes_max()).min(damq_bytes);
        let config = EtherHostConfig { data_bytes_max, ..config };
        let slots = config.queue_entries - 1;
        let mut free = FreeSlots::default();
        (0..slots).for_each(|slot| free.give(slot));
        let packer = FramePacker::new(cut, config.packing, config.body_crc);
        let unused = EtherHostSlot::new(Sqe::default(), CommandTransfer::None, Urgency::Normal);
        EtherHostQpair {
            slots: EtherHostSlots(vec![unused; usize::from(slots)]),
            end: LaneEnd::new(links, packer, SendQueue::new(&config.policy, PolicyRole::Host)),
            free,
            damq,
            waiting: VecDeque::new(),
            arrived: Arrived::new(slots, cut.pieces(data_bytes_max)),
            config,
        }
    }

    /// Changes the policy of an idle queue pair (the connect phase sends without batching).
    pub fn set_policy(&mut self, policy: PolicyConfig) {
        debug_assert!(self.end.out.is_empty(), "policy changed under waiting requests");
        self.config.policy = policy;
        self.end.out = SendQueue::new(&policy, PolicyRole::Host);
    }

    /// Seals the lane: the caller seals the frames from now on.
    pub fn set_sealed(&mut self, proofs: Proofs) {
        self.end.set_sealed(proofs);
    }

    /// Most bytes of a command's data.
    #[must_use]
    pub fn data_bytes_max(&self) -> u32 {
        self.config.data_bytes_max
    }

    /// Number of commands that may be submitted now.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.free.count() as u32
    }

    /// Number of commands submitted and not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        (self.slots.0.len() - self.free.count()) as u32
    }

    /// Command identifier of the command in `slot`.
    #[must_use]
    pub fn cid(&self, slot: u16) -> u16 {
        self.slots.get(slot).sqe.cid.get()
    }

    /// Returns the command in `slot`, its data and its submission time; valid also just after its completion.
    #[must_use]
    pub fn command(&self, slot: u16) -> (&Sqe, CommandTransfer, Instant) {
        let EtherHostSlot { sqe, data, submitted, .. } = self.slots.get(slot);
        (sqe, *data, *submitted)
    }

    /// Queues a command and fills in the CID of `sqe`. Returns `None` if the queue is full, the lane has ended, or
    /// the data is more than [`EtherHostQpair::data_bytes_max`].
    pub fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        urgency: Urgency,
    ) -> Option<u16> {
        if data.bytes() > self.config.data_bytes_max || self.end.ended().is_some() {
            return None;
        }
        let number = self.free.take()?;
        let slot = self.slots.get_mut(number);
        let generation = (slot.generation + 1) & GENERATION_MASK;
        let new = EtherHostSlot { submitted: now, ..EtherHostSlot::new(*sqe, data, urgency) };
        *slot = EtherHostSlot { generation, state: EtherHostSlotState::Queued, ..new };
        slot.sqe.cid = number.into();
        self.count_in_flight();
        if data.out_bytes() > 0 {
            self.waiting.push_back(number);
            self.place_waiting(now);
        } else {
            self.push(now, number);
        }
        Some(number)
    }

    /// Assigns pages to writes in order, so that small writes do not starve a large one.
    fn place_waiting(&mut self, now: Instant) {
        while let Some(&number) = self.waiting.front() {
            let pages = pages(self.slots.get(number).data.out_bytes());
            let Some(position) = self.damq.take(pages) else { return };
            self.waiting.pop_front();
            self.slots.get_mut(number).position = position;
            self.push(now, number);
        }
    }

    fn push(&mut self, now: Instant, number: u16) {
        let EtherHostSlot { data, generation, urgency, .. } = *self.slots.get(number);
        let (bytes, request_bytes) = (data.out_bytes(), data.bytes());
        for (tx, data_bytes) in RequestPart::parts(self.end.packer.cut, number, generation, bytes) {
            let kind = match data_bytes {
                0 => PduKind::Command,
                _ if data_bytes == bytes => PduKind::CommandData,
                _ => PduKind::H2cData,
            };
            let parcel = PduInfo { kind, urgency, data_bytes, request_bytes };
            self.end.out.push(now, tx, &parcel);
        }
    }

    fn count_in_flight(&mut self) {
        let in_flight = self.in_flight();
        self.end.out.batcher_mut().set_in_flight(in_flight);
    }

    /// Returns the batching state; the lane reports there when a turn is drained.
    pub fn batcher(&mut self) -> &mut Batcher {
        self.end.out.batcher_mut()
    }

    /// Fills `writer` with acknowledgements, lost records, and released records, within the policy's limits. Returns
    /// false if nothing was added.
    pub fn poll_tx(&mut self, now: Instant, writer: &mut impl FrameWriter) -> bool {
        self.end.poll_tx(now, &mut self.slots, writer)
    }
}

/// Number of pages that hold `bytes` bytes.
fn pages(bytes: u32) -> u32 {
    bytes.div_ceil(PAGE_BYTES as u32)
}
