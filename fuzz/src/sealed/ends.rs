//! Both ends of a lane, with requests whose data is known.

use crate::attacker::HonestEnd;
use crate::ether::{PEER_TOKEN, PIECE_BYTES, TOKEN, links, links_of};
use crate::policy;
use crate::reached::Reached;
use roadtrain_ether_proto::frame_writer::{MemoryFrame, MemoryWriter};
use roadtrain_ether_proto::liveness::Liveness;
use roadtrain_ether_proto::{
    LaneEnd, OpenFrame, Packing, host_queue as host, target_queue as target,
};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{Class, PolicyConfig, Urgency};
use roadtrain_proto::seal::Seal;
use roadtrain_proto::time::Instant;
use roadtrain_tls::FrameCipher;
use roadtrain_wire::ether::{FrameHeader, FrameType, PAGE_BYTES};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::time::Duration;

const SLOTS: u16 = 6;
const PAGES: u32 = 8;
const DATA_BYTES_MAX: u32 = 1 << 14;
/// Most frames that leave at once.
const FRAMES_MAX: usize = 64;
/// Kinds of requests.
const REQUESTS: [(u8, CommandTransfer); 5] = [
    (opcode::READ, CommandTransfer::In(4096)),
    (opcode::WRITE, CommandTransfer::Out(512)),
    (opcode::WRITE, CommandTransfer::Out(6000)),
    (opcode::FLUSH, CommandTransfer::None),
    (opcode::READ, CommandTransfer::In(128)),
];

/// Sending parameters of both ends.
#[derive(Clone, Copy)]
pub(super) struct SendingParams {
    pub(super) requests: bool,
    pub(super) pieces: bool,
    pub(super) body_crc: bool,
    pub(super) policy: u8,
}

/// A request in flight at the host.
struct SealedRequest {
    number: u64,
    data: CommandTransfer,
    buffer: Vec<u8>,
}

pub(super) struct SealedEnds {
    pub(super) now: Instant,
    pub(super) host: host::EtherHostQpair,
    pub(super) target: target::EtherTargetQpair,
    liveness: Liveness,
    damq: Vec<u8>,
    /// Requests in flight, by slot.
    requests: BTreeMap<u16, SealedRequest>,
    responses: BTreeMap<u16, Vec<u8>>,
    submitted: u64,
    /// Kind and number of executions of each request.
    kinds: Vec<(u8, CommandTransfer, u32)>,
}

/// Returns byte `at` of a request's data.
fn pattern(request: u64, at: usize) -> u8 {
    (request.wrapping_mul(31) as usize + at.wrapping_mul(7) + (at >> 8)) as u8
}

fn data_of(request: u64, bytes: u32) -> Vec<u8> {
    (0..bytes as usize).map(|at| pattern(request, at)).collect()
}

impl SealedEnds {
    pub(super) fn new(shape: SendingParams) -> Self {
        let packing = Packing { requests: shape.requests, pieces: shape.pieces };
        let policy: PolicyConfig = policy(shape.policy);
        let host = host::EtherHostConfig {
            queue_entries: SLOTS + 1,
            pages: PAGES,
            piece_bytes: PIECE_BYTES,
            data_bytes_max: DATA_BYTES_MAX,
            policy,
            packing,
            body_crc: shape.body_crc,
        };
        let target = target::EtherTargetConfig {
            slots: SLOTS,
            pages: PAGES,
            piece_bytes: PIECE_BYTES,
            data_bytes_max: DATA_BYTES_MAX,
            policy,
            packing,
            body_crc: shape.body_crc,
        };
        let mut target = target::EtherTargetQpair::new(target, links_of(PEER_TOKEN, TOKEN));
        target.set_connected(1, SLOTS + 1, true, Class::Normal);
        let now = Instant(1_000_000);
        SealedEnds {
            now,
            host: host::EtherHostQpair::new(host, links()),
            target,
            liveness: Liveness::new(now, Duration::from_secs(3600)),
            damq: vec![0; PAGES as usize * PAGE_BYTES],
            requests: BTreeMap::new(),
            responses: BTreeMap::new(),
            submitted: 0,
            kinds: Vec::new(),
        }
    }

    pub(super) fn end(&mut self, side: HonestEnd) -> &mut LaneEnd {
        match side {
            HonestEnd::Host => &mut self.host.end,
            HonestEnd::Target => &mut self.target.end,
        }
    }

    /// Submits a request of that kind. Returns false if there is no room.
    pub(super) fn submit(&mut self, kind: u8) -> bool {
        let (opcode, data) = REQUESTS[usize::from(kind) % REQUESTS.len()];
        let number = self.submitted;
        let mut sqe = Sqe::new(opcode, 1);
        sqe.set_slba(number);
        let Some(slot) = self.host.submit(self.now, &sqe, data, Urgency::Normal) else {
            return false;
        };
        let buffer = match data {
            CommandTransfer::Out(bytes) => data_of(number, bytes),
            CommandTransfer::In(bytes) => vec![0; bytes as usize],
            CommandTransfer::None => Vec::new(),
        };
        let was = self.requests.insert(slot, SealedRequest { number, data, buffer });
        assert!(was.is_none(), "a slot is given twice");
        self.submitted += 1;
        self.kinds.push((opcode, data, 0));
        true
    }

