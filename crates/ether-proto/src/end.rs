//! What both ends of a lane do alike: what comes over its links, what waits to leave over them, and how it ends.

use super::channel::Arrival;
use super::frame_writer::FrameWriter;
use super::links::Links;
use super::pack::{Item, Loading, Packer, Requests, Tx};
use super::rejected::{Broken, Rejected};
use roadtrain_proto::policy::{Doorbells, Load, SendQueue};
use roadtrain_proto::seal::{self, Cipher, Opened, Proofs, Refused, Seal, proves};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{Leave, Reason};
use roadtrain_wire::ether::{FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::FromBytes;

/// A frame of the lane whose body may be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFrame<'a> {
    /// Where the body is: in the frame, or where it was opened to.
    pub body: &'a [u8],
    /// From now on the lane is sealed.
    pub is_first: bool,
    /// The other end lives, and is where this came from. An end that nobody has proved does not say so, nor does a
    /// sealed frame that is repeated.
    pub is_sign_of_life: bool,
}

/// An end of a lane, without its requests.
pub struct End {
    /// The lane's links, to change socket numbers and carriers.
    pub links: Links<Item>,
    /// What was dropped.
    pub rejected: Rejected,
    pub(super) packer: Packer,
    pub(super) out: SendQueue<Tx>,
    ended: Option<Reason>,
    broken: Option<Broken>,
    proofs: Option<Proofs>,
}

impl End {
    pub(super) fn new(links: Links<Item>, packer: Packer, out: SendQueue<Tx>) -> Self {
        let rejected = Rejected::default();
        End { links, packer, out, rejected, ended: None, broken: None, proofs: None }
    }

    /// From now on the lane is sealed: frames leave room for a tag, and only proofs end it.
    pub(super) fn set_sealed(&mut self, proofs: Proofs) {
        self.proofs = Some(proofs);
        self.packer.set_sealed(proofs.own);
    }

    /// The other end may be sealed already: what this one ends the lane with is proved from now on.
    pub fn prove_leave(&mut self, proofs: Proofs) {
        self.packer.prove_leave(proofs.own);
    }

    /// What ends the lane, if it is sealed.
    #[must_use]
    pub fn proofs(&self) -> Option<Proofs> {
        self.proofs
    }

