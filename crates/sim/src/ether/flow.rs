//! Throughput of a lane, over links of a given kind: requests of one size, a constant number in flight, and a target
//! that responds at once. A TCP connection may share the first link.

use super::net::Net;
use super::packet::Packet;
use super::settings::{LinkPlan, piece_bytes};
use super::tcp::NeighbourConnection;
use crate::ends::ConnEnd;
use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_ether_proto::Packing;
use roadtrain_ether_proto::channel::{ChannelConfig, WINDOW};
use roadtrain_ether_proto::frame_writer::MemoryWriter;
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::{host_queue as host, target_queue as target};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{Class, PolicyConfig, PolicyKind, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::parse;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

const ENTRIES: u16 = 257;
const PAGES: u32 = 16_384;
const DATA_BYTES_MAX: u32 = 1 << 20;
const FRAMES_PER_SEND: usize = 256;
const HOST: u64 = 0x1111;
const TARGET: u64 = 0x2222;

/// A flow to measure.
#[derive(Clone, Debug)]
pub struct EtherFlow {
    /// Links of the lane.
    pub links: Vec<LinkPlan>,
    /// Requests in flight, constant.
    pub depth: u16,
    /// Bytes of a request.
    pub bytes: u32,
    /// True for writes, false for reads.
    pub writes: bool,
    /// Segment size in bytes of a TCP connection that sends in the same direction over the first link.
    pub neighbour: Option<u64>,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub time: Duration,
}

/// Result of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowOutcome {
    /// Completed requests.
    pub requests: u64,
    /// Requests that were in flight at the end and have not completed after it.
    pub left: u32,
    /// Bytes of requests per second.
    pub bytes: f64,
    /// Bytes of the TCP connection per second.
    pub neighbour: f64,
}

impl FlowOutcome {
    /// Returns Jain's fairness index of the two: 1 if both have the same throughput.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let (a, b) = (self.bytes, self.neighbour);
        (a + b).powi(2) / (2.0 * (a * a + b * b))
    }
}

struct FlowRun<'a> {
    flow: &'a EtherFlow,
    now: Instant,
    net: Net,
    host: host::EtherHostQpair,
    target: target::EtherTargetQpair,
    neighbour: Option<NeighbourConnection>,
    requests: u64,
}

impl EtherFlow {
    /// Runs the flow, with random numbers from `seed`.
    ///
    /// # Panics
    /// The run does not end.
    #[must_use]
    pub fn run(&self, seed: u64) -> FlowOutcome {
        let mut run = FlowRun::new(self, seed);
        run.pass(self.warm_up, true);
        let before = (run.requests, run.neighbour.as_ref().map_or(0, |c| c.delivered));
        run.pass(self.time, true);
        let requests = run.requests - before.0;
        let delivered = run.neighbour.as_ref().map_or(0, |c| c.delivered) - before.1;
        run.neighbour = None;
        run.pass(Duration::from_secs(5), false);
        let seconds = self.time.as_secs_f64();
        FlowOutcome {
            requests,
            left: run.host.in_flight(),
            bytes: requests as f64 * f64::from(self.bytes) / seconds,
            neighbour: delivered as f64 / seconds,
        }
    }
}

impl<'a> FlowRun<'a> {
    fn new(flow: &'a EtherFlow, seed: u64) -> Self {
        let directions: Vec<_> = flow.links.iter().map(|link| link.directions).collect();
        let net = Net::new(&directions, 4096, SimRng::new(seed));
        let piece_bytes = piece_bytes(&flow.links);
        let policy = PolicyConfig::of(PolicyKind::Auto);
        let packing = Packing::default();
        let (pages, data_bytes_max, body_crc) = (PAGES, DATA_BYTES_MAX, false);
        let queue_entries = ENTRIES;
        let slots = ENTRIES - 1;
        let host = host::EtherHostQpair::new(
            host::EtherHostConfig {
                queue_entries,
                pages,
                piece_bytes,
                data_bytes_max,
                policy,
                packing,
                body_crc,
            },
            flow.ends_links(HOST, TARGET),
        );
        let mut target = target::EtherTargetQpair::new(
            target::EtherTargetConfig {
                slots,
                pages,
                piece_bytes,
                data_bytes_max,
                policy,
                packing,
                body_crc,
            },
            flow.ends_links(TARGET, HOST),
        );
        target.set_connected(1, ENTRIES, true, Class::Normal);
        let from = if flow.writes { ConnEnd::Host } else { ConnEnd::Target };
        let neighbour = flow.neighbour.map(|bytes| NeighbourConnection::new(0, from, bytes));
        FlowRun { flow, now: Instant(0), net, host, target, neighbour, requests: 0 }
    }

