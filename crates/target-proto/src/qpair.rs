//! Target queue pair: commands and data in, completions and data out (NVMe TCP Transport, section 3.3).
//!
//! Sans-IO, the mirror of the host's: the caller passes received bytes to [`TargetQpair::poll_rx`] and executes each
//! [`TargetRxEvent::Command`]. It completes them with [`TargetQpair::request_data`], [`TargetQpair::respond`] or
//! [`TargetQpair::respond_with_data`]. A slot lives from its command until its response was sent ([`TargetQpair::sent`]); the
//! caller keeps the slot's data.

use super::state::ConnectionState;
use core::iter;
use roadtrain_proto::caravan::{Caravan, put_header};
use roadtrain_proto::error::{QpairError, TermReqError};
use roadtrain_proto::framing::{FramingStep, PduFramer};
use roadtrain_proto::policy::{
    Batcher, CaravanLoad, Class, DoorbellTotals, PduInfo, PduKind, PolicyConfig, PolicyRole,
    SendQueue, Urgency,
};
use roadtrain_proto::slots::SLOTS_MAX;
use roadtrain_proto::time::Instant;
use roadtrain_proto::view::view;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, Fes, H2cData, IcReq, IcResp,
    PduLayout, PduType, R2t, TermReq, alignment_bytes, flag,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;

/// Parameters that a target grants a connection.
#[derive(Clone, Copy, Debug)]
pub struct TargetQpairConfig {
    /// Digests granted on request.
    pub digests: Digests,
    /// MAXH2CDATA: data of an H2CData PDU in bytes, at most; a multiple of 4, at least 4,096.
    pub maxh2cdata: u32,
    /// In-capsule data in bytes, at most.
    pub in_capsule_bytes_max: u32,
    pub policy: PolicyConfig,
}

/// Entries of a queue before its Connect command sets their number.
const ENTRIES_BEFORE_CONNECT: u16 = 32;
/// SQHD that confirms operation without SQ flow control (NVMe Base 2.0, section 6.3, Connect response).
pub const SQHD_NO_FLOW_CONTROL: u16 = 0xffff;

