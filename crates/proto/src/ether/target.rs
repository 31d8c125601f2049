//! The target's end of a lane: commands and data in, completions and data out (docs/ETHERNET.md).
//!
//! Sans-IO, the counterpart of [`crate::target::qpair`]: the caller offers frames of the lane to [`Qpair::receive`], copies
//! data to its place in the damq, executes what [`RxEvent::Command`] names, and answers with [`Qpair::respond`] or
//! [`Qpair::respond_with_data`]. A slot's data stays until [`RxEvent::Released`].

use super::channel::Arrival;
use super::cut::{Arrived, Cut};
use super::links::Links;
use super::pack::{Item, Loading, Packer, Packing, Requests, Tx, ack_body};
use super::rejected::Rejected;
use super::train::Train;
use crate::policy::{
    Batcher, Class, Doorbells, Kind, Load, Outbox, Parcel, PolicyConfig, Role, Urgency,
};
use crate::target::qpair::{SQHD_NO_FLOW_CONTROL, urgency_of};
use crate::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::setup::{Leave, Reason};
use roadtrain_wire::ether::{
    COMPLETION_RECORD_BYTES, Command, Completion, DATA_IN, Data, FrameHeader, FrameType,
    GENERATION_MASK, PAGE_BYTES, Record, RecordHead, RecordKind, Records,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// What the ends of a lane have agreed on, and how this one sends.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// SLOTS of the lane.
    pub slots: u16,
    /// PAGES of the lane's damq.
    pub pages: u32,
    /// PIECE.
    pub piece_bytes: u16,
    /// Most octets of a command's data (MDTS).
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
    /// Data: `length` octets of the frame's body from `start` belong to the damq from octet `place` on.
    Data {
        /// The command.
        slot: u16,
        /// Octet in the damq.
        place: u64,
        /// Start in the body.
        start: usize,
        /// Octets.
        length: u32,
    },
    /// A command, and all its data is there.
    Command {
        /// Names the command until its response was acknowledged.
        slot: u16,
        /// The command; its SGL is what a capsule with the data in it would have.
        sqe: Sqe,
        /// Where in the damq its data starts.
        place: u64,
        /// Octets of its data.
        data_bytes: u32,
        /// Octets of data that the host takes.
        room_bytes: u32,
    },
    /// The host has the slot's response: its data is not needed any more.
    Released {
        /// The command.
        slot: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The host has all of the last request.
    Idle,
    /// Something of the request is still missing.
    Receiving,
    /// The caller has it.
    Executing,
    /// Answered; the host may not have all of it yet.
    Responding,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    state: State,
    sqe: Sqe,
    has_command: bool,
    /// Some data has arrived: `octets` and `position` are known.
    has_data: bool,
    octets: u32,
    position: u32,
    arrived: u16,
    /// Octets of data that the host takes, then those that it gets.
    room: u32,
    urgency: Urgency,
    /// The command does not say how urgent it is.
    is_unclassed: bool,
    status: Status,
    result: u64,
    /// Records of the response that are in no frame yet.
    unsent: u16,
    /// Records of the response that the host has not acknowledged.
    unacked: u16,
}

impl Slot {
    fn new(generation: u32, state: State) -> Self {
        Slot {
            generation,
            state,
            sqe: Sqe::default(),
            has_command: false,
            has_data: false,
            octets: 0,
            position: 0,
            arrived: 0,
            room: 0,
            urgency: Urgency::Normal,
            is_unclassed: false,
            status: Status::SUCCESS,
            result: 0,
            unsent: 0,
            unacked: 0,
        }
    }
}

/// A target queue pair.
pub struct Qpair {
    links: Links<Item>,
    slots: Slots,
    packer: Packer,
    out: Outbox<Tx>,
    arrived: Arrived,
    damq_bytes: u64,
    data_bytes_max: u32,
    is_io: bool,
    class: Class,
    in_backend: u32,
    /// Slots whose response was just acknowledged.
    released: Vec<u16>,
    rejected: Rejected,
    ended: Option<Reason>,
}

struct Slots {
    slots: Vec<Slot>,
    cut: Cut,
    entries: u16,
    sqhd: u16,
    sq_flow_control: bool,
    in_flight: u32,
}

impl Slots {
    fn get(&self, number: u16) -> &Slot {
        &self.slots[usize::from(number)]
    }

    fn get_mut(&mut self, number: u16) -> &mut Slot {
        &mut self.slots[usize::from(number)]
    }

    /// The host has this record; whether that was the last of its response.
    fn acked(&mut self, item: Item) -> bool {
        let slot = self.get_mut(item.slot);
        if slot.generation != item.generation || slot.state != State::Responding {
            return false;
        }
        slot.unacked -= 1;
        if slot.unacked > 0 {
            return false;
        }
        slot.state = State::Idle;
        true
    }

    fn count_command(&mut self) {
        self.in_flight += 1;
        if self.sq_flow_control {
            self.sqhd = (self.sqhd + 1) % self.entries;
        }
    }
}

impl Requests for Slots {
    const TAIL_BYTES: usize = COMPLETION_RECORD_BYTES;

    fn wants(&self, item: Item) -> bool {
        let slot = self.get(item.slot);
        slot.generation == item.generation && slot.state == State::Responding
    }

    fn data(&self, slot: u16) -> (u32, u32) {
        (self.get(slot).room, 0)
    }

    fn put_tail(&mut self, number: u16, out: &mut [u8]) {
        let slot = self.get(number);
        let mut cqe = Cqe::new(number, slot.status).with_result(slot.result);
        cqe.sqhd = self.sqhd.into();
        let kind = RecordKind::Completion;
        let completion = Completion {
            head: RecordHead::new(kind, COMPLETION_RECORD_BYTES, number, slot.generation),
            cqe,
            pieces: self.cut.pieces(slot.room).into(),
            reserved: [0; 6],
        };
        out.copy_from_slice(completion.as_bytes());
    }

    fn left(&mut self, item: Item) {
        let slot = self.get_mut(item.slot);
        slot.unsent -= 1;
        if slot.unsent == 0 {
            self.in_flight -= 1;
        }
    }
}

impl Qpair {
    /// The queue pair of a lane that was just made.
    ///
    /// # Panics
    /// When `slots` is 0 or `piece_bytes` no multiple of 8.
    #[must_use]
    pub fn new(config: Config, links: Links<Item>) -> Self {
        assert!(config.slots > 0, "a lane without slots");
        let cut = Cut::new(config.piece_bytes);
        let data_bytes_max = config.data_bytes_max.min(cut.bytes_max());
        let slots = Slots {
            slots: vec![Slot::new(0, State::Idle); usize::from(config.slots)],
            cut,
            entries: config.slots,
            sqhd: 0,
            sq_flow_control: true,
            in_flight: 0,
        };
        Qpair {
            links,
            slots,
            packer: Packer::new(cut, config.packing, config.body_crc),
            out: Outbox::new(&config.policy, Role::Target),
            arrived: Arrived::new(config.slots, cut.pieces(data_bytes_max)),
            damq_bytes: u64::from(config.pages) * PAGE_BYTES as u64,
            data_bytes_max,
            is_io: false,
            class: Class::Normal,
            in_backend: 0,
            released: Vec::new(),
            rejected: Rejected::default(),
            ended: None,
        }
    }

    /// Connect succeeded: queue `qid` has `entries` entries (SQSIZE + 1), and its commands are of `class` unless
    /// they or their namespace say otherwise.
    pub fn set_connected(&mut self, qid: u16, entries: u16, sq_flow_control: bool, class: Class) {
        self.is_io = qid > 0;
        self.class = class;
        self.slots.entries = entries.max(1);
        self.slots.sq_flow_control = sq_flow_control;
        if !sq_flow_control {
            self.slots.sqhd = SQHD_NO_FLOW_CONTROL;
        }
    }

    /// So many commands are in a backend that takes its time: they keep neither end busy.
    pub fn set_in_backend(&mut self, commands: u32) {
        self.in_backend = commands;
    }

    /// Commands received whose responses have not left.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.slots.in_flight
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

    /// Why the host has ended the lane, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Reason> {
        self.ended
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

    /// The command identifier of a slot: the slot.
    #[must_use]
    pub fn cid(&self, slot: u16) -> u16 {
        slot
    }

    /// The slot of a command in execution.
    #[must_use]
    pub fn slot_of(&self, cid: u16) -> Option<u16> {
        let slot = self.slots.slots.get(usize::from(cid))?;
        (slot.state == State::Executing).then_some(cid)
    }

    /// Class of the command's namespace: its response is treated so unless the command says otherwise.
    pub fn set_class(&mut self, slot: u16, class: Class) {
        let slot = self.slots.get_mut(slot);
        if slot.is_unclassed {
            slot.urgency = class.urgency();
        }
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

    /// The target ends the lane: nothing but Leave is sent any more. May be repeated.
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
        let Qpair { links, slots, released, .. } = self;
        let arrival = links.receive(now, header, ack_body(kind, body), &mut |item: Item| {
            if slots.acked(item) {
                released.push(item.slot);
            }
        });
        for slot in self.released.drain(..) {
            event(RxEvent::Released { slot });
        }
        match (kind, arrival) {
            (_, Arrival::Foreign) => self.rejected.foreign += 1,
            (FrameType::Leave, _) => self.handle_leave(body),
            (FrameType::Cargo, Arrival::New) => self.handle_cargo(body, event),
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

    fn handle_cargo(&mut self, body: &[u8], event: &mut impl FnMut(RxEvent)) {
        if self.ended.is_some() {
            return;
        }
        for record in Records::new(body) {
            match record {
                Ok(Record::Data { data, start, octets }) => {
                    self.handle_data(data, start, octets.len(), event);
                }
                Ok(Record::Command(command)) => self.handle_command(command, event),
                Ok(Record::Completion(_)) | Err(_) => self.rejected.records += 1,
            }
        }
    }

    /// The slot of a record whose request is arriving; its first record begins it.
    fn receiving(&mut self, head: &RecordHead, event: &mut impl FnMut(RxEvent)) -> Option<u16> {
        let number = head.slot.get();
        let Some(slot) = self.slots.slots.get_mut(usize::from(number)) else {
            self.rejected.slots += 1;
            return None;
        };
        let (generation, next) = (head.generation(), (slot.generation + 1) & GENERATION_MASK);
        if generation == slot.generation {
            if slot.state == State::Receiving {
                return Some(number);
            }
            self.rejected.late += 1;
            return None;
        }
        if generation != next {
            self.rejected.late += 1;
            return None;
        }
        match slot.state {
            State::Idle => (),
            State::Responding if slot.unsent == 0 => event(RxEvent::Released { slot: number }),
            _ => {
                self.rejected.busy += 1;
                return None;
            }
        }
        *slot = Slot::new(generation, State::Receiving);
        Some(number)
    }

    fn handle_data(
        &mut self,
        data: &Data,
        start: usize,
        length: usize,
        event: &mut impl FnMut(RxEvent),
    ) {
        let (octets, position) = (data.octets.get(), data.position.get());
        if octets > self.data_bytes_max || !self.slots.cut.is_piece(data, length) {
            self.rejected.shapes += 1;
            return;
        }
        if !self.is_in_damq(position, octets) {
            self.rejected.places += 1;
            return;
        }
        let Some(number) = self.receiving(&data.head, event) else { return };
        let slot = self.slots.get_mut(number);
        if slot.has_command && slot.octets == 0 {
            self.rejected.directions += 1;
            return;
        }
        if (slot.has_command || slot.has_data) && slot.octets != octets {
            self.rejected.shapes += 1;
            return;
        }
        if (slot.has_command || slot.has_data) && slot.position != position {
            self.rejected.places += 1;
            return;
        }
        if !slot.has_data {
            (slot.has_data, slot.octets, slot.position) = (true, octets, position);
            self.arrived.clear(number, data.pieces.get());
        }
        if !self.arrived.insert(number, data.index.get()) {
            self.rejected.repeated += 1;
            return;
        }
        slot.arrived += 1;
        let place = u64::from(position) * PAGE_BYTES as u64 + u64::from(data.offset.get());
        event(RxEvent::Data { slot: number, place, start, length: length as u32 });
        self.execute_if_all(number, event);
    }

    fn is_in_damq(&self, position: u32, octets: u32) -> bool {
        u64::from(position) * PAGE_BYTES as u64 + u64::from(octets) <= self.damq_bytes
    }

    fn handle_command(&mut self, command: &Command, event: &mut impl FnMut(RxEvent)) {
        let (octets, position) = (command.octets.get(), command.position.get());
        let (room, octets) =
            if octets & DATA_IN != 0 { (octets & !DATA_IN, 0) } else { (0, octets) };
        if octets.max(room) > self.data_bytes_max {
            self.rejected.shapes += 1;
            return;
        }
        if octets > 0 && !self.is_in_damq(position, octets) {
            self.rejected.places += 1;
            return;
        }
        if command.sqe.cid != command.head.slot {
            self.rejected.unexpected += 1;
            return;
        }
        let Some(number) = self.receiving(&command.head, event) else { return };
        let slot = self.slots.get_mut(number);
        if slot.has_command {
            self.rejected.repeated += 1;
        } else if slot.has_data && slot.octets != octets {
            self.rejected.shapes += 1;
        } else if slot.has_data && slot.position != position {
            self.rejected.places += 1;
        } else {
            slot.has_command = true;
            (slot.sqe, slot.octets, slot.position, slot.room) =
                (command.sqe, octets, position, room);
            (slot.urgency, slot.is_unclassed) = urgency_of(&command.sqe, self.is_io, self.class);
            self.execute_if_all(number, event);
        }
    }

    /// A request is executed when its command is here, and all its data.
    fn execute_if_all(&mut self, number: u16, event: &mut impl FnMut(RxEvent)) {
        let pieces = |octets| self.slots.cut.pieces(octets);
        let slot = self.slots.get(number);
        if !slot.has_command || slot.arrived < pieces(slot.octets) {
            return;
        }
        let (data_bytes, room_bytes, mut sqe) = (slot.octets, slot.room, slot.sqe);
        let place = u64::from(slot.position) * PAGE_BYTES as u64;
        if data_bytes > 0 {
            sqe.set_in_capsule(data_bytes);
        } else {
            sqe.set_transport(room_bytes);
        }
        self.slots.get_mut(number).state = State::Executing;
        self.slots.count_command();
        event(RxEvent::Command { slot: number, sqe, place, data_bytes, room_bytes });
    }

    /// Answers a command that returns no data.
    pub fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        self.push_response(now, slot, status, result, 0);
    }

    /// Answers a command with `data_bytes` of the slot's data, at most what the host takes; the status is success.
    pub fn respond_with_data(&mut self, now: Instant, slot: u16, data_bytes: u32, result: u64) {
        self.push_response(now, slot, Status::SUCCESS, result, data_bytes);
    }

    fn push_response(
        &mut self,
        now: Instant,
        number: u16,
        status: Status,
        result: u64,
        bytes: u32,
    ) {
        let slot = self.slots.get_mut(number);
        debug_assert_eq!(slot.state, State::Executing, "a command is answered exactly once");
        debug_assert!(bytes <= slot.room, "more data than the host takes");
        let request_bytes = slot.octets.max(bytes);
        let bytes = bytes.min(slot.room);
        (slot.status, slot.result, slot.room) = (status, result, bytes);
        slot.state = State::Responding;
        slot.unsent = self.packer.cut.pieces(bytes) + 1;
        slot.unacked = slot.unsent;
        let (generation, urgency) = (slot.generation, slot.urgency);
        // A host that reuses its lowest free slots tells how many commands it has in flight.
        let in_flight = u32::from(number) + 1;
        self.out.batcher_mut().set_in_flight(in_flight.saturating_sub(self.in_backend).max(1));
        if self.ended.is_some() {
            return;
        }
        for (tx, data_bytes) in Tx::parts(self.packer.cut, number, generation, bytes) {
            let kind = if data_bytes > 0 { Kind::ResponseData } else { Kind::Response };
            self.out.push(now, tx, &Parcel { kind, urgency, data_bytes, request_bytes });
        }
    }
}
