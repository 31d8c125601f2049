//! Packs records into frames, each as full as possible: lost records first, then those that the doorbell has
//! released.

use super::channel::ACK_BODY_MAX;
use super::cut::PieceCut;
use super::frame_writer::FrameWriter;
use super::links::{LINKS_MAX, LaneLinks};
use roadtrain_proto::policy::{CaravanLoad, Freight, SendQueue};
use roadtrain_proto::security::PROOF_BYTES;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason};
use roadtrain_wire::ether::{
    DATA_RECORD_BYTES, DataRecord, FRAME_HEADER_BYTES, FrameHeader, FrameType, RECORDS_MAX,
    RecordHead, RecordKind, TAG_BYTES, flags, padded,
};
use roadtrain_wire::zerocopy::IntoBytes;

/// Bytes of data that leave before other requests of a lane get their turn.
const CHUNK_BYTES: u32 = 32 << 10;
/// [`Item::index`] of the command or completion record.
const TAIL: u16 = u16::MAX;

/// Limits of a frame's contents, in addition to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// True if a frame may carry several requests.
    pub requests: bool,
    /// True if a frame may carry several pieces of data.
    pub pieces: bool,
}

impl Default for Packing {
    fn default() -> Self {
        Packing { requests: true, pieces: true }
    }
}

/// The key of a record until its frame is acknowledged: a piece of a request's data, or the command or completion
/// after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Item {
    pub(super) slot: u16,
    /// Number of the piece, or [`TAIL`].
    index: u16,
    pub(super) generation: u32,
}

impl Item {
    /// Returns the piece's number; `None` for a command or completion.
    pub(super) fn piece(self) -> Option<u16> {
        (self.index != TAIL).then_some(self.index)
    }
}

/// A part of a request that waits for a frame: pieces, and the tail in the last part.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPart {
    slot: u16,
    generation: u32,
    next: u16,
    end: u16,
    has_tail: bool,
}

impl RequestPart {
    /// Returns the parts of a request, each with its bytes of data.
    pub(super) fn parts(
        cut: PieceCut,
        slot: u16,
        generation: u32,
        bytes: u32,
    ) -> impl Iterator<Item = (RequestPart, u32)> {
        let pieces = cut.pieces(bytes);
        let step = cut.pieces(CHUNK_BYTES);
        (0..pieces.div_ceil(step).max(1)).map(move |part| {
            let (next, end) = (part * step, ((part + 1) * step).min(pieces));
            let tx = RequestPart { slot, generation, next, end, has_tail: end == pieces };
            (tx, cut.offset(end).min(bytes) - cut.offset(next).min(bytes))
        })
    }

    /// Bytes of data, without regard to a shorter last piece.
    pub(super) fn data_bytes(&self, cut: PieceCut) -> u32 {
        cut.offset(self.end - self.next)
    }

    fn item(&self) -> Option<Item> {
        let index = match self.next < self.end {
            true => self.next,
            false if self.has_tail => TAIL,
            false => return None,
        };
        Some(Item { slot: self.slot, index, generation: self.generation })
    }

    fn advance(&mut self) {
        if self.next < self.end {
            self.next += 1;
        } else {
            self.has_tail = false;
        }
    }
}

/// The requests whose records are packed.
pub(super) trait PackedRequests {
    /// Bytes of the record after the data.
    const TAIL_BYTES: usize;
    /// True if the record is still to be sent.
    fn is_pending(&self, item: Item) -> bool;
    /// Returns the bytes of the request's data in this direction, and POSITION.
    fn data(&self, slot: u16) -> (u32, u32);
    /// Writes the command or completion.
    fn put_tail(&self, slot: u16, out: &mut [u8]);
    /// Records that the item is in a frame for the first time.
    fn mark_framed(&mut self, item: Item);
}

#[derive(Clone, Copy)]
enum RecordOrigin {
    Lost,
    Fresh,
}

/// Records and parts that are not in a frame yet.
pub(super) struct FramePacker {
    pub(super) cut: PieceCut,
    packing: Packing,
    /// Frames have BCRC.
    body_crc: bool,
    /// Bytes after a body, and the proof in Leave: for a sealed lane.
    tag_bytes: usize,
    proof: Option<[u8; PROOF_BYTES]>,
    /// Next lost record.
    lost: Option<Item>,
    /// Parts taken from the send queue; the last one is being sent, and may have passed the one before it.
    begun: Vec<RequestPart>,
    records: [Item; RECORDS_MAX],
    leave: Option<LeaveReason>,
    is_closed: bool,
}

