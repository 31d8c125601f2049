//! Host queue pair: commands and data out, completions and data in (NVMe TCP Transport, section 3.3).
//!
//! Sans-IO. The caller passes received bytes to [`HostQpair::poll_rx`] until it needs more, and takes bytes to send from
//! [`HostQpair::poll_tx`]. A command is a *slot* from [`HostQpair::submit`] to [`HostRxEvent::Complete`]; the caller keeps the
//! slot's data buffer. Each slot completes exactly once.

mod fused;
mod tx;

use fused::FusedPair;
use roadtrain_proto::caravan::{Caravan, put_header};
use roadtrain_proto::error::{QpairError, TermReqError};
use roadtrain_proto::framing::{FramingStep, PduFramer};
use roadtrain_proto::policy::{
    Batcher, CaravanLoad, DoorbellTotals, PduInfo, PduKind, PolicyConfig, PolicyRole, SendQueue,
    Urgency,
};
use roadtrain_proto::slots::{FreeSlots, GENERATIONS, SLOT_BITS, SLOTS_MAX};
use roadtrain_proto::time::Instant;
use roadtrain_proto::view::view;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::fabrics::FABRICS_IN_CAPSULE_BYTES;
use roadtrain_wire::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, Fes, H2cData, IcReq, IcResp,
    PduLayout, PduType, R2t, TermReq, alignment_bytes, flag,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use tx::HostTx;

const R2T_OUTSTANDING_MAX: u8 = 1;

/// Parameters of a host's connection.
#[derive(Clone, Copy, Debug)]
pub struct HostQpairConfig {
    /// Digests to request.
    pub digests: Digests,
    /// Entries of the queue: commands in flight at most one less, at most [`SLOTS_MAX`].
    pub queue_entries: u16,
    /// Bytes of in-capsule data that the controller takes: 0 until its IOCCSZ is known (Connect always may carry
    /// 1,024).
    pub in_capsule_bytes: u32,
    pub policy: PolicyConfig,
}

/// Data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTransfer {
    None,
    /// Bytes that the controller sends.
    In(u32),
    /// Bytes that the host sends.
    Out(u32),
}

impl CommandTransfer {
    /// Returns the number of bytes, in either direction.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            CommandTransfer::None => 0,
            CommandTransfer::In(bytes) | CommandTransfer::Out(bytes) => bytes,
        }
    }

    /// Returns the bytes that the host sends.
    #[inline]
    #[must_use]
    pub fn out_bytes(self) -> u32 {
        if let CommandTransfer::Out(bytes) = self { bytes } else { 0 }
    }
}

/// Event of the receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRxEvent {
    /// The connection is initialised. Commands may be submitted before that, too.
    Ready,
    /// The command is complete; the slot is free.
    Complete {
        slot: u16,
        /// Completion queue entry: success after a C2HData with the SUCCESS flag, Transient Transport Error after a
        /// wrong data digest.
        cqe: Cqe,
        /// True if all data of the command was transferred with correct data digests. Data may be short if the command
        /// failed; the caller must not trust a success without it.
        data_intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QpairSlotState {
    Free,
    /// In the send queue, and unknown to the controller.
    Queued,
    /// Sent, and not completed.
    Active,
    /// Completed, while its fused partner is still in flight.
    Completed,
}

#[derive(Clone, Copy, Debug)]
struct QpairSlot {
    sqe: Sqe,
    data: CommandTransfer,
    state: QpairSlotState,
    generation: u8,
    in_capsule: bool,
    corrupt: bool,
    urgency: Urgency,
    /// H2CData PDUs that are queued and not in a caravan yet.
    r2t_outstanding: u8,
    /// Bytes received (In) or requested by R2Ts (Out).
    moved: u32,
    timestamps: CommandTimestamps,
}

/// Timestamps of the last command in a slot, as far as it has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CommandTimestamps {
    /// Time of submission.
    pub submitted: Instant,
    /// Time at which it was added to a caravan.
    pub sent: Instant,
    /// Time at which a first part of its data had been received. Unchanged if all data comes at once.
    pub data: Instant,
}

