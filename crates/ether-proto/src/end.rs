//! The part that both ends of a lane share: received frames, waiting records, and the end of the lane.

use super::channel::FrameArrival;
use super::frame_writer::FrameWriter;
use super::links::LaneLinks;
use super::pack::{FrameLoading, FramePacker, Item, PackedRequests, RequestPart};
use super::rejected::{BrokenRecord, Rejected};
use roadtrain_proto::policy::{CaravanLoad, DoorbellTotals, SendQueue};
use roadtrain_proto::seal::{self, FrameRefusal, OpenedFrame, Proofs, Seal, SealCipher, proves};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason};
use roadtrain_wire::ether::{FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::FromBytes;

/// A frame of the lane whose body may be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFrame<'a> {
    /// Body in clear text: in the frame, or in the buffer that it was opened to.
    pub body: &'a [u8],
    /// True if this frame makes the lane a sealed one.
    pub is_first: bool,
    /// True if the frame proves that the peer is alive and sent it. An unauthenticated Leave and a repeated sealed
    /// frame prove nothing.
    pub is_sign_of_life: bool,
}

/// An end of a lane, without its requests.
pub struct LaneEnd {
    /// Links of the lane; the caller changes socket numbers and carriers there.
    pub links: LaneLinks<Item>,
    /// Counters of dropped frames and records.
    pub rejected: Rejected,
    pub(super) packer: FramePacker,
    pub(super) out: SendQueue<RequestPart>,
    ended: Option<LeaveReason>,
    broken: Option<BrokenRecord>,
    proofs: Option<Proofs>,
}

impl LaneEnd {
    pub(super) fn new(
        links: LaneLinks<Item>,
        packer: FramePacker,
        out: SendQueue<RequestPart>,
    ) -> Self {
        let rejected = Rejected::default();
        LaneEnd { links, packer, out, rejected, ended: None, broken: None, proofs: None }
    }

    /// Seals the lane: frames leave room for a tag, and only proofs end it.
    pub(super) fn set_sealed(&mut self, proofs: Proofs) {
        self.proofs = Some(proofs);
        self.packer.set_sealed(proofs.own);
    }

    /// Adds this end's proof to Leave frames from now on, because the peer may be sealed already.
    pub fn prove_leave(&mut self, proofs: Proofs) {
        self.packer.prove_leave(proofs.own);
    }

    /// Proofs that end the lane, if it is sealed.
    #[must_use]
    pub fn proofs(&self) -> Option<Proofs> {
        self.proofs
    }