impl FramePacker {
    pub(super) fn new(cut: PieceCut, packing: Packing, body_crc: bool) -> Self {
        let (lost, leave, begun) = (None, None, Vec::with_capacity(2));
        let records = [Item::default(); RECORDS_MAX];
        let (tag_bytes, proof, is_closed) = (0, None, false);
        FramePacker {
            cut,
            packing,
            body_crc,
            tag_bytes,
            proof,
            lost,
            begun,
            records,
            leave,
            is_closed,
        }
    }

    /// Sets the proof in Leave.
    pub(super) fn prove_leave(&mut self, proof: [u8; PROOF_BYTES]) {
        self.proof = Some(proof);
    }

    /// Seals frames from now on.
    pub(super) fn set_sealed(&mut self, proof: [u8; PROOF_BYTES]) {
        (self.tag_bytes, self.proof) = (TAG_BYTES, Some(proof));
    }

    /// Sends Leave next.
    pub(super) fn leave(&mut self, reason: LeaveReason) {
        self.leave = Some(reason);
    }

    /// Closes the lane: only Leave is sent from now on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.lost = None;
        self.begun.clear();
    }

    /// True if a frame may leave now.
    pub(super) fn has_tx(
        &self,
        now: Instant,
        links: &LaneLinks<Item>,
        out: &SendQueue<RequestPart>,
    ) -> bool {
        if self.is_closed {
            return self.leave.is_some();
        }
        let has_cargo = out.batcher().released() > 0
            || !self.begun.is_empty()
            || self.lost.is_some()
            || links.has_lost();
        (has_cargo && links.has_room(now)) || links.ack_due(now).is_some()
    }
}

/// Borrowed state of one call that fills frames.
pub(super) struct FrameLoading<'a, R, T> {
    pub(super) now: Instant,
    pub(super) packer: &'a mut FramePacker,
    pub(super) links: &'a mut LaneLinks<Item>,
    pub(super) out: &'a mut SendQueue<RequestPart>,
    pub(super) requests: &'a mut R,
    pub(super) writer: &'a mut T,
    pub(super) load: CaravanLoad,
}