/// Event of received data. It borrows the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRxEvent<'a> {
    /// ICReq: the connection is initialized.
    Initialized,
    /// A command. In-capsule data follows, with a `DataDone` event.
    Command {
        /// Slot of the command until its response was sent.
        slot: u16,
        sqe: &'a Sqe,
        /// Bytes of in-capsule data.
        in_capsule_bytes: u32,
    },
    /// The command requires whole blocks ([`TargetQpair::deliver_whole`]), but the next data ends inside of one, and its rest
    /// arrives later. From now on data is delivered as it arrives.
    SplitBlock {
        slot: u16,
        /// Offset in the command's data, a multiple of the block, from which data is delivered as it arrives.
        offset: u32,
    },
    /// All data of the command has arrived.
    DataDone {
        slot: u16,
        /// True if every data digest was correct.
        intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetSlotState {
    Free,
    /// The command's R2T waits in the FIFO.
    Requesting,
    /// The command's data is arriving: in-capsule, or after an R2T.
    Receiving {
        by_r2t: bool,
    },
    /// The caller executes it.
    Executing,
    /// The command's response waits in the FIFO.
    Responding,
    /// The command's response is in the caravan.
    Departing,
}

#[derive(Clone, Copy, Debug)]
struct TargetSlot {
    cid: u16,
    state: TargetSlotState,
    corrupt: bool,
    urgency: Urgency,
    /// True if the command sets no urgency itself.
    is_unclassed: bool,
    /// True for an Asynchronous Event Request.
    is_event_request: bool,
    /// Bytes of data, expected while receiving, to send while responding.
    data_bytes: u32,
    received: u32,
    /// Unit of data delivery in bytes.
    block_bytes: u32,
    result: u64,
    status: Status,
    /// Time of the response.
    answered: Instant,
}

#[derive(Clone, Copy, Debug)]
enum TargetTx {
    IcResp,
    R2t { slot: u16 },
    Response { slot: u16 },
    Term { error: TermReqError },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetRxState {
    AwaitIcReq,
    Ready,
    InData { slot: u16, last: bool },
    Ended,
}

/// A target queue pair.
pub struct TargetQpair {
    config: TargetQpairConfig,
    framer: PduFramer,
    rx: TargetRxState,
    digests: Digests,
    /// HPDA in bytes.
    alignment: u32,
    entries: u16,
    sqhd: u16,
    sq_flow_control: bool,
    is_io: bool,
    class: Class,
    in_store: u32,
    slots: Vec<TargetSlot>,
    free: Vec<u16>,
    departing: Vec<u16>,
    out: SendQueue<TargetTx>,
}

impl TargetQpair {
    /// Creates the queue pair of a new connection.
    #[must_use]
    pub fn new(config: TargetQpairConfig) -> Self {
        TargetQpair {
            config,
            framer: PduFramer::new(true),
            rx: TargetRxState::AwaitIcReq,
            digests: Digests::default(),
            alignment: 1,
            entries: ENTRIES_BEFORE_CONNECT,
            sqhd: 0,
            sq_flow_control: true,
            is_io: false,
            class: Class::Normal,
            in_store: 0,
            slots: Vec::new(),
            free: Vec::new(),
            departing: Vec::new(),
            out: SendQueue::new(&config.policy, PolicyRole::Target),
        }
    }

    /// Applies a successful Connect: queue `qid` has `entries` entries (SQSIZE + 1), and its commands have `class`
    /// unless they or their namespace set another one.
    pub fn set_connected(&mut self, qid: u16, entries: u16, sq_flow_control: bool, class: Class) {
        self.is_io = qid > 0;
        self.entries = entries;
        self.class = class;
        self.sq_flow_control = sq_flow_control;
        if !sq_flow_control {
            self.sqhd = SQHD_NO_FLOW_CONTROL;
        }
    }

    /// Returns the negotiated digests.
    #[must_use]
    #[inline]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Sets the number of commands in a slow store, which keep neither end busy.
    pub fn set_in_store(&mut self, commands: u32) {
        self.in_store = commands;
    }

    /// Returns the number of commands received whose responses were not sent.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// Returns the number of doorbells rung.
    #[must_use]
    #[inline]
    pub fn doorbells(&self) -> DoorbellTotals {
        self.out.batcher().doorbells()
    }

    /// Returns the batching state, with deadline and doorbells; the lane reports when a turn is drained.
    #[inline]
    pub fn batcher(&mut self) -> &mut Batcher {
        self.out.batcher_mut()
    }

    /// Returns the command identifier of a slot.
    #[must_use]
    pub fn cid(&self, slot: u16) -> u16 {
        self.slots[usize::from(slot)].cid
    }

    /// Returns the slot of an executing command, other than an Asynchronous Event Request.
    #[must_use]
    pub fn slot_of(&self, cid: u16) -> Option<u16> {
        self.executing(cid, false)
    }

    /// Returns the slot of an outstanding Asynchronous Event Request.
    #[must_use]
    pub fn event_request_of(&self, cid: u16) -> Option<u16> {
        self.executing(cid, true)
    }

    fn executing(&self, cid: u16, is_event_request: bool) -> Option<u16> {
        let found = |slot: &TargetSlot| {
            slot.cid == cid
                && slot.state == TargetSlotState::Executing
                && slot.is_event_request == is_event_request
        };
        self.slots.iter().position(found).map(|number| number as u16)
    }

    /// Frees the slot of an outstanding Asynchronous Event Request whose identifier is reused: hosts consider these
    /// requests ended before they shut a controller down. No completion is sent.
    fn retire_event_request(&mut self, cid: u16) {
        if let Some(number) = self.event_request_of(cid) {
            self.slots[usize::from(number)].state = TargetSlotState::Free;
            self.free.push(number);
        }
    }

    /// Returns the slot of a command without a response, and whether its data is still to arrive.
    #[must_use]
    pub fn unanswered(&self, cid: u16) -> Option<(u16, bool)> {
        let awaits_data = |slot: &TargetSlot| match slot.state {
            TargetSlotState::Executing => Some(false),
            TargetSlotState::Requesting | TargetSlotState::Receiving { .. } => Some(true),
            TargetSlotState::Free | TargetSlotState::Responding | TargetSlotState::Departing => {
                None
            }
        };
        let mut slots = (0u16..).zip(&self.slots).filter(|(_, slot)| slot.cid == cid);
        slots.find_map(|(number, slot)| Some((number, awaits_data(slot)?)))
    }

    /// True if data of the command in a slot is still to arrive.
    #[must_use]
    pub fn awaits_data(&self, slot: u16) -> bool {
        let slot = self.slots.get(usize::from(slot));
        slot.is_some_and(|slot| {
            matches!(slot.state, TargetSlotState::Requesting | TargetSlotState::Receiving { .. })
        })
    }

    /// Returns the next bytes that may be received straight into a slot's data: slot, offset, length. `None` for a
    /// command that requires whole blocks.
    #[must_use]
    #[inline]
    pub fn wanted(&self) -> Option<(u16, u32, u32)> {
        let TargetRxState::InData { slot: number, .. } = self.rx else { return None };
        let (slot, length) = (&self.slots[usize::from(number)], self.framer.wanted());
        (length > 0 && slot.block_bytes == 1).then_some((number, slot.received, length))
    }

    /// Returns the number of next bytes that belong to a command that requires whole blocks.
    #[must_use]
    #[inline]
    pub fn whole_left(&self) -> u32 {
        let TargetRxState::InData { slot, .. } = self.rx else { return 0 };
        if self.slots[usize::from(slot)].block_bytes == 1 { 0 } else { self.framer.wanted() }
    }

    /// Returns the part of the next `available` bytes that may be received straight into the data of a command that
    /// requires whole blocks: slot, offset, length. All of it has to be received at once, as no block may stay half
    /// received.
    #[must_use]
    pub fn wanted_whole(&self, available: usize) -> Option<(u16, u32, u32)> {
        let (left, TargetRxState::InData { slot: number, .. }) = (self.whole_left(), self.rx)
        else {
            return None;
        };
        let slot = &self.slots[usize::from(number)];
        let available = u32::try_from(available).unwrap_or(u32::MAX);
        let whole = if available >= left { left } else { available - available % slot.block_bytes };
        (whole > 0).then_some((number, slot.received, whole))
    }

    /// Records that bytes returned by [`TargetQpair::wanted`] or [`TargetQpair::wanted_whole`] were received into the slot's data.
    pub fn placed(&mut self, data: &[u8]) {
        if let TargetRxState::InData { slot, .. } = self.rx {
            self.framer.placed(data);
            self.slots[usize::from(slot)].received += data.len() as u32;
        }
    }

    /// Returns the next commands in `input`, up to the first other PDU, for prefetching. They are not checked.
    #[inline]
    pub fn ahead<'a>(&self, input: &'a [u8]) -> impl Iterator<Item = &'a Sqe> + use<'a> {
        let is_next = self.rx == TargetRxState::Ready && self.framer.is_at_header();
        let mut rest = if is_next { input } else { &[] };
        iter::from_fn(move || {
            let (capsule, _) = CapsuleCmd::ref_from_prefix(rest).ok()?;
            let is_command = capsule.ch.pdu_type == PduType::CapsuleCmd as u8;
            let bytes = (capsule.ch.plen.get() as usize).max(size_of::<CapsuleCmd>());
            rest = rest.get(bytes..).unwrap_or_default();
            is_command.then_some(&capsule.sqe)
        })
    }

    /// Processes `input` from `*at`. Returns `None` when it needs more bytes than `input` holds (keep those from `*at`
    /// on). Calls `fill` with a command's data, and the offset in that data.
    ///
    /// # Errors
    /// The connection has to end; a C2HTermReq is queued if the peer is at fault.
    #[inline]
    pub fn poll_rx<'a>(
        &mut self,
        now: Instant,
        input: &'a [u8],
        at: &mut usize,
        fill: impl FnMut(u16, u32, &[u8]),
    ) -> Result<Option<TargetRxEvent<'a>>, QpairError> {
        if *at == input.len() && self.framer.is_at_header() {
            return Ok(None); // most receives end with a PDU
        }
        let result = self.advance(now, input, at, fill);
        if let Err(error) = result {
            self.end(now, error);
        }
        result
    }

    /// Ends sending, except for a C2HTermReq to a peer that violates the protocol.
    fn end(&mut self, now: Instant, error: QpairError) {
        self.rx = TargetRxState::Ended;
        self.out.clear();
        if let QpairError::Peer(error) = error {
            self.push(now, TargetTx::Term { error }, &PduInfo::control());
        }
    }

    fn push(&mut self, now: Instant, tx: TargetTx, parcel: &PduInfo) {
        if self.rx == TargetRxState::Ended && !matches!(tx, TargetTx::Term { .. }) {
            return; // a command that was executing when the connection ended
        }
        self.out.push(now, tx, parcel);
    }

    fn advance<'a>(
        &mut self,
        now: Instant,
        input: &'a [u8],
        at: &mut usize,
        mut fill: impl FnMut(u16, u32, &[u8]),
    ) -> Result<Option<TargetRxEvent<'a>>, QpairError> {
        loop {
            if self.rx == TargetRxState::Ended {
                *at = input.len();
                return Ok(None);
            }
            let from = *at;
            let offered = self.offered(input.len() - from);
            let (used, step) = self.framer.next(&input[from..from + offered])?;
            *at += used;
            let event = match step {
                FramingStep::Need(_) => return Ok(None),
                FramingStep::Header(layout) => self.handle_header(now, &input[from..], &layout)?,
                FramingStep::Data(range) => {
                    self.handle_data(&input[from..][range], &mut fill);
                    None
                }
                FramingStep::DataEnd { intact } => self.handle_data_end(intact),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Returns how many of `available` bytes the framer gets: not the beginning of a block that the command requires
    /// whole.
    fn offered(&self, available: usize) -> usize {
        let TargetRxState::InData { slot, .. } = self.rx else { return available };
        let (slot, (skip, left)) = (&self.slots[usize::from(slot)], self.framer.data_left());
        let data = available.saturating_sub(skip as usize);
        if slot.block_bytes == 1 || data >= left as usize {
            return available;
        }
        // The delivered data ends with a block, because otherwise the command would not require whole blocks any more.
        available - data % slot.block_bytes as usize
    }

    fn handle_header<'a>(
        &mut self,
        now: Instant,
        pdu: &'a [u8],
        layout: &PduLayout,
    ) -> Result<Option<TargetRxEvent<'a>>, QpairError> {
        let is_new = self.rx == TargetRxState::AwaitIcReq;
        let state =
            if is_new { ConnectionState::Initializing } else { ConnectionState::Connecting };
        if !state.takes(layout.kind) {
            return Err(TermReqError::new(Fes::PduSequenceError, "ICReq out of order").into());
        }
        match layout.kind {
            PduType::IcReq => self.handle_icreq(now, view(pdu)?),
            PduType::CapsuleCmd => self.handle_command(view(pdu)?, layout.data_bytes),
            PduType::H2cData => self.handle_h2c_data(view(pdu)?, layout.data_bytes),
            PduType::H2cTermReq => {
                let term: &TermReq = view(pdu)?;
                let (fes, fei) = (term.fes.get(), u32::from_le_bytes(term.fei));
                Err(QpairError::Terminated { fes, fei })
            }
            _ => Err(TermReqError::new(Fes::PduSequenceError, "PDU a target never gets").into()),
        }
    }

    fn handle_icreq<'a>(
        &mut self,
        now: Instant,
        pdu: &IcReq,
    ) -> Result<Option<TargetRxEvent<'a>>, QpairError> {
        if pdu.pfv.get() != 0 {
            let what = "PDU format version";
            return Err(TermReqError { fes: Fes::UnsupportedParameter, fei: 8, what }.into());
        }
        self.alignment =
            alignment_bytes(pdu.hpda).ok_or(TermReqError::field(10, "HPDA above 31"))?;
        let requested =
            Digests::from_byte(pdu.dgst).ok_or(TermReqError::field(11, "reserved digest bits"))?;
        let granted = self.config.digests;
        self.digests = Digests {
            header: requested.header && granted.header,
            data: requested.data && granted.data,
        };
        self.rx = TargetRxState::Ready;
        // The target's own CPDA is 0: data from the host is aligned to dwords.
        self.framer.agree(self.digests, 4);
        self.push(now, TargetTx::IcResp, &PduInfo::control());
        Ok(Some(TargetRxEvent::Initialized))
    }

    fn handle_command<'a>(
        &mut self,
        pdu: &'a CapsuleCmd,
        in_capsule_bytes: u32,
    ) -> Result<Option<TargetRxEvent<'a>>, QpairError> {
        if in_capsule_bytes > self.config.in_capsule_bytes_max {
            let what = "in-capsule data above IOCCSZ";
            return Err(TermReqError { fes: Fes::LimitExceeded, fei: 4, what }.into());
        }
        if !self.is_io {
            self.retire_event_request(pdu.sqe.cid.get());
        }
        // A queue of N entries holds N - 1 commands; the response that frees a slot may be in a caravan.
        if self.in_flight() >= u32::from(self.entries) + self.departing.len() as u32 {
            let what = "more commands than the submission queue holds";
            return Err(TermReqError::new(Fes::PduSequenceError, what).into());
        }
        // The control plane identifies commands that it completes later by that identifier.
        if !self.is_io && self.unanswered(pdu.sqe.cid.get()).is_some() {
            let what = "a command identifier that another command of the admin queue has";
            return Err(TermReqError::field(10, what).into());
        }
        if self.sq_flow_control {
            self.sqhd = (self.sqhd + 1) % self.entries;
        }
        let slot = self.take_slot(&pdu.sqe, in_capsule_bytes);
        if in_capsule_bytes > 0 {
            self.rx = TargetRxState::InData { slot, last: true };
        }
        Ok(Some(TargetRxEvent::Command { slot, sqe: &pdu.sqe, in_capsule_bytes }))
    }

    fn take_slot(&mut self, sqe: &Sqe, data_bytes: u32) -> u16 {
        let state = match data_bytes {
            0 => TargetSlotState::Executing,
            _ => TargetSlotState::Receiving { by_r2t: false },
        };
        let (result, status) = (0, Status::SUCCESS);
        let (urgency, is_unclassed) = urgency_of(sqe, self.is_io, self.class);
        let slot = TargetSlot {
            cid: sqe.cid.get(),
            state,
            corrupt: false,
            urgency,
            is_unclassed,
            is_event_request: !self.is_io && sqe.opcode == opcode::ASYNC_EVENT_REQUEST,
            data_bytes,
            received: 0,
            block_bytes: 1,
            result,
            status,
            answered: Instant::default(),
        };
        if let Some(number) = self.free.pop() {
            self.slots[usize::from(number)] = slot;
            return number;
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u16
    }

    /// Applies the class of the command's namespace to its R2T and response, unless the command sets its own.
    pub fn set_class(&mut self, slot: u16, class: Class) {
        let slot = &mut self.slots[usize::from(slot)];
        if slot.is_unclassed {
            slot.urgency = class.urgency();
        }
    }

    /// Makes the command's data be delivered in whole blocks of `block_bytes`, each at once: the bytes of an incomplete
    /// one stay in the input. To call before any data was received.
    pub fn deliver_whole(&mut self, slot: u16, block_bytes: u32) {
        let slot = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(slot.received, 0, "the first block may have been delivered in parts");
        slot.block_bytes = block_bytes.max(1);
    }

    /// Requests the command's `data_bytes` from the host (R2T); data and a `DataDone` event follow.
    pub fn request_data(&mut self, now: Instant, slot: u16, data_bytes: u32) {
        let s = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(
            s.state,
            TargetSlotState::Executing,
            "R2T for a command that has its data"
        );
        s.state = TargetSlotState::Requesting;
        s.data_bytes = data_bytes;
        let (kind, urgency) = (PduKind::R2t, s.urgency);
        let parcel = PduInfo { kind, urgency, data_bytes: 0, request_bytes: data_bytes };
        self.push(now, TargetTx::R2t { slot }, &parcel);
    }

    fn handle_h2c_data<'a>(
        &mut self,
        pdu: &H2cData,
        data_bytes: u32,
    ) -> Result<Option<TargetRxEvent<'a>>, QpairError> {
        if data_bytes > self.config.maxh2cdata {
            return Err(TermReqError::new(Fes::LimitExceeded, "H2CData above MAXH2CDATA").into());
        }
        if data_bytes == 0 || pdu.datal.get() != data_bytes {
            return Err(TermReqError::field(16, "DATAL and PLEN disagree").into());
        }
        let number = pdu.ttag.get();
        let Some(slot) = self.slots.get(usize::from(number)) else {
            return Err(TermReqError::field(10, "TTAG of no R2T").into());
        };
        if slot.state != (TargetSlotState::Receiving { by_r2t: true }) {
            return Err(TermReqError::field(10, "TTAG of no R2T outstanding").into());
        }
        if slot.cid != pdu.cccid.get() {
            return Err(TermReqError::field(8, "CCCID does not belong to TTAG").into());
        }
        let end = pdu.datao.get().checked_add(data_bytes);
        if pdu.datao.get() != slot.received || end.is_none_or(|end| end > slot.data_bytes) {
            let what = "H2CData outside of its R2T or out of order";
            return Err(TermReqError::new(Fes::DataTransferOutOfRange, what).into());
        }
        let last = end == Some(slot.data_bytes);
        if (pdu.ch.flags & flag::LAST != 0) != last {
            return Err(TermReqError::field(1, "LAST in the wrong H2CData").into());
        }
        self.rx = TargetRxState::InData { slot: number, last };
        let slot = &mut self.slots[usize::from(number)];
        if last || end.is_none_or(|end| end.is_multiple_of(slot.block_bytes)) {
            return Ok(None);
        }
        slot.block_bytes = 1;
        Ok(Some(TargetRxEvent::SplitBlock { slot: number, offset: slot.received }))
    }

    #[inline]
    fn handle_data(&mut self, data: &[u8], fill: &mut impl FnMut(u16, u32, &[u8])) {
        let TargetRxState::InData { slot: number, .. } = self.rx else { return };
        let slot = &mut self.slots[usize::from(number)];
        fill(number, slot.received, data);
        slot.received += data.len() as u32;
    }

    #[inline]
    fn handle_data_end<'a>(&mut self, intact: bool) -> Option<TargetRxEvent<'a>> {
        let TargetRxState::InData { slot: number, last } = self.rx else { return None };
        self.rx = TargetRxState::Ready;
        let slot = &mut self.slots[usize::from(number)];
        slot.corrupt |= !intact;
        if !last {
            return None;
        }
        slot.state = TargetSlotState::Executing;
        Some(TargetRxEvent::DataDone { slot: number, intact: !slot.corrupt })
    }

    /// Queues the response of a command that returns no data.
    pub fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64) {
        self.push_response(now, slot, status, result, 0);
    }

    /// Queues a successful response with `data_bytes` of the slot's data.
    #[inline]
    pub fn respond_with_data(&mut self, now: Instant, slot: u16, data_bytes: u32, result: u64) {
        self.push_response(now, slot, Status::SUCCESS, result, data_bytes);
    }

    #[inline]
    fn push_response(&mut self, now: Instant, slot: u16, status: Status, result: u64, bytes: u32) {
        let s = &mut self.slots[usize::from(slot)];
        debug_assert_eq!(s.state, TargetSlotState::Executing, "a command is answered exactly once");
        if s.state != TargetSlotState::Executing {
            return; // another command has the slot by now, and its data
        }
        // The identifiers show how many commands are in flight at a host that reuses its lowest free ones.
        let in_flight = u32::from(s.cid & (SLOTS_MAX - 1)) + 1;
        self.out.batcher_mut().set_in_flight(in_flight.saturating_sub(self.in_store).max(1));
        s.state = TargetSlotState::Responding;
        let request_bytes = s.data_bytes.max(bytes);
        (s.status, s.result, s.data_bytes) = (status, result, bytes);
        s.answered = now;
        let kind = if bytes > 0 { PduKind::ResponseData } else { PduKind::Response };
        let parcel = PduInfo { kind, urgency: s.urgency, data_bytes: bytes, request_bytes };
        self.push(now, TargetTx::Response { slot }, &parcel);
    }

    /// Fills `caravan` with released entries, within the policy's limits. Returns false if none was added.
    pub fn poll_tx(&mut self, caravan: &mut impl Caravan) -> bool {
        let mut load = CaravanLoad::default();
        while caravan.has_capacity() {
            let slots = &self.slots;
            let size = |tx: &TargetTx| match *tx {
                TargetTx::Response { slot } => slots[usize::from(slot)].data_bytes,
                _ => 0,
            };
            let Some(tx) = self.out.next(&mut load, size, |_| false) else { break };
            self.emit(&tx, caravan);
        }
        load.count() > 0
    }

    /// True if released entries wait for a caravan.
    #[must_use]
    #[inline]
    pub fn has_tx(&self) -> bool {
        self.out.batcher().released() > 0
    }

    fn emit(&mut self, tx: &TargetTx, caravan: &mut impl Caravan) {
        match *tx {
            TargetTx::IcResp => {
                let pdu = IcResp::new(self.digests, 0, self.config.maxh2cdata);
                put_header(caravan, &pdu.ch, &pdu, Digests::default());
            }
            TargetTx::R2t { slot } => self.emit_r2t(slot, caravan),
            TargetTx::Response { slot } => self.emit_response(slot, caravan),
            TargetTx::Term { error } => {
                let pdu = TermReq::new(false, error.fes, error.fei, 0);
                put_header(caravan, &pdu.ch, &pdu, Digests::default());
            }
        }
    }

    fn emit_r2t(&mut self, number: u16, caravan: &mut impl Caravan) {
        let slot = &mut self.slots[usize::from(number)];
        slot.state = TargetSlotState::Receiving { by_r2t: true };
        let ch = CommonHeader::new(PduType::R2t, 0, self.digests, 1);
        let (cccid, ttag) = (slot.cid.into(), number.into());
        let (r2to, r2tl) = (0.into(), slot.data_bytes.into());
        let pdu = R2t { ch, cccid, ttag, r2to, r2tl, reserved: [0; 4] };
        put_header(caravan, &ch, &pdu, self.digests);
    }

    fn emit_response(&mut self, number: u16, caravan: &mut impl Caravan) {
        let slot = &mut self.slots[usize::from(number)];
        slot.state = TargetSlotState::Departing;
        self.departing.push(number);
        let slot = *slot;
        if slot.data_bytes > 0 {
            // Without SQ flow control SQHD is not needed: the data PDU itself reports success.
            let success = !self.sq_flow_control && slot.result == 0;
            self.emit_data(number, &slot, success, caravan);
            if success {
                return;
            }
        }
        let mut cqe = Cqe::new(slot.cid, slot.status).with_result(slot.result);
        cqe.sqhd = self.sqhd.into();
        let ch = CommonHeader::new(PduType::CapsuleResp, 0, self.digests, 1);
        put_header(caravan, &ch, &CapsuleResp { ch, cqe }, self.digests);
    }

    #[inline]
    fn emit_data(&self, number: u16, slot: &TargetSlot, success: bool, caravan: &mut impl Caravan) {
        let length = slot.data_bytes;
        let mut ch = CommonHeader::new(PduType::C2hData, length, self.digests, self.alignment);
        ch.flags |= flag::LAST | if success { flag::SUCCESS } else { 0 };
        let pdu = C2hData {
            ch,
            cccid: slot.cid.into(),
            reserved: [0; 2],
            datao: 0.into(),
            datal: length.into(),
            reserved2: [0; 4],
        };
        put_header(caravan, &ch, &pdu, self.digests);
        caravan.payload(number, 0, length, self.digests.data);
    }

    /// Returns the slots whose responses are in the caravan.
    #[must_use]
    #[inline]
    pub fn departing(&self) -> &[u16] {
        &self.departing
    }

    /// Returns when the response of a slot was queued.
    #[must_use]
    pub fn answered(&self, slot: u16) -> Instant {
        self.slots[usize::from(slot)].answered
    }

    /// Records that the caravan was sent: its slots are free again. Passes each to `release` with its command's
    /// identifier and the time of its response.
    #[inline]
    pub fn sent(&mut self, mut release: impl FnMut(u16, u16, Instant)) {
        for number in self.departing.drain(..) {
            let slot = &mut self.slots[usize::from(number)];
            slot.state = TargetSlotState::Free;
            self.free.push(number);
            release(number, slot.cid, slot.answered);
        }
    }
}

/// Returns the urgency of a command. Admin and fabrics commands are urgent; others may set a class, or use that of
/// their namespace and connection, `class` (then the second value is true).
#[inline]
#[must_use]
pub fn urgency_of(sqe: &Sqe, is_io: bool, class: Class) -> (Urgency, bool) {
    let said = match sqe.opcode {
        opcode::FABRICS => return (Urgency::Urgent, false),
        _ if !is_io => return (Urgency::Urgent, false),
        opcode::READ | opcode::WRITE => Class::from_dsm(sqe.cdw13.get()),
        _ => None,
    };
    (said.unwrap_or(class).urgency(), said.is_none())
}