    /// Opens a frame of the lane, into `out` if it is sealed. Returns `None`, and counts the frame, if it is to be
    /// dropped. `out` must be at least as long as `body`.
    pub fn open<'a, C: SealCipher>(
        &mut self,
        now: Instant,
        seal: Option<&mut Seal<C>>,
        (header, kind, body): (&FrameHeader, FrameType, &'a [u8]),
        out: &'a mut [u8],
    ) -> Option<OpenFrame<'a>> {
        let opened = match seal {
            Some(seal) if self.is_repeated(seal, header) => Err(FrameRefusal::Replayed),
            seal => seal::open(seal, header, kind, body, out),
        };
        match opened {
            Ok(OpenedFrame::Clear) => {
                let is_sign_of_life = kind != FrameType::Leave;
                Some(OpenFrame { body, is_first: false, is_sign_of_life })
            }
            Ok(OpenedFrame::Sealed { bytes, is_first, is_links_first, is_newest }) => {
                if is_links_first {
                    self.links.trust_peer(now, header);
                }
                Some(OpenFrame { body: &out[..bytes], is_first, is_sign_of_life: is_newest })
            }
            Err(why) => {
                self.refuse(why);
                None
            }
        }
    }

    /// True if a sealed frame's SEQ has arrived before: the frame has no news, and is not worth decrypting.
    fn is_repeated<C: SealCipher>(&self, seal: &Seal<C>, header: &FrameHeader) -> bool {
        let bits = flags::SEALED | flags::SEQ;
        header.flags.get() & bits == bits
            && seal.trusts(header.link)
            && self.links.channel(header.link).is_some_and(|c| c.has_arrived(header.seq.get()))
    }

    fn refuse(&mut self, why: FrameRefusal) {
        match why {
            FrameRefusal::Clear => self.rejected.clear += 1,
            FrameRefusal::Forged => self.rejected.forged += 1,
            FrameRefusal::Replayed => self.rejected.replayed += 1,
        }
    }

    /// Processes a frame of the lane; `acked` receives the records that the peer has. Returns true if `body` has
    /// records to process.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
        acked: &mut impl FnMut(Item),
    ) -> bool {
        let words = match kind {
            FrameType::Ack => body,
            FrameType::Cargo => &[],
            FrameType::Leave => {
                self.handle_leave(header, body);
                return false;
            }
            _ => {
                self.rejected.types += 1;
                return false;
            }
        };
        let arrival = self.links.receive(now, header, words, acked);
        match (kind, arrival) {
            (_, FrameArrival::Foreign) => self.rejected.foreign += 1,
            (_, FrameArrival::Duplicate) => self.rejected.duplicates += 1,
            (_, FrameArrival::Beyond) => self.rejected.beyond += 1,
            (_, FrameArrival::Absurd) => self.rejected.absurd += 1,
            (FrameType::Cargo, FrameArrival::New) => return self.ended.is_none(),
            (FrameType::Cargo, FrameArrival::Unnumbered) => self.rejected.unnumbered += 1,
            _ => (),
        }
        false
    }

    /// Handles the peer's Leave. Only the peer knows its own token. All other fields are ignored: in a sealed lane
    /// anyone can forge the header, and its numbers could move the receiver past all that the peer sends.
    fn handle_leave(&mut self, header: &FrameHeader, body: &[u8]) {
        if header.token.get() != self.links.token() || self.links.channel(header.link).is_none() {
            self.rejected.foreign += 1;
            return;
        }
        let leave = LeaveBody::ref_from_prefix(body).ok();
        if let (Some((_, rest)), Some(proofs)) = (leave, self.proofs)
            && !proves(rest, &proofs.peer)
        {
            self.rejected.forged += 1;
            return;
        }
        let leave = leave.map(|(leave, _)| leave);
        let leave = leave.filter(|leave| leave.token.get() == self.links.peer_token());
        match leave.and_then(|leave| LeaveReason::from_value(leave.reason.get())) {
            Some(reason) => self.end(reason),
            None => self.rejected.records += 1,
        }
    }

    /// Reason why the lane has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<LeaveReason> {
        self.ended
    }

    /// Record that ended the lane, if one did.
    #[must_use]
    pub fn broken(&self) -> Option<BrokenRecord> {
        self.broken
    }

    /// Ends the lane and notifies the peer with Leave, because the request of a broken record would never complete.
    /// The arguments are those of [`BrokenRecord`].
    pub(super) fn break_off(
        &mut self,
        reason: &'static str,
        field: &'static str,
        value: impl Into<u64>,
        slot: Option<u16>,
    ) {
        if self.ended.is_none() {
            self.broken = Some(BrokenRecord { reason, field, value: value.into(), slot });
            self.leave(LeaveReason::Broken);
        }
    }

    /// Ends the lane at this end: it sends nothing but Leave from now on. May be repeated.
    pub fn leave(&mut self, reason: LeaveReason) {
        self.end(reason);
        self.packer.leave(reason);
    }

    fn end(&mut self, reason: LeaveReason) {
        self.ended.get_or_insert(reason);
        self.out.clear();
        self.packer.close();
    }

    /// Number of doorbells rung so far.
    #[must_use]
    pub fn doorbells(&self) -> DoorbellTotals {
        self.out.batcher().doorbells()
    }

    /// Time at which [`LaneEnd::expire`] and the queue pair's `poll_tx` must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.ended.is_some() {
            return None;
        }
        [self.out.batcher().deadline(), self.links.deadline()].into_iter().flatten().min()
    }

    /// Advances the timers to `now`.
    pub fn expire(&mut self, now: Instant) {
        self.out.batcher_mut().expire(now);
        self.links.expire(now);
    }

    /// True if the queue pair's `poll_tx` has a frame that may leave now.
    #[must_use]
    pub fn has_tx(&self, now: Instant) -> bool {
        self.packer.has_tx(now, &self.links, &self.out)
    }

    /// Fills `writer` with acknowledgements, lost records, and the records that a doorbell has released.
    pub(super) fn poll_tx(
        &mut self,
        now: Instant,
        requests: &mut impl PackedRequests,
        writer: &mut impl FrameWriter,
    ) -> bool {
        let LaneEnd { links, packer, out, .. } = self;
        let load = CaravanLoad::default();
        FrameLoading { now, packer, links, out, requests, writer, load }.run()
    }
}