    /// What a frame of the lane says, opened to `out` if it is sealed; nothing if it is to be dropped, which is counted.
    /// `out` is as long as `body` at least.
    pub fn open<'a, C: Cipher>(
        &mut self,
        now: Instant,
        seal: Option<&mut Seal<C>>,
        (header, kind, body): (&FrameHeader, FrameType, &'a [u8]),
        out: &'a mut [u8],
    ) -> Option<OpenFrame<'a>> {
        let opened = match seal {
            Some(seal) if self.is_repeated(seal, header) => Err(Refused::Replayed),
            seal => seal::open(seal, header, kind, body, out),
        };
        match opened {
            Ok(Opened::Clear) => {
                let is_sign_of_life = kind != FrameType::Leave;
                Some(OpenFrame { body, is_first: false, is_sign_of_life })
            }
            Ok(Opened::Sealed { octets, is_first, is_links_first, is_newest }) => {
                if is_links_first {
                    self.links.trust_peer(now, header);
                }
                Some(OpenFrame { body: &out[..octets], is_first, is_sign_of_life: is_newest })
            }
            Err(why) => {
                self.refuse(why);
                None
            }
        }
    }

    /// Whether a sealed frame's SEQ has come: it says nothing that is new, and costs no pass of the cipher.
    fn is_repeated<C: Cipher>(&self, seal: &Seal<C>, header: &FrameHeader) -> bool {
        let bits = flags::SEALED | flags::SEQ;
        header.flags.get() & bits == bits
            && seal.trusts(header.link)
            && self.links.channel(header.link).is_some_and(|c| c.has_arrived(header.seq.get()))
    }

    fn refuse(&mut self, why: Refused) {
        match why {
            Refused::Clear => self.rejected.clear += 1,
            Refused::Forged => self.rejected.forged += 1,
            Refused::Replayed => self.rejected.replayed += 1,
        }
    }

    /// A frame of the lane; `acked` gets the records that the peer has. Whether `body` has records to be looked at.
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
            (_, Arrival::Foreign) => self.rejected.foreign += 1,
            (_, Arrival::Duplicate) => self.rejected.duplicates += 1,
            (_, Arrival::Beyond) => self.rejected.beyond += 1,
            (_, Arrival::Absurd) => self.rejected.absurd += 1,
            (FrameType::Cargo, Arrival::New) => return self.ended.is_none(),
            (FrameType::Cargo, Arrival::Unnumbered) => self.rejected.unnumbered += 1,
            _ => (),
        }
        false
    }

    /// The peer ends the lane. Only it knows its own token. Nothing else of the frame counts: in a sealed lane anybody
    /// can have sent its header, whose numbers would take the link's receiver to where the peer never comes.
    fn handle_leave(&mut self, header: &FrameHeader, body: &[u8]) {
        if header.token.get() != self.links.token() || self.links.channel(header.link).is_none() {
            self.rejected.foreign += 1;
            return;
        }
        let leave = Leave::ref_from_prefix(body).ok();
        if let (Some((_, rest)), Some(proofs)) = (leave, self.proofs)
            && !proves(rest, &proofs.peer)
        {
            self.rejected.forged += 1;
            return;
        }
        let leave = leave.map(|(leave, _)| leave);
        let leave = leave.filter(|leave| leave.token.get() == self.links.peer_token());
        match leave.and_then(|leave| Reason::from_value(leave.reason.get())) {
            Some(reason) => self.end(reason),
            None => self.rejected.records += 1,
        }
    }

    /// Why the lane has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Reason> {
        self.ended
    }

    /// The record that has ended the lane, if one did.
    #[must_use]
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Ends the lane, and notifies the peer with Leave: the request of a record that breaks the protocol would never end.
    /// The arguments are those of [`Broken`].
    pub(super) fn break_off(
        &mut self,
        reason: &'static str,
        field: &'static str,
        value: impl Into<u64>,
        slot: Option<u16>,
    ) {
        if self.ended.is_none() {
            self.broken = Some(Broken { reason, field, value: value.into(), slot });
            self.leave(Reason::Broken);
        }
    }

    /// This end is done: nothing but Leave is sent any more. May be repeated.
    pub fn leave(&mut self, reason: Reason) {
        self.end(reason);
        self.packer.leave(reason);
    }

    fn end(&mut self, reason: Reason) {
        self.ended.get_or_insert(reason);
        self.out.clear();
        self.packer.close();
    }

    /// Doorbells rung so far.
    #[must_use]
    pub fn doorbells(&self) -> Doorbells {
        self.out.batcher().doorbells()
    }

    /// When [`End::expire`] and the queue pair's `poll_tx` must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.ended.is_some() {
            return None;
        }
        [self.out.batcher().deadline(), self.links.deadline()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn expire(&mut self, now: Instant) {
        self.out.batcher_mut().expire(now);
        self.links.expire(now);
    }

    /// Whether the queue pair's `poll_tx` has a frame that may leave now.
    #[must_use]
    pub fn has_tx(&self, now: Instant) -> bool {
        self.packer.has_tx(now, &self.links, &self.out)
    }

    /// Fills `writer` with acknowledgements, what was lost, and what a doorbell has released.
    pub(super) fn poll_tx(
        &mut self,
        now: Instant,
        requests: &mut impl Requests,
        writer: &mut impl FrameWriter,
    ) -> bool {
        let End { links, packer, out, .. } = self;
        let load = Load::default();
        Loading { now, packer, links, out, requests, writer, load }.run()
    }
}
