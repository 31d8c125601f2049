//! The host's end of a lane: commands and data out, completions and data in (docs/reference/ethernet.md).
//!
//! Sans-IO, the counterpart of [`roadtrain_host_proto::qpair`]: the caller offers frames of the lane to [`Qpair::receive`] and
//! takes frames from [`Qpair::poll_tx`]. A command is a *slot* from [`Qpair::submit`] to [`RxEvent::Complete`]; the
//! caller keeps the slot's data buffer. Each slot completes exactly once.

mod receive;
mod slots;

use crate::cut::{Arrived, Cut};
use crate::damq::Damq;
use crate::end::End;
use crate::frame_writer::FrameWriter;
use crate::links::Links;
use crate::pack::{Item, Packer, Packing, Tx};
use roadtrain_host_proto::qpair::Data;
use roadtrain_proto::policy::{Batcher, Kind, Parcel, PolicyConfig, Role, SendQueue, Urgency};
use roadtrain_proto::seal::Proofs;
use roadtrain_proto::slots::{FreeSlots, SLOTS_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::{GENERATION_MASK, PAGE_BYTES};
use roadtrain_wire::sqe::Sqe;
use slots::{Slot, Slots, State};
use std::collections::VecDeque;

/// What the ends of a lane have agreed on, and how this one sends.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Entries of the queue, at most the lane's SLOTS and [`SLOTS_MAX`]: commands in flight at most one less.
    pub queue_entries: u16,
    /// PAGES of the target's damq.
    pub pages: u32,
    pub piece_bytes: u16,
    /// Most octets of a command's data; less when the damq or the pieces do not suffice.
    pub data_bytes_max: u32,
    pub policy: PolicyConfig,
    /// What a frame carries.
    pub packing: Packing,
    /// Frames carry a checksum of their body.
    pub body_crc: bool,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxEvent {
    /// Data of the slot from `offset`: `length` octets of the frame's body from `start`.
    Data {
        slot: u16,
        /// Where in its buffer.
        offset: u32,
        /// Start in the body.
        start: usize,
        /// Octets.
        length: u32,
    },
    /// The command is complete; the slot is free.
    Complete {
        slot: u16,
        cqe: Cqe,
        /// All data of the command has moved. Data may be short when the command failed; a success without it is not
        /// to be believed.
        data_intact: bool,
    },
}

/// A host queue pair.
pub struct Qpair {
    /// Its links, what was dropped, and how it ends.
    pub end: End,
    slots: Slots,
    free: FreeSlots,
    damq: Damq,
    /// Writes that wait for pages, in order.
    waiting: VecDeque<u16>,
    arrived: Arrived,
    config: Config,
}

impl Qpair {
    /// The queue pair of a lane that was just made.
    ///
    /// # Panics
    /// When `queue_entries` is below 2 or above [`SLOTS_MAX`], or `piece_bytes` no multiple of 8.
    #[must_use]
    pub fn new(config: Config, links: Links<Item>) -> Self {
        assert!((2..=SLOTS_MAX).contains(&config.queue_entries), "queue entries out of range");
        let (cut, damq) = (Cut::new(config.piece_bytes), Damq::new(config.pages));
        let damq_bytes = damq.pages().saturating_mul(PAGE_BYTES as u32);
        let data_bytes_max = config.data_bytes_max.min(cut.bytes_max()).min(damq_bytes);
        let config = Config { data_bytes_max, ..config };
        let slots = config.queue_entries - 1;
        let mut free = FreeSlots::default();
        (0..slots).for_each(|slot| free.give(slot));
        let packer = Packer::new(cut, config.packing, config.body_crc);
        let unused = Slot::new(Sqe::default(), Data::None, Urgency::Normal);
        Qpair {
            slots: Slots(vec![unused; usize::from(slots)]),
            end: End::new(links, packer, SendQueue::new(&config.policy, Role::Host)),
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
        self.end.out = SendQueue::new(&policy, Role::Host);
    }

    /// From now on frames are sealed by the one who sends them.
    pub fn set_sealed(&mut self, proofs: Proofs) {
        self.end.set_sealed(proofs);
    }

    /// Most octets of a command's data.
    #[must_use]
    pub fn data_bytes_max(&self) -> u32 {
        self.config.data_bytes_max
    }

    /// Commands that may be submitted now.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.free.count() as u32
    }

    /// Commands submitted and not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        (self.slots.0.len() - self.free.count()) as u32
    }

    /// Command identifier of the command in `slot`.
    #[must_use]
    pub fn cid(&self, slot: u16) -> u16 {
        self.slots.get(slot).sqe.cid.get()
    }

    /// The command in `slot`, also when it has just ended, and when it was submitted.
    #[must_use]
    pub fn command(&self, slot: u16) -> (&Sqe, Data, Instant) {
        let Slot { sqe, data, submitted, .. } = self.slots.get(slot);
        (sqe, *data, *submitted)
    }

    /// Queues a command; `sqe`'s CID is filled in here. `None` when the queue is full, the lane has ended or the data
    /// is more than [`Qpair::data_bytes_max`].
    pub fn submit(&mut self, now: Instant, sqe: &Sqe, data: Data, urgency: Urgency) -> Option<u16> {
        if data.bytes() > self.config.data_bytes_max || self.end.ended().is_some() {
            return None;
        }
        let number = self.free.take()?;
        let slot = self.slots.get_mut(number);
        let generation = (slot.generation + 1) & GENERATION_MASK;
        let new = Slot { submitted: now, ..Slot::new(*sqe, data, urgency) };
        *slot = Slot { generation, state: State::Queued, ..new };
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

    /// Writes get their pages in order: a large one is not passed for ever by small ones.
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
        let Slot { data, generation, urgency, .. } = *self.slots.get(number);
        let (octets, request_bytes) = (data.out_bytes(), data.bytes());
        for (tx, data_bytes) in Tx::parts(self.end.packer.cut, number, generation, octets) {
            let kind = match data_bytes {
                0 => Kind::Command,
                _ if data_bytes == octets => Kind::CommandData,
                _ => Kind::H2cData,
            };
            let parcel = Parcel { kind, urgency, data_bytes, request_bytes };
            self.end.out.push(now, tx, &parcel);
        }
    }

    fn count_in_flight(&mut self) {
        let in_flight = self.in_flight();
        self.end.out.batcher_mut().set_in_flight(in_flight);
    }

    /// The batching state; the lane says when a turn is drained.
    pub fn batcher(&mut self) -> &mut Batcher {
        self.end.out.batcher_mut()
    }

    /// Fills `writer` with acknowledgements, what was lost, and what a doorbell has released, within the policy's
    /// limits; `false` when nothing was added.
    pub fn poll_tx(&mut self, now: Instant, writer: &mut impl FrameWriter) -> bool {
        self.end.poll_tx(now, &mut self.slots, writer)
    }
}

/// Pages that hold so many octets.
fn pages(octets: u32) -> u32 {
    octets.div_ceil(PAGE_BYTES as u32)
}
