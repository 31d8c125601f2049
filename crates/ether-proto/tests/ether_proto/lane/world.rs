//! Both ends of a lane in memory, and links that lose, repeat and reorder frames.

use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::frame_writer::{MemoryFrame, MemoryWriter};
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::{Item, Packing, host_queue as host, target_queue as target};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{PAGE_BYTES, parse};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Parameters of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneSetup {
    pub links: u8,
    pub frame_bytes: u16,
    pub piece_bytes: u16,
    pub entries: u16,
    pub pages: u32,
    pub packing: Packing,
    pub policy: PolicyConfig,
    pub body_crc: bool,
    pub wire: LaneWire,
}

/// Behaviour of the links: frequencies in thousandths, delays in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct LaneWire {
    pub lost: u32,
    pub repeated: u32,
    pub delay: u64,
    pub jitter: u64,
    pub seed: u64,
}

impl Default for LaneSetup {
    fn default() -> Self {
        LaneSetup {
            links: 1,
            frame_bytes: 9000,
            piece_bytes: 4096,
            entries: 33,
            pages: 64,
            packing: Packing::default(),
            policy: PolicyConfig::none(),
            body_crc: true,
            wire: LaneWire { lost: 0, repeated: 0, delay: 10, jitter: 0, seed: 1 },
        }
    }
}

/// A request of a test.
#[derive(Clone, Copy, Debug)]
pub struct LaneRequest {
    pub data: CommandTransfer,
    pub urgency: Urgency,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LaneSide {
    Host,
    Target,
}

pub struct LaneWorld {
    pub now: Instant,
    pub setup: LaneSetup,
    pub host: host::EtherHostQpair,
    pub target: target::EtherTargetQpair,
    random: u64,
    /// Frames in flight, by arrival.
    pub wire: BTreeMap<(u64, u64), (LaneSide, MemoryFrame)>,
    /// All frames sent.
    pub log: Vec<(LaneSide, MemoryFrame)>,
    sent: u64,
    /// The host's requests in flight: number and buffer, by slot.
    buffers: HashMap<u16, (u64, Vec<u8>)>,
    damq: Vec<u8>,
    /// Data of responses, by slot.
    responses: HashMap<u16, Vec<u8>>,
    /// Commands in execution at the target, by completion time.
    executing: BTreeMap<(u64, u16), (u64, u32)>,
    /// Number of executions and completions of each request.
    pub executed: HashMap<u64, u32>,
    pub completed: HashMap<u64, u32>,
    /// Requests in the order in which they completed.
    pub order: Vec<u64>,
    pub released: u64,
    /// Longest execution, in microseconds.
    pub service: u64,
}

/// Returns byte `at` of a request's data.
fn pattern(request: u64, at: usize) -> u8 {
    (request.wrapping_mul(31) as usize + at.wrapping_mul(7) + (at >> 8)) as u8
}

fn links(setup: &LaneSetup, token: u64, peer_token: u64) -> LaneLinks<Item> {
    let mut links = LaneLinks::new(token, peer_token, token as u16);
    for link in 0..setup.links {
        let frame_bytes = setup.frame_bytes;
        let config = ChannelConfig { link, first_tx: 7, first_rx: 7, window: 1024, frame_bytes };
        assert!(links.add(Instant(0), &config, peer_token as u16));
    }
    links
}

impl LaneWorld {
    pub fn new(setup: LaneSetup) -> Self {
        let LaneSetup { piece_bytes, pages, policy, packing, body_crc, .. } = setup;
        let data_bytes_max = 1 << 20;
        let host = host::EtherHostConfig {
            queue_entries: setup.entries,
            pages,
            piece_bytes,
            data_bytes_max,
            policy,
            packing,
            body_crc,
        };
        let target = target::EtherTargetConfig {
            slots: setup.entries,
            pages,
            piece_bytes,
            data_bytes_max,
            policy,
            packing,
            body_crc,
        };
        LaneWorld {
            now: Instant(1_000_000),
            setup,
            host: host::EtherHostQpair::new(host, links(&setup, 1, 2)),
            target: target::EtherTargetQpair::new(target, links(&setup, 2, 1)),
            random: setup.wire.seed | 1,
            wire: BTreeMap::new(),
            log: Vec::new(),
            sent: 0,
            buffers: HashMap::new(),
            damq: vec![0; pages as usize * PAGE_BYTES],
            responses: HashMap::new(),
            executing: BTreeMap::new(),
            executed: HashMap::new(),
            completed: HashMap::new(),
            order: Vec::new(),
            released: 0,
            service: 0,
        }
    }