impl QpairSlot {
    /// Returns the bytes of in-capsule data.
    #[inline]
    fn in_capsule_bytes(&self) -> u32 {
        match self.data {
            CommandTransfer::Out(length) if self.in_capsule => length,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostRxState {
    AwaitIcResp,
    Ready,
    /// In the data of a C2HData PDU.
    InData {
        slot: u16,
        flags: u8,
    },
    /// In the data of a C2HTermReq PDU, or after an error.
    Ended,
}

/// Host queue pair.
pub struct HostQpair {
    config: HostQpairConfig,
    framer: PduFramer,
    rx: HostRxState,
    digests: Digests,
    /// CPDA in bytes: H2CData and in-capsule data start at multiples of it.
    alignment: u32,
    maxh2cdata: u32,
    slots: Vec<QpairSlot>,
    free: FreeSlots,
    /// Fused commands in flight.
    fused: Vec<FusedPair>,
    out: SendQueue<HostTx>,
    /// Time of the current turn.
    now: Instant,
}

impl HostQpair {
    /// Creates the queue pair of a new connection; its ICReq is ready to be sent.
    ///
    /// # Panics
    /// When `queue_entries` is below 2 or above [`SLOTS_MAX`].
    #[must_use]
    pub fn new(now: Instant, config: HostQpairConfig) -> Self {
        assert!((2..=SLOTS_MAX).contains(&config.queue_entries), "queue entries out of range");
        let mut qpair = HostQpair {
            config,
            framer: PduFramer::new(false),
            rx: HostRxState::AwaitIcResp,
            digests: Digests::default(),
            alignment: 1,
            maxh2cdata: 4096,
            slots: Vec::new(),
            free: FreeSlots::default(),
            fused: Vec::new(),
            out: SendQueue::new(&config.policy, PolicyRole::Host),
            now,
        };
        qpair.out.push(now, HostTx::IcReq, &PduInfo::control());
        qpair
    }

    /// True if ICResp was received and the connection has not failed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !matches!(self.rx, HostRxState::AwaitIcResp | HostRxState::Ended)
    }

    /// Returns the negotiated digests.
    #[must_use]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Sets the in-capsule data size once Identify Controller's IOCCSZ is known.
    pub fn set_in_capsule_bytes(&mut self, bytes: u32) {
        self.config.in_capsule_bytes = bytes;
    }

    /// Changes the policy of an idle queue pair (the connect phase sends without batching).
    pub fn set_policy(&mut self, policy: PolicyConfig) {
        debug_assert!(self.out.is_empty(), "policy changed under waiting requests");
        self.config.policy = policy;
        self.out = SendQueue::new(&policy, PolicyRole::Host);
    }

    /// Returns the number of commands that may be submitted now.
    #[must_use]
    #[inline]
    pub fn room(&self) -> u32 {
        let used = self.slots.len() - self.free.count();
        u32::from(self.config.queue_entries - 1).saturating_sub(used as u32)
    }

    /// Returns the number of commands in flight.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.count()) as u32
    }

    /// Returns the command identifier of the command in `slot`.
    #[must_use]
    pub fn cid(&self, slot: u16) -> u16 {
        self.slots[usize::from(slot)].sqe.cid.get()
    }

    /// Returns the command in `slot`, also just after it has completed.
    #[must_use]
    pub fn command(&self, slot: u16) -> (&Sqe, CommandTransfer) {
        let slot = &self.slots[usize::from(slot)];
        (&slot.sqe, slot.data)
    }

    /// Returns the timestamps of the command in `slot`, also just after it has completed.
    #[must_use]
    pub fn timestamps(&self, slot: u16) -> CommandTimestamps {
        self.slots[usize::from(slot)].timestamps
    }

    /// Sets the timestamp of PDUs that [`HostQpair::poll_tx`] sends from now on.
    #[inline]
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Records the receive time of a command's first data, once all received bytes are processed and end within its
    /// data.
    #[inline]
    pub fn note_data(&mut self, now: Instant) {
        if let HostRxState::InData { slot, .. } = self.rx {
            let QpairSlot { timestamps, .. } = &mut self.slots[usize::from(slot)];
            if timestamps.data < timestamps.sent {
                timestamps.data = now;
            }
        }
    }

    /// Queues a command, and fills in the CID and SGL of `sqe`. `None` if the queue is full.
    #[inline]
    pub fn submit(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        urgency: Urgency,
    ) -> Option<u16> {
        if self.room() == 0 || self.rx == HostRxState::Ended {
            return None;
        }
        let (number, data_bytes) = self.prepare(now, sqe, data, urgency);
        let kind = if data_bytes > 0 { PduKind::CommandData } else { PduKind::Command };
        let parcel = PduInfo { kind, urgency, data_bytes, request_bytes: data.bytes() };
        self.count_in_flight();
        self.out.push(now, HostTx::Command { slot: number }, &parcel);
        Some(number)
    }

    /// Prepares a slot for a command. Returns its number, and the bytes of in-capsule data.
    #[inline(always)] // one copy for a single command, one for a pair
    fn prepare(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        urgency: Urgency,
    ) -> (u16, u32) {
        let number = self.take_slot();
        let in_capsule_bytes = self.config.in_capsule_bytes;
        let slot = &mut self.slots[usize::from(number)];
        slot.generation = slot.generation.wrapping_add(1) % GENERATIONS;
        slot.sqe = *sqe;
        slot.sqe.cid = (number | u16::from(slot.generation) << SLOT_BITS).into();
        slot.data = data;
        slot.state = QpairSlotState::Queued;
        slot.corrupt = false;
        slot.urgency = urgency;
        slot.moved = 0;
        slot.r2t_outstanding = 0;
        slot.timestamps.submitted = now;
        let (in_capsule, waiting_bytes) = match data {
            CommandTransfer::None => (false, 0),
            CommandTransfer::In(length) => {
                slot.sqe.set_transport(length);
                (false, 0)
            }
            CommandTransfer::Out(length)
                if length <= in_capsule_bytes_max(sqe, in_capsule_bytes) =>
            {
                slot.sqe.set_in_capsule(length);
                (true, length)
            }
            CommandTransfer::Out(length) => {
                slot.sqe.set_transport(length);
                (false, 0)
            }
        };
        slot.in_capsule = in_capsule;
        (number, waiting_bytes)
    }

    #[inline]
    fn count_in_flight(&mut self) {
        let in_flight = self.in_flight();
        self.out.batcher_mut().set_in_flight(in_flight);
    }

    #[inline]
    fn take_slot(&mut self) -> u16 {
        self.free.take().unwrap_or_else(|| {
            self.slots.push(QpairSlot {
                sqe: Sqe::default(),
                data: CommandTransfer::None,
                state: QpairSlotState::Free,
                generation: 0,
                in_capsule: false,
                corrupt: false,
                urgency: Urgency::Normal,
                r2t_outstanding: 0,
                moved: 0,
                timestamps: CommandTimestamps::default(),
            });
            (self.slots.len() - 1) as u16
        })
    }

    /// Returns the doorbells that were rung so far.
    #[must_use]
    #[inline]
    pub fn doorbells(&self) -> DoorbellTotals {
        self.out.batcher().doorbells()
    }

    /// Returns the batching state: deadline, doorbells. The lane reports when a turn is drained.
    #[inline]
    pub fn batcher(&mut self) -> &mut Batcher {
        self.out.batcher_mut()
    }

    /// Returns where the next received bytes belong, if they are data: slot, offset, length.
    #[must_use]
    #[inline]
    pub fn wanted(&self) -> Option<(u16, u32, u32)> {
        match (self.rx, self.framer.wanted()) {
            (_, 0) => None,
            (HostRxState::InData { slot, .. }, length) => {
                Some((slot, self.slots[usize::from(slot)].moved, length))
            }
            _ => None,
        }
    }

    /// Records that bytes named by [`HostQpair::wanted`] were received into their buffer.
    pub fn placed(&mut self, data: &[u8]) {
        if let HostRxState::InData { slot, .. } = self.rx {
            self.framer.placed(data);
            self.slots[usize::from(slot)].moved += data.len() as u32;
        }
    }

    /// Processes `input` from `*at`; `None` if it needs more bytes than `input` holds (keep those from `*at` on). Calls
    /// `fill` with data of a slot, and its offset in the slot's buffer.
    ///
    /// # Errors
    /// The connection has failed; a H2CTermReq is queued if the peer is to blame.
    #[inline]
    pub fn poll_rx(
        &mut self,
        now: Instant,
        input: &[u8],
        at: &mut usize,
        fill: impl FnMut(u16, u32, &[u8]),
    ) -> Result<Option<HostRxEvent>, QpairError> {
        if *at == input.len() && self.framer.is_at_header() {
            return Ok(None); // most receives end with a PDU
        }
        let result = self.advance(now, input, at, fill);
        if let Err(error) = result {
            self.end(now, error);
        }
        result
    }

    /// Ends the queue pair: it sends nothing but a H2CTermReq to a peer that violated the protocol.
    fn end(&mut self, now: Instant, error: QpairError) {
        self.rx = HostRxState::Ended;
        self.out.clear();
        if let QpairError::Peer(error) = error {
            self.out.push(now, HostTx::Term { error }, &PduInfo::control());
        }
    }

    fn advance(
        &mut self,
        now: Instant,
        input: &[u8],
        at: &mut usize,
        mut fill: impl FnMut(u16, u32, &[u8]),
    ) -> Result<Option<HostRxEvent>, QpairError> {
        loop {
            if self.rx == HostRxState::Ended {
                *at = input.len();
                return Ok(None);
            }
            let from = *at;
            let (used, step) = self.framer.next(&input[from..])?;
            *at += used;
            let event = match step {
                FramingStep::Need(_) => return Ok(None),
                FramingStep::Header(layout) => self.handle_header(now, &input[from..], &layout)?,
                FramingStep::Data(range) => {
                    self.handle_data(&input[from..][range], &mut fill);
                    None
                }
                FramingStep::DataEnd { intact } => self.handle_data_end(now, intact)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    fn handle_header(
        &mut self,
        now: Instant,
        pdu: &[u8],
        layout: &PduLayout,
    ) -> Result<Option<HostRxEvent>, QpairError> {
        let is_setup = layout.kind == PduType::IcResp;
        if is_setup != (self.rx == HostRxState::AwaitIcResp) && layout.kind != PduType::C2hTermReq {
            return Err(TermReqError::new(Fes::PduSequenceError, "ICResp out of order").into());
        }
        match layout.kind {
            PduType::IcResp => self.handle_icresp(view(pdu)?),
            PduType::CapsuleResp => self.handle_response(now, view(pdu)?),
            PduType::C2hData => self.handle_c2h_data(view(pdu)?, layout.data_bytes),
            PduType::R2t => self.handle_r2t(now, view(pdu)?),
            PduType::C2hTermReq => {
                let term: &TermReq = view(pdu)?;
                let (fes, fei) = (term.fes.get(), u32::from_le_bytes(term.fei));
                Err(QpairError::Terminated { fes, fei })
            }
            _ => Err(TermReqError::new(Fes::PduSequenceError, "PDU a host never gets").into()),
        }
    }

    fn handle_icresp(&mut self, pdu: &IcResp) -> Result<Option<HostRxEvent>, QpairError> {
        if pdu.pfv.get() != 0 {
            return Err(TermReqError::field(8, "PDU format version").into());
        }
        let alignment =
            alignment_bytes(pdu.cpda).ok_or(TermReqError::field(10, "CPDA above 31"))?;
        let digests = Digests::from_byte(pdu.dgst)
            .filter(|d| {
                (!d.header || self.config.digests.header) && (!d.data || self.config.digests.data)
            })
            .ok_or(TermReqError::field(11, "digests that were not asked for"))?;
        if digests != self.config.digests {
            return Err(TermReqError::field(11, "controller refuses the digests asked for").into());
        }
        let maxh2cdata = pdu.maxh2cdata.get();
        if maxh2cdata < 4096 {
            return Err(TermReqError::field(12, "MAXH2CDATA below 4096").into());
        }
        self.digests = digests;
        self.alignment = alignment;
        self.maxh2cdata = maxh2cdata & !3;
        // This host's HPDA is 0: data from the controller is aligned to dwords.
        self.framer.agree(digests, 4);
        self.rx = HostRxState::Ready;
        Ok(Some(HostRxEvent::Ready))
    }

    /// Returns the active slot of a command identifier.
    fn slot(&mut self, cid: u16) -> Result<(u16, &mut QpairSlot), TermReqError> {
        let number = cid & (SLOTS_MAX - 1);
        match self.slots.get_mut(usize::from(number)) {
            Some(slot) if slot.state == QpairSlotState::Active && slot.sqe.cid.get() == cid => {
                Ok((number, slot))
            }
            _ => Err(TermReqError::field(8, "command identifier of no command in flight")),
        }
    }

    fn handle_response(
        &mut self,
        now: Instant,
        pdu: &CapsuleResp,
    ) -> Result<Option<HostRxEvent>, QpairError> {
        let cqe = pdu.cqe;
        let (number, slot) = self.slot(cqe.cid.get())?;
        let complete = match slot.data {
            CommandTransfer::In(length) => slot.moved == length,
            CommandTransfer::Out(length) => {
                slot.in_capsule || (slot.moved == length && slot.r2t_outstanding == 0)
            }
            CommandTransfer::None => true,
        };
        // Data may be short if the command failed, or (admin) if the page is.
        let data_intact = complete && !slot.corrupt;
        Ok(self.finish(now, number, cqe, data_intact))
    }

    /// Completes a command and frees its slot, unless its fused partner is still in flight.
    #[inline]
    fn finish(
        &mut self,
        now: Instant,
        number: u16,
        mut cqe: Cqe,
        data_intact: bool,
    ) -> Option<HostRxEvent> {
        self.drop_queued_data(number);
        let slot = &mut self.slots[usize::from(number)];
        slot.state = QpairSlotState::Free;
        if slot.corrupt && cqe.status().is_success() {
            // The controller cannot detect it: use the status that it reports for wrong data from the host.
            cqe.status = Status::TRANSIENT_TRANSPORT_ERROR.to_field().into();
        }
        let data_bytes = slot.data.bytes();
        if !self.fused.is_empty()
            && let Ok(ended) = self.end_fused(number, cqe, data_intact)
        {
            self.count_in_flight();
            self.out.batcher_mut().completed(now, data_bytes);
            return ended;
        }
        self.free.give(number);
        self.count_in_flight();
        self.out.batcher_mut().completed(now, data_bytes);
        Some(HostRxEvent::Complete { slot: number, cqe, data_intact })
    }

    /// Drops queued data of a command that completes early, with an error before its R2T was served.
    fn drop_queued_data(&mut self, number: u16) {
        if self.slots[usize::from(number)].r2t_outstanding == 0 {
            return;
        }
        for tx in self.out.iter_mut() {
            if let HostTx::H2cData { slot, length, .. } = tx
                && *slot == number
            {
                *length = 0;
            }
        }
    }

    fn handle_c2h_data(
        &mut self,
        pdu: &C2hData,
        data_bytes: u32,
    ) -> Result<Option<HostRxEvent>, QpairError> {
        let flags = pdu.ch.flags;
        let (number, slot) = self.slot(pdu.cccid.get())?;
        let CommandTransfer::In(expected) = slot.data else {
            return Err(TermReqError::field(8, "C2HData for a command that reads nothing").into());
        };
        if pdu.datal.get() != data_bytes {
            return Err(TermReqError::field(16, "DATAL and PLEN disagree").into());
        }
        let end = pdu.datao.get().checked_add(data_bytes);
        if pdu.datao.get() != slot.moved || end.is_none_or(|end| end > expected) {
            let what = "C2HData outside of the command's buffer or out of order";
            return Err(TermReqError::new(Fes::DataTransferOutOfRange, what).into());
        }
        if flags & flag::SUCCESS != 0 && flags & flag::LAST == 0 {
            return Err(TermReqError::field(1, "SUCCESS without LAST").into());
        }
        if data_bytes == 0 {
            return Err(TermReqError::field(16, "C2HData without data").into());
        }
        self.rx = HostRxState::InData { slot: number, flags };
        Ok(None)
    }

    #[inline]
    fn handle_data(&mut self, data: &[u8], fill: &mut impl FnMut(u16, u32, &[u8])) {
        let HostRxState::InData { slot: number, .. } = self.rx else { return };
        let slot = &mut self.slots[usize::from(number)];
        fill(number, slot.moved, data);
        slot.moved += data.len() as u32;
    }

    fn handle_data_end(
        &mut self,
        now: Instant,
        intact: bool,
    ) -> Result<Option<HostRxEvent>, QpairError> {
        let HostRxState::InData { slot: number, flags } = self.rx else { return Ok(None) };
        self.rx = HostRxState::Ready;
        let slot = &mut self.slots[usize::from(number)];
        slot.corrupt |= !intact;
        if flags & flag::SUCCESS == 0 {
            return Ok(None);
        }
        let data_intact = slot.data == CommandTransfer::In(slot.moved) && !slot.corrupt;
        let cqe = Cqe { cid: slot.sqe.cid, ..Cqe::default() };
        Ok(self.finish(now, number, cqe, data_intact))
    }

    fn handle_r2t(&mut self, now: Instant, pdu: &R2t) -> Result<Option<HostRxEvent>, QpairError> {
        let maxh2cdata = self.maxh2cdata;
        let (number, slot) = self.slot(pdu.cccid.get())?;
        let (offset, length) = (pdu.r2to.get(), pdu.r2tl.get());
        let CommandTransfer::Out(expected) = slot.data else {
            return Err(TermReqError::field(8, "R2T for a command that writes nothing").into());
        };
        let end = offset.checked_add(length);
        if slot.in_capsule
            || length == 0
            || offset != slot.moved
            || end.is_none_or(|e| e > expected)
        {
            let what = "R2T outside of the command's data or out of order";
            return Err(TermReqError::new(Fes::DataTransferOutOfRange, what).into());
        }
        if slot.r2t_outstanding >= R2T_OUTSTANDING_MAX {
            return Err(TermReqError::new(Fes::LimitExceeded, "more R2Ts than MAXR2T").into());
        }
        slot.r2t_outstanding += 1;
        slot.moved += length;
        let urgency = slot.urgency;
        let (mut offset, end) = (offset, offset + length);
        while offset < end {
            let length = maxh2cdata.min(end - offset);
            let last = offset + length == end;
            let ttag = pdu.ttag.get();
            let (kind, request_bytes) = (PduKind::H2cData, expected);
            let parcel = PduInfo { kind, urgency, data_bytes: length, request_bytes };
            self.out.push(
                now,
                HostTx::H2cData { slot: number, ttag, offset, length, last },
                &parcel,
            );
            offset += length;
        }
        Ok(None)
    }

    /// Fills `caravan` with PDUs that a doorbell has released, within the policy's limits. False if it added none.
    pub fn poll_tx(&mut self, caravan: &mut impl Caravan) -> bool {
        let mut load = CaravanLoad::default();
        let awaits_icresp = self.awaits_icresp();
        while caravan.has_capacity() {
            let slots = &self.slots;
            let (size, blocked) =
                (|tx: &HostTx| tx.data_bytes(slots), |tx: &HostTx| tx.waits(awaits_icresp));
            let Some(tx) = self.out.next(&mut load, size, blocked) else { break };
            if let HostTx::H2cData { length: 0, .. } = tx {
                load.uncount(); // its command is complete already
                continue;
            }
            self.emit(&tx, caravan);
        }
        load.count() > 0
    }

    /// True until ICResp: only ICReq may be sent, as the digests are not known.
    #[inline]
    fn awaits_icresp(&self) -> bool {
        self.rx == HostRxState::AwaitIcResp
    }

    /// True if a released PDU waits for a caravan.
    #[must_use]
    #[inline]
    pub fn has_tx(&self) -> bool {
        let awaits_icresp = self.awaits_icresp();
        self.out.is_due(|tx| tx.waits(awaits_icresp))
    }

    fn emit(&mut self, tx: &HostTx, caravan: &mut impl Caravan) {
        match *tx {
            HostTx::IcReq => {
                let maxr2t = u32::from(R2T_OUTSTANDING_MAX) - 1;
                let pdu = IcReq::new(self.config.digests, 0, maxr2t);
                put_header(caravan, &pdu.ch, &pdu, Digests::default());
            }
            HostTx::Command { slot } => self.emit_command(slot, caravan),
            HostTx::Fused { first, second } => self.emit_fused([first, second], caravan),
            HostTx::H2cData { slot, ttag, offset, length, last } => {
                self.emit_data(slot, ttag, offset, length, last, caravan);
            }
            HostTx::Term { error } => {
                let pdu = TermReq::new(true, error.fes, error.fei, 0);
                put_header(caravan, &pdu.ch, &pdu, Digests::default());
            }
        }
    }

    #[inline(always)] // as for `prepare`
    fn emit_command(&mut self, number: u16, caravan: &mut impl Caravan) {
        let slot = &mut self.slots[usize::from(number)];
        slot.state = QpairSlotState::Active;
        slot.timestamps.sent = self.now;
        let length = match slot.data {
            CommandTransfer::Out(length) if slot.in_capsule => length,
            _ => 0,
        };
        let ch = CommonHeader::new(PduType::CapsuleCmd, length, self.digests, self.alignment);
        put_header(caravan, &ch, &CapsuleCmd { ch, sqe: slot.sqe }, self.digests);
        if length > 0 {
            let (place, from) = self.data_of(number);
            caravan.payload(place, from, length, self.digests.data);
        }
    }

    fn emit_data(
        &mut self,
        number: u16,
        ttag: u16,
        offset: u32,
        length: u32,
        last: bool,
        caravan: &mut impl Caravan,
    ) {
        let slot = &mut self.slots[usize::from(number)];
        if last {
            slot.r2t_outstanding -= 1;
        }
        let mut ch = CommonHeader::new(PduType::H2cData, length, self.digests, self.alignment);
        if last {
            ch.flags |= flag::LAST;
        }
        let (cccid, ttag) = (slot.sqe.cid, ttag.into());
        let (datao, datal) = (offset.into(), length.into());
        let pdu = H2cData { ch, cccid, ttag, datao, datal, reserved: [0; 4] };
        put_header(caravan, &ch, &pdu, self.digests);
        let (place, from) = self.data_of(number);
        caravan.payload(place, from + offset, length, self.digests.data);
    }
}

/// Returns the maximum bytes of in-capsule data of a command. Data of fabrics commands always goes in the capsule, even
/// before the controller's limit is known. Linux's target never sends an R2T for an Authentication Send.
fn in_capsule_bytes_max(sqe: &Sqe, agreed: u32) -> u32 {
    match sqe.opcode {
        opcode::FABRICS => agreed.max(FABRICS_IN_CAPSULE_BYTES),
        _ => agreed,
    }
}