    /// Runs for a time; with `goes_on` each completed request is followed by another.
    fn pass(&mut self, time: Duration, goes_on: bool) {
        let end = self.now + time;
        let mut turns = 0;
        loop {
            self.turn(goes_on);
            let next = self.next_at().filter(|&at| at < end);
            let Some(next) = next else { break };
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < 1000, "a moment does not end");
            self.now = self.now.max(next);
        }
        self.now = end;
    }

    fn next_at(&self) -> Option<Instant> {
        let arrivals = [ConnEnd::Host, ConnEnd::Target].map(|end| self.net.next_at(end));
        let deadlines = [self.host.end.deadline(), self.target.end.deadline()];
        let neighbour = self.neighbour.as_ref().and_then(NeighbourConnection::next_at);
        arrivals.into_iter().chain(deadlines).chain([neighbour]).flatten().min()
    }

    fn turn(&mut self, goes_on: bool) {
        let now = self.now;
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.send(now, &mut self.net);
        }
        for end in [ConnEnd::Target, ConnEnd::Host] {
            for (_, packet) in self.net.receive(now, end) {
                self.take(end, packet);
            }
        }
        while goes_on && self.host.in_flight() < self.flow.depth.into() {
            self.submit();
        }
        self.send();
    }

    fn take(&mut self, end: ConnEnd, packet: Packet) {
        match (end, packet) {
            (ConnEnd::Target, Packet::Frame(bytes)) => self.serve(&bytes),
            (ConnEnd::Host, Packet::Frame(bytes)) => self.complete(&bytes),
            (_, Packet::Segment(segment)) => {
                let FlowRun { now, net, neighbour, .. } = self;
                neighbour.iter_mut().for_each(|c| c.receive(*now, net, &segment));
            }
        }
    }

    fn submit(&mut self) {
        let EtherFlow { bytes, writes, .. } = *self.flow;
        let (opcode, data) = match writes {
            true => (opcode::WRITE, CommandTransfer::Out(bytes)),
            false => (opcode::READ, CommandTransfer::In(bytes)),
        };
        let sqe = Sqe::rw(opcode, 1, 0, bytes / 512);
        let slot = self.host.submit(self.now, &sqe, data, Urgency::Normal);
        assert!(slot.is_some(), "a request has room");
    }

    fn serve(&mut self, bytes: &[u8]) {
        let Ok((header, kind, body)) = parse(bytes) else { return };
        let mut commands = Vec::new();
        self.target.receive(self.now, &header, kind, body, &mut |event| {
            if let target::EtherTargetEvent::Command { slot, room_bytes, .. } = event {
                commands.push((slot, room_bytes));
            }
        });
        for (slot, room_bytes) in commands {
            match room_bytes {
                0 => self.target.respond(self.now, slot, Status::SUCCESS, 0),
                room_bytes => self.target.respond_with_data(self.now, slot, room_bytes, 0),
            }
        }
    }

    fn complete(&mut self, bytes: &[u8]) {
        let Ok((header, kind, body)) = parse(bytes) else { return };
        let requests = &mut self.requests;
        self.host.receive(self.now, &header, kind, body, &mut |event| {
            if let host::EtherHostEvent::Complete { data_intact, .. } = event {
                assert!(data_intact);
                *requests += 1;
            }
        });
    }

    fn send(&mut self) {
        let now = self.now;
        let mut writer = MemoryWriter::new(FRAMES_PER_SEND, |_, _: &mut [u8], _| ());
        self.host.end.expire(now);
        self.host.batcher().drained(now);
        while self.host.poll_tx(now, &mut writer) {
            self.net.send_frames(now, ConnEnd::Host, writer.frames.drain(..));
        }
        self.target.end.expire(now);
        self.target.batcher().drained(now);
        while self.target.poll_tx(now, &mut writer) {
            self.net.send_frames(now, ConnEnd::Target, writer.frames.drain(..));
        }
    }
}

impl EtherFlow {
    /// Returns one end's links.
    fn ends_links<R: Copy>(&self, token: u64, peer_token: u64) -> LaneLinks<R> {
        let mut links = LaneLinks::new(token, peer_token, 1);
        for (link, plan) in (0..).zip(&self.links) {
            let frame_bytes = plan.frame_bytes;
            let config = ChannelConfig {
                link,
                first_tx: 1,
                first_rx: 1,
                window: WINDOW as u16,
                frame_bytes,
            };
            assert!(links.add(Instant(0), &config, 1));
        }
        links
    }
}