    /// Returns a number below `end`.
    pub fn random(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % end.max(1)
    }

    /// Submits request `number`. Returns false if the queue is full.
    pub fn submit(&mut self, number: u64, request: &LaneRequest) -> bool {
        let (code, length) = match request.data {
            CommandTransfer::None => (opcode::FLUSH, 0),
            CommandTransfer::In(length) => (opcode::READ, length),
            CommandTransfer::Out(length) => (opcode::WRITE, length),
        };
        let mut sqe = Sqe::new(code, 1);
        sqe.set_slba(number);
        let Some(slot) = self.host.submit(self.now, &sqe, request.data, request.urgency) else {
            return false;
        };
        let mut buffer = vec![0; length as usize];
        if code == opcode::WRITE {
            let fill = |(at, byte): (usize, &mut u8)| *byte = pattern(number, at);
            buffer.iter_mut().enumerate().for_each(fill);
        }
        assert!(self.buffers.insert(slot, (number, buffer)).is_none(), "slot used twice");
        true
    }

    /// Sends at both ends as much as possible.
    pub fn send(&mut self) {
        loop {
            let buffers = &self.buffers;
            let mut writer = MemoryWriter::new(64, |slot: u16, out: &mut [u8], offset: u32| {
                out.copy_from_slice(&buffers[&slot].1[offset as usize..][..out.len()]);
            });
            let from_host = self.host.poll_tx(self.now, &mut writer);
            let frames = writer.frames;
            assert_eq!(from_host, !frames.is_empty());
            self.ship(LaneSide::Target, frames);
            let responses = &self.responses;
            let mut writer = MemoryWriter::new(64, |slot: u16, out: &mut [u8], offset: u32| {
                out.copy_from_slice(&responses[&slot][offset as usize..][..out.len()]);
            });
            let from_target = self.target.poll_tx(self.now, &mut writer);
            let frames = writer.frames;
            assert_eq!(from_target, !frames.is_empty());
            self.ship(LaneSide::Host, frames);
            if !from_host && !from_target {
                assert!(!self.host.end.has_tx(self.now) && !self.target.end.has_tx(self.now));
                return;
            }
        }
    }

    fn ship(&mut self, to: LaneSide, frames: Vec<MemoryFrame>) {
        let LaneWire { lost, repeated, delay, jitter, .. } = self.setup.wire;
        for frame in frames {
            self.log.push((to, frame.clone()));
            if self.random(1000) < u64::from(lost) {
                continue;
            }
            let copies = if self.random(1000) < u64::from(repeated) { 2 } else { 1 };
            for _ in 0..copies {
                self.sent += 1;
                let at = self.now.0 + (delay + self.random(jitter + 1)) * 1000;
                self.wire.insert((at, self.sent), (to, frame.clone()));
            }
        }
    }

    /// Delivers a frame to its end.
    pub fn deliver(&mut self, to: LaneSide, frame: &MemoryFrame) {
        let mut bytes = frame.header.as_bytes().to_vec();
        bytes.extend_from_slice(&frame.body);
        bytes.resize(bytes.len().max(46), 0);
        let (header, kind, body) = parse(&bytes).expect("frames are well-formed");
        let now = self.now;
        if to == LaneSide::Host {
            let mut events = Vec::new();
            self.host.receive(now, &header, kind, body, &mut |event| events.push(event));
            events.into_iter().for_each(|event| self.at_host(event, body));
        } else {
            let mut events = Vec::new();
            self.target.receive(now, &header, kind, body, &mut |event| events.push(event));
            events.into_iter().for_each(|event| self.at_target(event, body));
        }
    }

