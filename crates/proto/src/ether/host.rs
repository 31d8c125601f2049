//! The host's end of a lane: commands and data out, completions and data in (docs/ETHERNET.md).
//!
//! Sans-IO, the counterpart of [`crate::host::qpair`]: the caller offers frames of the lane to [`Qpair::receive`] and takes
//! frames from [`Qpair::poll_tx`]. A command is a *slot* from [`Qpair::submit`] to [`RxEvent::Complete`]; the caller
//! keeps the slot's data buffer. Each slot completes exactly once.

use super::channel::Arrival;
use super::cut::{Arrived, Cut};
use super::damq::Damq;
use super::links::Links;
use super::pack::{Item, Loading, Packer, Packing, Requests, Tx, ack_body};
use super::rejected::Rejected;
use super::train::Train;
use crate::host::qpair::{Data, SLOTS_MAX};
use crate::host::slots::FreeSlots;
use crate::policy::{Batcher, Doorbells, Kind, Load, Outbox, Parcel, PolicyConfig, Role, Urgency};
use crate::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::setup::{Leave, Reason};
use roadtrain_wire::ether::{
    self, COMMAND_RECORD_BYTES, Command, Completion, DATA_IN, FrameHeader, FrameType,
    GENERATION_MASK, PAGE_BYTES, Record, RecordHead, RecordKind, Records,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::VecDeque;

/// What the ends of a lane have agreed on, and how this one sends.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Entries of the queue, at most the lane's SLOTS and [`SLOTS_MAX`]: commands in flight at most one less.
    pub queue_entries: u16,
    /// PAGES of the target's damq.
    pub pages: u32,
    /// PIECE.
    pub piece_bytes: u16,
    /// Most octets of a command's data; less when the damq or the pieces do not suffice.
    pub data_bytes_max: u32,
    /// When to send.
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
        /// The command.
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
        /// The command.
        slot: u16,
        /// Its completion.
        cqe: Cqe,
        /// All data of the command has moved. Data may be short when the command failed; a success without it is not
        /// to be believed.
        data_intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Waits for pages of the damq, or for its frame: the target cannot know it yet.
    Queued,
    /// Sent; its completion is awaited.
    Active,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    sqe: Sqe,
    data: Data,
    state: State,
    generation: u32,
    urgency: Urgency,
    /// First page in the damq.
    position: u32,
    /// Octets that the target sends, as its data says.
    octets: Option<u32>,
    received: u32,
    arrived: u16,
    completion: Option<(Cqe, u16)>,
}

impl Slot {
    fn new(sqe: Sqe, data: Data, urgency: Urgency) -> Self {
        Slot {
            sqe,
            data,
            state: State::Free,
            generation: 0,
            urgency,
            position: 0,
            octets: None,
            received: 0,
            arrived: 0,
            completion: None,
        }
    }
}

/// A host queue pair.
pub struct Qpair {
    links: Links<Item>,
    slots: Slots,
    packer: Packer,
    out: Outbox<Tx>,
    free: FreeSlots,
    damq: Damq,
    /// Writes that wait for pages, in order.
    waiting: VecDeque<u16>,
    arrived: Arrived,
    config: Config,
    rejected: Rejected,
    ended: Option<Reason>,
}

struct Slots(Vec<Slot>);

impl Slots {
    fn get(&self, number: u16) -> &Slot {
        &self.0[usize::from(number)]
    }

    fn get_mut(&mut self, number: u16) -> &mut Slot {
        &mut self.0[usize::from(number)]
    }
}

impl Requests for Slots {
    const TAIL_BYTES: usize = COMMAND_RECORD_BYTES;

    fn wants(&self, item: Item) -> bool {
        let slot = self.get(item.slot);
        slot.generation == item.generation && slot.state != State::Free
    }

    fn data(&self, slot: u16) -> (u32, u32) {
        let slot = self.get(slot);
        (slot.data.out_bytes(), slot.position)
    }

    fn put_tail(&mut self, number: u16, out: &mut [u8]) {
        let slot = self.get(number);
        let octets = match slot.data {
            Data::None => 0,
            Data::In(bytes) => bytes | DATA_IN,
            Data::Out(bytes) => bytes,
        };
        let kind = RecordKind::Command;
        let command = Command {
            head: RecordHead::new(kind, COMMAND_RECORD_BYTES, number, slot.generation),
            sqe: slot.sqe,
            position: slot.position.into(),
            octets: octets.into(),
        };
        out.copy_from_slice(command.as_bytes());
    }

