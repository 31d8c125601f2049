//! The target's end of a lane: commands and data in, completions and data out (docs/reference/ethernet.md).
//!
//! Sans-IO, the counterpart of [`roadtrain_target_proto::qpair`]. The caller offers frames of the lane to
//! [`EtherTargetQpair::receive`] and copies data to its place in the damq. It executes the command of [`EtherTargetEvent::Command`], and
//! responds with [`EtherTargetQpair::respond`] or [`EtherTargetQpair::respond_with_data`]. A slot's data stays until [`EtherTargetEvent::Released`].

mod host_check;
mod receive;
mod slots;

use crate::cut::{Arrived, PieceCut};
use crate::end::{LaneEnd, OpenFrame};
use crate::frame_writer::FrameWriter;
use crate::links::LaneLinks;
use crate::pack::{FramePacker, Item, Packing, RequestPart};
use core::time::Duration;
use roadtrain_proto::policy::{
    Batcher, Class, PduInfo, PduKind, PolicyConfig, PolicyRole, SendQueue,
};
use roadtrain_proto::seal::{Seal, SealCipher};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::qpair::SQHD_NO_FLOW_CONTROL;
use roadtrain_wire::ether::{FrameHeader, FrameType, PAGE_BYTES};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use slots::{EtherTargetSlot, EtherTargetSlotState, EtherTargetSlots};

pub use host_check::{HostCheck, HostProbe};

/// Parameters that the ends of a lane have agreed on, and the target's policy for sending.
#[derive(Clone, Copy, Debug)]
pub struct EtherTargetConfig {
    /// SLOTS of the lane.
    pub slots: u16,
    /// PAGES of the lane's damq.
    pub pages: u32,
    pub piece_bytes: u16,
    /// Most bytes of a command's data (MDTS).
    pub data_bytes_max: u32,
    pub policy: PolicyConfig,
    /// Limits of a frame's contents.
    pub packing: Packing,
    /// True if frames carry a checksum of their body.
    pub body_crc: bool,
}

/// An event of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtherTargetEvent {
    /// Data: `length` bytes of the frame's body from `start` belong to the damq from byte `place` on.
    Data {
        slot: u16,
        /// Offset in the damq, in bytes.
        place: u64,
        /// Offset in the body.
        start: usize,
        /// Number of bytes.
        length: u32,
    },
    /// A command whose data has all arrived.
    Command {
        /// Key of the command until its response is acknowledged.
        slot: u16,
        /// The command; its SGL is the one of a capsule with in-capsule data.
        sqe: Sqe,
        /// Offset of its data in the damq, in bytes.
        place: u64,
        /// Bytes of its data.
        data_bytes: u32,
        /// Bytes of data that the host accepts.
        room_bytes: u32,
    },
    /// The host has acknowledged the slot's response: its data is not needed any more.
    Released { slot: u16 },
}

/// A target queue pair.
pub struct EtherTargetQpair {
    /// Links, dropped frames, and the end of the lane.
    pub end: LaneEnd,
    slots: EtherTargetSlots,
    arrived: Arrived,
    damq_bytes: u64,
    data_bytes_max: u32,
    is_io: bool,
    /// Check that the host still has the lane.
    pub host: HostCheck,
    /// Time of the last authentic frame of the host.
    last_sign_of_life: Instant,
    class: Class,
    in_store: u32,
    /// Slots whose response was just acknowledged.
    released: Vec<u16>,
}

impl EtherTargetQpair {
    /// Creates the queue pair of a new lane.
    ///
    /// # Panics
    /// When `slots` is 0 or `piece_bytes` no multiple of 8.
    #[must_use]
    pub fn new(config: EtherTargetConfig, links: LaneLinks<Item>) -> Self {
        assert!(config.slots > 0, "a lane without slots");
        let cut = PieceCut::new(config.piece_bytes);
        let data_bytes_max = config.data_bytes_max.min(cut.bytes_max());
        let slots = EtherTargetSlots {
            slots: vec![
                EtherTargetSlot::new(0, EtherTargetSlotState::Idle);
                usize::from(config.slots)
            ],
            cut,
            entries: config.slots,
            sqhd: 0,
            sq_flow_control: true,
            in_flight: 0,
        };
        let packer = FramePacker::new(cut, config.packing, config.body_crc);
        EtherTargetQpair {
            end: LaneEnd::new(links, packer, SendQueue::new(&config.policy, PolicyRole::Target)),
            slots,
            arrived: Arrived::new(config.slots, cut.pieces(data_bytes_max)),
            damq_bytes: u64::from(config.pages) * PAGE_BYTES as u64,
            data_bytes_max,
            is_io: false,
            host: HostCheck::default(),
            last_sign_of_life: Instant::default(),
            class: Class::Normal,
            in_store: 0,
            released: Vec::new(),
        }
    }