impl<R: PackedRequests, T: FrameWriter> FrameLoading<'_, R, T> {
    /// Fills frames up to the limits of a caravan. Returns false if there was nothing to send, or no room.
    pub(super) fn run(&mut self) -> bool {
        if let Some(reason) = self.packer.leave.take() {
            return self.put_leave(reason) > 0;
        }
        if self.packer.is_closed {
            return false;
        }
        let mut frames = 0;
        while let Some(first) = self.peek() {
            let bytes = self.heads_bytes() + self.record_bytes(first.0);
            match self.links.choose(self.now, bytes as u32) {
                Some(link) if self.writer.has_room(link) => self.put_cargo(link, first),
                _ => break,
            }
            frames += 1;
        }
        frames + self.put_acks() > 0
    }

    /// Returns the next record to send.
    fn peek(&mut self) -> Option<(Item, RecordOrigin)> {
        loop {
            self.packer.lost = self.packer.lost.or_else(|| self.links.next_lost());
            match self.packer.lost {
                Some(item) if self.requests.is_pending(item) => {
                    return Some((item, RecordOrigin::Lost));
                }
                Some(_) => self.packer.lost = None,
                None => return self.peek_fresh(),
            }
        }
    }

    fn peek_fresh(&mut self) -> Option<(Item, RecordOrigin)> {
        loop {
            let begun = self.packer.begun.len();
            let may_pass = begun == 1 && self.out.batcher().due().has(Freight::Express);
            if begun == 0 || may_pass {
                let cut = self.packer.cut;
                let next = self.out.next(&mut self.load, |tx| tx.data_bytes(cut), |_| false);
                self.packer.begun.extend(next);
            }
            let item = self.packer.begun.last()?.item();
            match item {
                Some(item) if self.requests.is_pending(item) => {
                    return Some((item, RecordOrigin::Fresh));
                }
                _ => self.packer.begun.pop(),
            };
        }
    }

    /// Bytes of a frame outside of its body.
    fn heads_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.packer.tag_bytes
    }

    fn record_bytes(&self, item: Item) -> usize {
        match item.piece() {
            Some(index) => {
                let (bytes, _) = self.requests.data(item.slot);
                DATA_RECORD_BYTES + self.packer.cut.length(bytes, index) as usize
            }
            None => R::TAIL_BYTES,
        }
    }

    /// Writes a frame over `link` with `first` and the records that fit behind it.
    fn put_cargo(&mut self, link: u8, first: (Item, RecordOrigin)) {
        let room = self.links.frame_bytes(link).saturating_sub(self.heads_bytes());
        self.writer.begin(link);
        let (mut used, mut count, mut pieces) = (0, 0, 0);
        let mut next = Some(first);
        while let Some((item, origin)) = next {
            let start = padded(used);
            let end = start + self.record_bytes(item);
            let is_alone = count == 0;
            if !is_alone && (end > room || !self.may_join(item, count, pieces)) {
                break;
            }
            if start > used {
                self.writer.bytes(start - used).fill(0);
            }
            self.put_record(item);
            self.settle(item, origin);
            self.packer.records[count] = item;
            (used, count, pieces) = (end, count + 1, pieces + usize::from(item.piece().is_some()));
            next = self.peek();
        }
        let bytes = (self.heads_bytes() + used) as u32;
        let header = self.links.send(self.now, link, bytes, &self.packer.records[..count]);
        self.end(header);
    }

    /// True if a frame with `count` records, `pieces` of them data, may take one more.
    fn may_join(&self, item: Item, count: usize, pieces: usize) -> bool {
        let Packing { requests, pieces: several } = self.packer.packing;
        let last = self.packer.records[count - 1];
        count < RECORDS_MAX
            && (several || pieces == 0 || item.piece().is_none())
            && (requests || (last.slot, last.generation) == (item.slot, item.generation))
    }

    fn put_record(&mut self, item: Item) {
        let Some(index) = item.piece() else {
            let out = self.writer.bytes(R::TAIL_BYTES);
            return self.requests.put_tail(item.slot, out);
        };
        let cut = self.packer.cut;
        let (bytes, position) = self.requests.data(item.slot);
        let (offset, length) = (cut.offset(index), cut.length(bytes, index));
        let record_bytes = DATA_RECORD_BYTES + length as usize;
        let data = DataRecord {
            head: RecordHead::new(RecordKind::Data, record_bytes, item.slot, item.generation),
            offset: offset.into(),
            position: position.into(),
            index: index.into(),
            pieces: cut.pieces(bytes).into(),
            bytes: bytes.into(),
        };
        self.writer.bytes(DATA_RECORD_BYTES).copy_from_slice(data.as_bytes());
        self.writer.payload(item.slot, offset, length);
    }

    /// Records that the item is in a frame.
    fn settle(&mut self, item: Item, origin: RecordOrigin) {
        match (origin, self.packer.begun.last_mut()) {
            (RecordOrigin::Lost, _) => self.packer.lost = None,
            (RecordOrigin::Fresh, Some(tx)) => {
                tx.advance();
                self.requests.mark_framed(item);
            }
            (RecordOrigin::Fresh, None) => {
                debug_assert!(false, "a fresh record is of a part begun")
            }
        }
    }

    /// Writes the acknowledgements that cannot wait for cargo, and the requests for acknowledgements.
    fn put_acks(&mut self) -> usize {
        let mut frames = 0;
        while let Some((link, requests_ack)) = self.links.ack_due(self.now)
            && self.writer.has_room(link)
        {
            let mut body = [0; ACK_BODY_MAX];
            let length = self.links.ack_body(link, &mut body);
            let bytes = (self.heads_bytes() + length) as u32;
            let header = self.links.send_ack(self.now, link, bytes, requests_ack);
            self.put_frame(link, header, &body[..length]);
            frames += 1;
        }
        frames
    }

    /// Writes Leave over every link, because any of them may have failed.
    fn put_leave(&mut self, reason: LeaveReason) -> usize {
        let mut frames = 0;
        let token = self.links.token().into();
        let leave = LeaveBody { token, reason: (reason as u16).into(), endpoint: [0; 6] };
        let proof = self.packer.proof;
        let body = [leave.as_bytes(), proof.as_ref().map_or(&[][..], |proof| proof)].concat();
        for link in 0..LINKS_MAX as u8 {
            if self.links.channel(link).is_some() && self.writer.has_room(link) {
                let header = self.links.header(link, FrameType::Leave);
                self.put_frame(link, header, &body);
                frames += 1;
            }
        }
        frames
    }

    fn put_frame(&mut self, link: u8, header: FrameHeader, body: &[u8]) {
        self.writer.begin(link);
        self.writer.bytes(body.len()).copy_from_slice(body);
        self.end(header);
    }

    fn end(&mut self, mut header: FrameHeader) {
        header.flags |= if self.packer.body_crc { flags::CRC } else { 0 };
        self.writer.end(header);
    }
}