    /// Takes the frames that may leave.
    pub(super) fn poll(&mut self, side: HonestEnd) -> Vec<(FrameHeader, Vec<u8>)> {
        let (now, mut frames) = (self.now, Vec::new());
        let SealedEnds { host, target, requests, responses, .. } = self;
        loop {
            let mut writer = MemoryWriter::new(FRAMES_MAX, |slot, out: &mut [u8], offset| {
                let data = match side {
                    HonestEnd::Host => &requests[&slot].buffer,
                    HonestEnd::Target => &responses[&slot],
                };
                out.copy_from_slice(&data[offset as usize..][..out.len()]);
            });
            let has_more = match side {
                HonestEnd::Host => {
                    host.batcher().drained(now);
                    host.poll_tx(now, &mut writer)
                }
                HonestEnd::Target => {
                    target.batcher().drained(now);
                    target.poll_tx(now, &mut writer)
                }
            };
            let take = |frame: MemoryFrame| (frame.header, frame.body);
            frames.extend(writer.frames.into_iter().map(take));
            if !has_more {
                return frames;
            }
        }
    }

    /// Opens a frame as the end does.
    pub(super) fn open<'a>(
        &mut self,
        side: HonestEnd,
        seal: &mut Seal<FrameCipher>,
        frame: (&FrameHeader, FrameType, &'a [u8]),
        out: &'a mut [u8],
    ) -> Option<OpenFrame<'a>> {
        match side {
            HonestEnd::Host => self.host.end.open(self.now, Some(seal), frame, out),
            HonestEnd::Target => self.target.open(self.now, Some(seal), frame, out),
        }
    }

    /// Passes an opened frame to its end.
    pub(super) fn take(
        &mut self,
        side: HonestEnd,
        frame: (&FrameHeader, FrameType, OpenFrame<'_>),
        is_sealed: bool,
        reached: &mut Reached,
    ) {
        match side {
            HonestEnd::Host => self.at_host(frame, reached),
            HonestEnd::Target => self.at_target(frame, is_sealed, reached),
        }
    }

    fn at_host(
        &mut self,
        (header, kind, opened): (&FrameHeader, FrameType, OpenFrame<'_>),
        reached: &mut Reached,
    ) {
        if !self.liveness.receive(self.now, kind, opened, &self.host.end.links) {
            return;
        }
        let (body, mut events) = (opened.body, Vec::new());
        self.host.receive(self.now, header, kind, body, &mut |event| events.push(event));
        for event in events {
            match event {
                host::EtherHostEvent::Data { slot, offset, start, length } => {
                    let request = self.requests.get_mut(&slot).expect("a request in flight");
                    request.buffer[offset as usize..][..length as usize]
                        .copy_from_slice(&body[start..][..length as usize]);
                }
                host::EtherHostEvent::Complete { slot, cqe, data_intact } => {
                    let request = self.requests.remove(&slot).expect("it completes twice");
                    assert!(cqe.status().is_success() && data_intact);
                    assert_eq!(cqe.cid.get(), slot);
                    self.complete(&request, reached);
                }
            }
        }
    }

    fn complete(&self, request: &SealedRequest, reached: &mut Reached) {
        assert_eq!(self.kinds[request.number as usize].2, 1, "it was not executed");
        if let CommandTransfer::In(bytes) = request.data {
            assert!(request.buffer == data_of(request.number, bytes), "other data is read");
            reached.note("read");
        }
        reached.note("completed");
    }

    /// Executes the target's commands. Commands that arrived in clear text, before the lane was sealed, are not the
    /// host's.
    fn at_target(
        &mut self,
        (header, kind, opened): (&FrameHeader, FrameType, OpenFrame<'_>),
        is_sealed: bool,
        reached: &mut Reached,
    ) {
        let (body, mut events) = (opened.body, Vec::new());
        self.target.receive(self.now, header, kind, body, &mut |event| events.push(event));
        for event in events {
            match event {
                target::EtherTargetEvent::Data { place, start, length, .. } => {
                    self.damq[place as usize..][..length as usize]
                        .copy_from_slice(&body[start..][..length as usize]);
                }
                target::EtherTargetEvent::Command { .. } if !is_sealed => {
                    reached.note("a command in the clear");
                }
                target::EtherTargetEvent::Command { slot, sqe, place, data_bytes, room_bytes } => {
                    let data = &self.damq[place as usize..][..data_bytes as usize];
                    let (number, data) = (sqe.slba(), data.to_vec());
                    self.execute(number, sqe.opcode, &data, reached);
                    self.respond(slot, number, room_bytes);
                }
                target::EtherTargetEvent::Released { slot } => drop(self.responses.remove(&slot)),
            }
        }
    }

    /// Asserts that the host has submitted the command, with this data, and that it is executed once.
    fn execute(&mut self, number: u64, opcode: u8, data: &[u8], reached: &mut Reached) {
        let kind = self.kinds.get_mut(number as usize).expect("the host has not submitted it");
        let (submitted, expected, executed) = kind;
        assert_eq!((*submitted, *executed), (opcode, 0), "it is executed twice");
        *executed += 1;
        let bytes = if let CommandTransfer::Out(bytes) = *expected { bytes } else { 0 };
        assert!(data == data_of(number, bytes), "other data is written");
        reached.note("executed");
    }

    fn respond(&mut self, slot: u16, number: u64, room_bytes: u32) {
        if room_bytes == 0 {
            return self.target.respond(self.now, slot, Status::SUCCESS, 0);
        }
        let was = self.responses.insert(slot, data_of(number, room_bytes));
        assert!(was.is_none(), "a slot is used before it is released");
        self.target.respond_with_data(self.now, slot, room_bytes, 0);
    }

    /// Advances the timers of both ends.
    pub(super) fn expire(&mut self) {
        self.host.end.expire(self.now);
        self.target.end.expire(self.now);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.host.end.deadline(), self.target.end.deadline()].into_iter().flatten().min()
    }

    /// True if all requests are complete.
    pub(super) fn are_idle(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn has_executed_nothing(&self) -> bool {
        self.kinds.iter().all(|(_, _, executed)| *executed == 0)
    }
}