    fn left(&mut self, item: Item) {
        if item.piece().is_none() {
            self.get_mut(item.slot).state = State::Active;
        }
    }
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
        let unused = Slot::new(Sqe::default(), Data::None, Urgency::Normal);
        Qpair {
            links,
            slots: Slots(vec![unused; usize::from(slots)]),
            packer: Packer::new(cut, config.packing, config.body_crc),
            out: Outbox::new(&config.policy, Role::Host),
            free,
            damq,
            waiting: VecDeque::new(),
            arrived: Arrived::new(slots, cut.pieces(data_bytes_max)),
            config,
            rejected: Rejected::default(),
            ended: None,
        }
    }

    /// Changes the policy of an idle queue pair (the connect phase sends without batching).
    pub fn set_policy(&mut self, policy: PolicyConfig) {
        debug_assert!(self.out.is_empty(), "policy changed under waiting requests");
        self.config.policy = policy;
        self.out = Outbox::new(&policy, Role::Host);
    }

    /// Most octets of a command's data.
    #[must_use]
    pub fn data_bytes_max(&self) -> u32 {
        self.config.data_bytes_max
    }

    /// Commands that may be submitted now.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.free.len() as u32
    }

    /// Commands submitted and not completed.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        (self.slots.0.len() - self.free.len()) as u32
    }

    /// The lane's links.
    #[must_use]
    pub fn links(&self) -> &Links<Item> {
        &self.links
    }

    /// The lane's links, to change doors and carriers.
    pub fn links_mut(&mut self) -> &mut Links<Item> {
        &mut self.links
    }

    /// What was dropped.
    #[must_use]
    pub fn rejected(&self) -> Rejected {
        self.rejected
    }

    /// Why the target has ended the lane, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Reason> {
        self.ended
    }

    /// Queues a command; `sqe`'s CID is filled in here. `None` when the queue is full, the lane has ended or the data is
    /// more than [`Qpair::data_bytes_max`].
    pub fn submit(&mut self, now: Instant, sqe: &Sqe, data: Data, urgency: Urgency) -> Option<u16> {
        if data.bytes() > self.config.data_bytes_max || self.ended.is_some() {
            return None;
        }
        let number = self.free.take()?;
        let slot = self.slots.get_mut(number);
        let generation = (slot.generation + 1) & GENERATION_MASK;
        *slot = Slot { generation, state: State::Queued, ..Slot::new(*sqe, data, urgency) };
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
        let slot = *self.slots.get(number);
        let octets = slot.data.out_bytes();
        let request_bytes = slot.data.bytes();
        for (tx, data_bytes) in Tx::parts(self.packer.cut, number, slot.generation, octets) {
            let kind = match data_bytes {
                0 => Kind::Command,
                _ if data_bytes == octets => Kind::CommandData,
                _ => Kind::H2cData,
            };
            let parcel = Parcel { kind, urgency: slot.urgency, data_bytes, request_bytes };
            self.out.push(now, tx, &parcel);
        }
    }

    fn count_in_flight(&mut self) {
        let in_flight = self.in_flight();
        self.out.batcher_mut().set_in_flight(in_flight);
    }

    /// Doorbells rung so far.
    #[must_use]
    pub fn doorbells(&self) -> Doorbells {
        self.out.batcher().doorbells()
    }

    /// The batching state; the lane says when a turn is drained.
    pub fn batcher(&mut self) -> &mut Batcher {
        self.out.batcher_mut()
    }

    /// When [`Qpair::expire`] and [`Qpair::poll_tx`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        [self.out.batcher().deadline(), self.links.deadline()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn expire(&mut self, now: Instant) {
        self.out.batcher_mut().expire(now);
        self.links.expire(now);
    }

    /// Whether [`Qpair::poll_tx`] has a frame that may leave now.
    #[must_use]
    pub fn has_tx(&self, now: Instant) -> bool {
        self.packer.has_tx(now, &self.links, &self.out)
    }

    /// Fills `train` with acknowledgements, what was lost, and what a doorbell has released, within the policy's limits;
    /// `false` when nothing was added.
    pub fn poll_tx(&mut self, now: Instant, train: &mut impl Train) -> bool {
        let Qpair { packer, links, out, slots: requests, .. } = self;
        let load = Load::default();
        Loading { now, packer, links, out, requests, train, load }.run()
    }

    /// The host is done: nothing but Leave is sent any more. May be repeated.
    pub fn leave(&mut self, reason: Reason) {
        self.end(reason);
        self.packer.leave(reason);
    }

    fn end(&mut self, reason: Reason) {
        self.ended.get_or_insert(reason);
        self.out.clear();
        self.packer.clear();
    }

    /// A frame of the lane: its header, type and body as `wire::ether::parse` found them.
    pub fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
        event: &mut impl FnMut(RxEvent),
    ) {
        if !matches!(kind, FrameType::Cargo | FrameType::Ack | FrameType::Leave) {
            self.rejected.types += 1;
            return;
        }
        let arrival = self.links.receive(now, header, ack_body(kind, body), &mut |_| ());
        match (kind, arrival) {
            (_, Arrival::Foreign) => self.rejected.foreign += 1,
            (FrameType::Leave, _) => self.handle_leave(body),
            (FrameType::Cargo, Arrival::New) => self.handle_cargo(now, body, event),
            (FrameType::Cargo, Arrival::Unnumbered) => self.rejected.unnumbered += 1,
            _ => (),
        }
    }

    fn handle_leave(&mut self, body: &[u8]) {
        let leave = Leave::ref_from_prefix(body).ok().map(|(leave, _)| leave);
        let reason = leave
            .filter(|leave| leave.token.get() == self.links.peer_token())
            .and_then(|leave| Reason::from_value(leave.reason.get()));
        match reason {
            Some(reason) => self.end(reason),
            None => self.rejected.records += 1,
        }
    }

    fn handle_cargo(&mut self, now: Instant, body: &[u8], event: &mut impl FnMut(RxEvent)) {
        if self.ended.is_some() {
            return;
        }
        for record in Records::new(body) {
            match record {
                Ok(Record::Data { data, start, octets }) => {
                    self.handle_data(now, data, start, octets.len(), event);
                }
                Ok(Record::Completion(completion)) => {
                    self.handle_completion(now, completion, event)
                }
                Ok(Record::Command(_)) | Err(_) => self.rejected.records += 1,
            }
        }
    }

    /// The slot of a record whose request has been sent and is not complete.
    fn active(&mut self, head: &RecordHead) -> Option<u16> {
        let number = head.slot.get();
        let Some(slot) = self.slots.0.get(usize::from(number)) else {
            self.rejected.slots += 1;
            return None;
        };
        if slot.generation != head.generation() || slot.state == State::Free {
            self.rejected.late += 1;
        } else if slot.state == State::Queued {
            self.rejected.unexpected += 1;
        } else {
            return Some(number);
        }
        None
    }

    fn handle_data(
        &mut self,
        now: Instant,
        data: &ether::Data,
        start: usize,
        length: usize,
        event: &mut impl FnMut(RxEvent),
    ) {
        let Some(number) = self.active(&data.head) else { return };
        let cut = self.packer.cut;
        let slot = self.slots.get_mut(number);
        let Data::In(expected) = slot.data else {
            self.rejected.directions += 1;
            return;
        };
        let octets = data.octets.get();
        let is_of_response = slot.octets.is_none_or(|sized| sized == octets)
            && slot.completion.is_none_or(|(_, pieces)| pieces == data.pieces.get());
        if !cut.is_piece(data, length) || octets > expected || !is_of_response {
            self.rejected.shapes += 1;
            return;
        }
        if slot.octets.is_none() {
            slot.octets = Some(octets);
            self.arrived.clear(number, data.pieces.get());
        }
        if !self.arrived.insert(number, data.index.get()) {
            self.rejected.repeated += 1;
            return;
        }
        slot.arrived += 1;
        slot.received += length as u32;
        let (offset, length) = (data.offset.get(), length as u32);
        event(RxEvent::Data { slot: number, offset, start, length });
        self.finish_if_all(now, number, event);
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        completion: &Completion,
        event: &mut impl FnMut(RxEvent),
    ) {
        let Some(number) = self.active(&completion.head) else { return };
        let cut = self.packer.cut;
        let (cqe, pieces) = (completion.cqe, completion.pieces.get());
        let slot = self.slots.get_mut(number);
        let fits = match (slot.octets, slot.data) {
            (Some(octets), _) => pieces == cut.pieces(octets),
            (None, Data::In(expected)) => pieces <= cut.pieces(expected),
            (None, _) => pieces == 0,
        };
        if slot.completion.is_some() {
            self.rejected.repeated += 1;
        } else if cqe.cid.get() != number {
            self.rejected.unexpected += 1;
        } else if !fits {
            self.rejected.shapes += 1;
        } else {
            slot.completion = Some((cqe, pieces));
            self.finish_if_all(now, number, event);
        }
    }

    /// The command is complete when its completion is here, and all data that belongs to it.
    fn finish_if_all(&mut self, now: Instant, number: u16, event: &mut impl FnMut(RxEvent)) {
        let slot = self.slots.get_mut(number);
        let Some((cqe, _)) = slot.completion.filter(|&(_, pieces)| pieces == slot.arrived) else {
            return;
        };
        slot.state = State::Free;
        let data_intact = match slot.data {
            Data::In(expected) => slot.received == expected,
            Data::None | Data::Out(_) => true,
        };
        let (data, position) = (slot.data, slot.position);
        self.free.give(number);
        self.count_in_flight();
        self.out.batcher_mut().completed(now, data.bytes());
        if data.out_bytes() > 0 {
            self.damq.give(position, pages(data.out_bytes()));
            self.place_waiting(now);
        }
        event(RxEvent::Complete { slot: number, cqe, data_intact });
    }
}

/// Pages that hold so many octets.
fn pages(octets: u32) -> u32 {
    octets.div_ceil(PAGE_BYTES as u32)
}
