//! The target's end of a lane: commands and data in, completions and data out (docs/reference/ethernet.md).
//!
//! Sans-IO, the counterpart of [`roadtrain_target_proto::qpair`]: the caller offers frames of the lane to [`Qpair::receive`],
//! copies data to its place in the damq, executes what [`RxEvent::Command`] names, and answers with [`Qpair::respond`]
//! or [`Qpair::respond_with_data`]. A slot's data stays until [`RxEvent::Released`].

mod host_check;
mod receive;
mod slots;

use crate::cut::{Arrived, Cut};
use crate::end::{End, OpenFrame};
use crate::frame_writer::FrameWriter;
use crate::links::Links;
use crate::pack::{Item, Packer, Packing, Tx};
use core::time::Duration;
use roadtrain_proto::policy::{Batcher, Class, Kind, Parcel, PolicyConfig, Role, SendQueue};
use roadtrain_proto::seal::{Cipher, Seal};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::qpair::SQHD_NO_FLOW_CONTROL;
use roadtrain_wire::ether::{FrameHeader, FrameType, PAGE_BYTES};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use slots::{Slot, Slots, State};

pub use host_check::{Asked, HostCheck};

/// What the ends of a lane have agreed on, and how this one sends.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// SLOTS of the lane.
    pub slots: u16,
    /// PAGES of the lane's damq.
    pub pages: u32,
    pub piece_bytes: u16,
    /// Most octets of a command's data (MDTS).
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
    /// Data: `length` octets of the frame's body from `start` belong to the damq from octet `place` on.
    Data {
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
    Released { slot: u16 },
}

/// A target queue pair.
pub struct Qpair {
    /// Its links, what was dropped, and how it ends.
    pub end: End,
    slots: Slots,
    arrived: Arrived,
    damq_bytes: u64,
    data_bytes_max: u32,
    is_io: bool,
    /// Whether its host still has the lane.
    pub host: HostCheck,
    /// When its host was last heard.
    heard: Instant,
    class: Class,
    in_store: u32,
    /// Slots whose response was just acknowledged.
    released: Vec<u16>,
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
        let packer = Packer::new(cut, config.packing, config.body_crc);
        Qpair {
            end: End::new(links, packer, SendQueue::new(&config.policy, Role::Target)),
            slots,
            arrived: Arrived::new(config.slots, cut.pieces(data_bytes_max)),
            damq_bytes: u64::from(config.pages) * PAGE_BYTES as u64,
            data_bytes_max,
            is_io: false,
            host: HostCheck::default(),
            heard: Instant::default(),
            class: Class::Normal,
            in_store: 0,
            released: Vec::new(),
        }
    }

    /// Connect succeeded: queue `qid` has `entries` entries (SQSIZE + 1), and its commands are of `class` unless
    /// they or their namespace say otherwise.
    pub fn set_connected(&mut self, qid: u16, entries: u16, sq_flow_control: bool, class: Class) {
        self.is_io = qid > 0;
        self.host.is_io = self.is_io;
        self.class = class;
        self.slots.entries = entries.max(1);
        self.slots.sq_flow_control = sq_flow_control;
        if !sq_flow_control {
            self.slots.sqhd = SQHD_NO_FLOW_CONTROL;
        }
    }

    /// The host is there: it has joined, or said what nobody repeats.
    pub fn hear_host(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Whether the host was not heard for so long. Frames that others repeat or forge say nothing of it.
    #[must_use]
    pub fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        now.since(self.heard) >= patience
    }

    /// Whether data that has arrived is still to be used: of requests that are not whole yet, or not answered.
    #[must_use]
    pub fn keeps_data(&self) -> bool {
        self.slots.keep_data()
    }

    /// As [`End::open`]. The host's first sealed frame shows that it has the keys, and the lane is sealed from then on.
    /// What has come in the clear and is not whole is nothing of the host's: it had no request under way then.
    pub fn open<'a, C: Cipher>(
        &mut self,
        now: Instant,
        mut seal: Option<&mut Seal<C>>,
        frame: (&FrameHeader, FrameType, &'a [u8]),
        out: &'a mut [u8],
    ) -> Option<OpenFrame<'a>> {
        let opened = self.end.open(now, seal.as_deref_mut(), frame, out)?;
        if opened.is_sign_of_life {
            self.hear_host(now);
        }
        if let (true, Some(seal)) = (opened.is_first, seal) {
            self.end.set_sealed(seal.proofs());
            self.slots.forget_begun();
        }
        Some(opened)
    }

    /// So many commands are in a store that takes its time: they keep neither end busy.
    pub fn set_in_store(&mut self, commands: u32) {
        self.in_store = commands;
    }

    /// Commands received whose responses have not left.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.slots.in_flight
    }

    /// The batching state; the lane says when a turn is drained.
    pub fn batcher(&mut self) -> &mut Batcher {
        self.end.out.batcher_mut()
    }

    /// The slot of a command in execution.
    #[must_use]
    pub fn slot_of(&self, cid: u16) -> Option<u16> {
        let slot = self.slots.slots.get(usize::from(cid))?;
        (slot.state == State::Executing).then_some(cid)
    }

    /// The slot of an outstanding Asynchronous Event Request: identifiers are slots, and none is used twice.
    #[must_use]
    pub fn event_request_of(&self, cid: u16) -> Option<u16> {
        self.slot_of(cid)
    }

    /// Class of the command's namespace: its response is treated so unless the command says otherwise.
    pub fn set_class(&mut self, slot: u16, class: Class) {
        let slot = self.slots.get_mut(slot);
        if slot.is_unclassed {
            slot.urgency = class.urgency();
        }
    }

    /// Fills `writer` with acknowledgements, what was lost, and what a doorbell has released, within the policy's
    /// limits; `false` when nothing was added.
    pub fn poll_tx(&mut self, now: Instant, writer: &mut impl FrameWriter) -> bool {
        self.end.poll_tx(now, &mut self.slots, writer)
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
        slot.unsent = self.end.packer.cut.pieces(bytes) + 1;
        slot.unacked = slot.unsent;
        let (generation, urgency) = (slot.generation, slot.urgency);
        // A host that reuses its lowest free slots tells how many commands it has in flight.
        let in_flight = u32::from(number) + 1;
        self.end.out.batcher_mut().set_in_flight(in_flight.saturating_sub(self.in_store).max(1));
        if self.end.ended().is_some() {
            return;
        }
        for (tx, data_bytes) in Tx::parts(self.end.packer.cut, number, generation, bytes) {
            let kind = if data_bytes > 0 { Kind::ResponseData } else { Kind::Response };
            self.end.out.push(now, tx, &Parcel { kind, urgency, data_bytes, request_bytes });
        }
    }
}
