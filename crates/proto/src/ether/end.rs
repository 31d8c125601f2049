//! What both ends of a lane do alike: what comes over its links, what waits to leave over them, and how it ends.

use super::channel::Arrival;
use super::frame_writer::FrameWriter;
use super::links::Links;
use super::pack::{Item, Loading, Packer, Requests, Tx};
use super::rejected::Rejected;
use crate::policy::{Doorbells, Load, SendQueue};
use crate::time::Instant;
use roadtrain_wire::ether::setup::{Leave, Reason};
use roadtrain_wire::ether::{FrameHeader, FrameType};
use roadtrain_wire::zerocopy::FromBytes;

/// An end of a lane, without its requests.
pub struct End {
    /// The lane's links, to change socket numbers and carriers.
    pub links: Links<Item>,
    /// What was dropped.
    pub rejected: Rejected,
    pub(super) packer: Packer,
    pub(super) out: SendQueue<Tx>,
    ended: Option<Reason>,
}

impl End {
    pub(super) fn new(links: Links<Item>, packer: Packer, out: SendQueue<Tx>) -> Self {
        End { links, packer, out, rejected: Rejected::default(), ended: None }
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
            FrameType::Cargo | FrameType::Leave => &[],
            _ => {
                self.rejected.types += 1;
                return false;
            }
        };
        let arrival = self.links.receive(now, header, words, acked);
        match (kind, arrival) {
            (_, Arrival::Foreign) => self.rejected.foreign += 1,
            (FrameType::Leave, _) => self.handle_leave(body),
            (FrameType::Cargo, Arrival::New) => return self.ended.is_none(),
            (FrameType::Cargo, Arrival::Unnumbered) => self.rejected.unnumbered += 1,
            _ => (),
        }
        false
    }

    /// The peer ends the lane. Only it knows its own token.
    fn handle_leave(&mut self, body: &[u8]) {
        let leave = Leave::ref_from_prefix(body).ok().map(|(leave, _)| leave);
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