    /// Records a successful Connect: queue `qid` has `entries` entries (SQSIZE + 1). Its commands are of `class`
    /// unless they or their namespace have another.
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

    /// Records a sign of life of the host: it has joined, or sent a frame that is no replay.
    pub fn record_sign_of_life(&mut self, now: Instant) {
        self.last_sign_of_life = now;
    }

    /// True if the host was silent for `patience`. Replayed or forged frames do not count.
    #[must_use]
    pub fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        now.since(self.last_sign_of_life) >= patience
    }

    /// True if received data is still in use: by incomplete requests, or by requests without a response.
    #[must_use]
    pub fn keeps_data(&self) -> bool {
        self.slots.keeps_data()
    }

    /// Opens a frame like [`LaneEnd::open`]. The host's first sealed frame proves that it has the keys, and seals the
    /// lane. Incomplete requests received in clear text are dropped: the host had no request in flight then.
    pub fn open<'a, C: SealCipher>(
        &mut self,
        now: Instant,
        mut seal: Option<&mut Seal<C>>,
        frame: (&FrameHeader, FrameType, &'a [u8]),
        out: &'a mut [u8],
    ) -> Option<OpenFrame<'a>> {
        let opened = self.end.open(now, seal.as_deref_mut(), frame, out)?;
        if opened.is_sign_of_life {
            self.record_sign_of_life(now);
        }
        if let (true, Some(seal)) = (opened.is_first, seal) {
            self.end.set_sealed(seal.proofs());
            self.slots.forget_begun();
        }
        Some(opened)
    }

    /// Sets the number of commands in a slow store; they keep neither end busy.
    pub fn set_in_store(&mut self, commands: u32) {
        self.in_store = commands;
    }

    /// Number of commands received whose responses have not left.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.slots.in_flight
    }

    /// Returns the batching state; the lane reports there when a turn is drained.
    pub fn batcher(&mut self) -> &mut Batcher {
        self.end.out.batcher_mut()
    }

    /// Returns the slot of a command in execution.
    #[must_use]
    pub fn slot_of(&self, cid: u16) -> Option<u16> {
        let slot = self.slots.slots.get(usize::from(cid))?;
        (slot.state == EtherTargetSlotState::Executing).then_some(cid)
    }

    /// Returns the slot of an outstanding Asynchronous Event Request: identifiers are slots, and none is used twice.
    #[must_use]
    pub fn event_request_of(&self, cid: u16) -> Option<u16> {
        self.slot_of(cid)
    }

    /// Sets the class of the command's namespace; its response has this class unless the command specifies another.
    pub fn set_class(&mut self, slot: u16, class: Class) {
        let slot = self.slots.get_mut(slot);
        if slot.is_unclassed {
            slot.urgency = class.urgency();
        }
    }

    /// Fills `writer` with acknowledgements, lost records, and released records, within the policy's limits. Returns
    /// false if nothing was added.
    pub fn poll_tx(&mut self, now: Instant, writer: &mut impl FrameWriter) -> bool {
        self.end.poll_tx(now, &mut self.slots, writer)
    }

    /// Responds to a command that returns no data.
    pub fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        self.push_response(now, slot, status, result, 0);
    }

    /// Responds to a command with `data_bytes` of the slot's data, at most what the host accepts, and with status
    /// success.
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
        debug_assert_eq!(
            slot.state,
            EtherTargetSlotState::Executing,
            "a command is answered exactly once"
        );
        debug_assert!(bytes <= slot.room, "more data than the host takes");
        let request_bytes = slot.bytes.max(bytes);
        let bytes = bytes.min(slot.room);
        (slot.status, slot.result, slot.room) = (status, result, bytes);
        slot.state = EtherTargetSlotState::Responding;
        slot.unsent = self.end.packer.cut.pieces(bytes) + 1;
        slot.unacked = slot.unsent;
        let (generation, urgency) = (slot.generation, slot.urgency);
        // A host reuses its lowest free slots, so the slot number shows how many commands it has in flight.
        let in_flight = u32::from(number) + 1;
        self.end.out.batcher_mut().set_in_flight(in_flight.saturating_sub(self.in_store).max(1));
        if self.end.ended().is_some() {
            return;
        }
        for (tx, data_bytes) in RequestPart::parts(self.end.packer.cut, number, generation, bytes) {
            let kind = if data_bytes > 0 { PduKind::ResponseData } else { PduKind::Response };
            self.end.out.push(now, tx, &PduInfo { kind, urgency, data_bytes, request_bytes });
        }
    }
}