    fn at_host(&mut self, event: host::EtherHostEvent, body: &[u8]) {
        match event {
            host::EtherHostEvent::Data { slot, offset, start, length } => {
                let (_, buffer) = self.buffers.get_mut(&slot).expect("a request in flight");
                buffer[offset as usize..][..length as usize]
                    .copy_from_slice(&body[start..][..length as usize]);
            }
            host::EtherHostEvent::Complete { slot, cqe, data_intact } => {
                let (number, buffer) = self.buffers.remove(&slot).expect("a request in flight");
                assert!(cqe.status().is_success() && data_intact);
                assert_eq!(cqe.cid.get(), slot);
                let is_right = |(at, &byte): (usize, &u8)| byte == pattern(number, at);
                assert!(buffer.iter().enumerate().all(is_right), "data of {number}");
                *self.completed.entry(number).or_default() += 1;
                self.order.push(number);
            }
        }
    }

    fn at_target(&mut self, event: target::EtherTargetEvent, body: &[u8]) {
        match event {
            target::EtherTargetEvent::Data { place, start, length, .. } => {
                self.damq[place as usize..][..length as usize]
                    .copy_from_slice(&body[start..][..length as usize]);
            }
            target::EtherTargetEvent::Command { slot, sqe, place, data_bytes, room_bytes } => {
                let number = sqe.slba();
                let data = &self.damq[place as usize..][..data_bytes as usize];
                let is_right = |(at, &byte): (usize, &u8)| byte == pattern(number, at);
                assert!(data.iter().enumerate().all(is_right), "data of {number} at the target");
                *self.executed.entry(number).or_default() += 1;
                let done = self.now.0 + self.random(self.service + 1) * 1000;
                self.executing.insert((done, slot), (number, room_bytes));
            }
            target::EtherTargetEvent::Released { slot } => {
                self.released += 1;
                self.responses.remove(&slot);
            }
        }
    }

    fn answer(&mut self) {
        while let Some(entry) = self.executing.first_entry()
            && entry.key().0 <= self.now.0
        {
            let ((_, slot), (number, room_bytes)) = entry.remove_entry();
            if room_bytes == 0 {
                self.target.respond(self.now, slot, Status::SUCCESS, 0);
                continue;
            }
            let data = (0..room_bytes as usize).map(|at| pattern(number, at)).collect();
            assert!(
                self.responses.insert(slot, data).is_none(),
                "released before it is used again"
            );
            self.target.respond_with_data(self.now, slot, room_bytes, 0);
        }
    }

    /// Runs one turn of both ends and advances to the next event. Returns false if there is none.
    pub fn turn(&mut self) -> bool {
        self.answer();
        self.host.batcher().drained(self.now);
        self.target.batcher().drained(self.now);
        self.send();
        let wire = self.wire.first_key_value().map(|(key, _)| Instant(key.0));
        let executed = self.executing.first_key_value().map(|(key, _)| Instant(key.0));
        let deadlines = [wire, executed, self.host.end.deadline(), self.target.end.deadline()];
        let Some(next) = deadlines.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now.0
        {
            let (to, frame) = entry.remove();
            self.deliver(to, &frame);
        }
        self.host.end.expire(self.now);
        self.target.end.expire(self.now);
        true
    }

    /// Runs `requests` with at most `depth` at once until all are complete, each exactly once.
    pub fn run(&mut self, requests: &[LaneRequest], depth: u32) {
        let mut next = 0;
        let end = self.now + Duration::from_secs(600);
        while self.completed.len() < requests.len() {
            while next < requests.len()
                && self.host.in_flight() < depth
                && self.submit(next as u64, &requests[next])
            {
                next += 1;
            }
            assert!(self.turn() && self.now < end, "{} of {next} complete", self.completed.len());
        }
        for number in 0..requests.len() as u64 {
            assert_eq!((self.executed[&number], self.completed[&number]), (1, 1), "{number}");
        }
    }
}
