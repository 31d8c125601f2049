//! Lanes over Ethernet: frames in from the ports, to their lanes; what is answered without one.

mod join;
mod watched;

use super::Reactor;
use crate::clock;
use crate::ether::port::Port;
use crate::reactor::List;
use crate::target::ether::listener::{Heard, Listener, answer};
use crate::target::ether::{Bucket, Drop, Drops, EtherParts, QueryRequest, Reply, Request, ports};
use crate::target::lane::ether::Link;
use crate::target::lane::{Lane, LaneError, Shared};
use crate::target::order::Order;
use roadtrain_proto::ether::Packing;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{Leave, Reason, endpoint_tag};
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::HashMap;
use std::mem;
use std::time::Duration;
use watched::Watched;

/// Frames of a port in one turn, ...
const FRAMES_PER_TURN: usize = 128;
/// ... or as many large ones as hold so many octets: the host has the answers to these while the rest is handled.
const OCTETS_PER_TURN: usize = 256 << 10;
/// A lane in which nothing has come for so long ends, or for the keep-alive timeout if that is longer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Between two lines of the log about dropped frames.
const DROPS_LOGGED: Duration = Duration::from_secs(10);

/// What a reactor keeps for its lanes over Ethernet.
pub(super) struct Frames {
    /// Of the reactor that listens: ports for socket number 0, and who answers there.
    listening: Vec<Port>,
    listener: Option<Listener>,
    /// Names the target.
    endpoint: [u8; 16],
    packing: Packing,
    watched: Watched,
    /// Something came in the last turn: there may be more.
    pub(super) has_more: bool,
    /// Lanes by their hosts' tokens.
    by_host: HashMap<u64, u32>,
    /// Octets of data pages that lanes may still get.
    damq_left: usize,
    joins: Bucket,
    leaves: Bucket,
    pub(super) drops: Drops,
    drops_logged: (Instant, Drops),
    /// While ports are receiving: lanes that are to end, and what is to be answered.
    failed: Vec<(u32, LaneError)>,
    replies: Vec<Reply>,
    requests: Vec<Request>,
}

impl Frames {
    /// With the ports that lanes use.
    pub(super) fn new(parts: EtherParts, damq: usize) -> (Vec<Port>, Self) {
        let EtherParts { lanes, listening, endpoint, packing } = parts;
        let frames = Frames {
            watched: Watched::new(&lanes, listening.len()),
            packing,
            listener: (!listening.is_empty()).then(|| Listener::new(endpoint)),
            endpoint,
            listening,
            has_more: false,
            by_host: HashMap::new(),
            damq_left: damq,
            joins: Bucket::new(256, 200),
            leaves: Bucket::new(256, 1000),
            drops: Drops::default(),
            drops_logged: (Instant::default(), Drops::default()),
            failed: Vec::new(),
            replies: Vec::new(),
            requests: Vec::new(),
        };
        (lanes, frames)
    }

    /// When the reactor is to look after its ports and lanes, if it has any.
    pub(super) fn check_at(&self) -> Option<Instant> {
        self.watched.check_at(self.by_host.is_empty())
    }

    /// The lane ends.
    pub(super) fn forget(&mut self, lane: &Lane) {
        if let Some(ether) = lane.ether() {
            self.by_host.remove(&ether.qpair.links().peer_token());
            self.damq_left += ether.damq.len();
        }
    }

    /// Tells a host that its lane is not there.
    fn deny(
        &mut self,
        port: usize,
        to: MacAddress,
        asked: &FrameHeader,
        token: u64,
        host_token: u64,
    ) {
        let reason = (Reason::UnknownToken as u16).into();
        let leave = Leave { token: token.into(), reason, endpoint: endpoint_tag(&self.endpoint) };
        let header = answer(FrameType::Leave, asked, host_token);
        self.replies.push(Reply::new(port, to, header, leave.as_bytes()));
    }
}

fn frames_per_turn(port: &Port) -> usize {
    (OCTETS_PER_TURN / port.frame_bytes().max(1)).clamp(1, FRAMES_PER_TURN)
}

impl Reactor {
    /// Takes what has come to the ports; lanes that got something end their turn.
    pub(super) fn take_frames(&mut self) {
        if self.shared.ports.is_empty() {
            return;
        }
        self.frames.has_more = false;
        let mut lanes = mem::take(&mut self.shared.ports);
        for (index, port) in lanes.iter_mut().enumerate() {
            let most = frames_per_turn(port);
            self.frames.has_more |= port.receive(most, |octets| self.hear(index, octets)) > 0;
        }
        let mut listening = mem::take(&mut self.frames.listening);
        for (index, port) in listening.iter_mut().enumerate() {
            let frame_bytes = port.frame_bytes();
            let hear = |octets: &[u8]| self.hear_stranger(index, frame_bytes, octets);
            self.frames.has_more |= port.receive(FRAMES_PER_TURN, hear) > 0;
        }
        (self.shared.ports, self.frames.listening) = (lanes, listening);
        if !self.frames.has_more {
            return;
        }
        self.core.spinner.worked();
        for (index, error) in mem::take(&mut self.frames.failed) {
            self.use_lane(index, |_, _| Err::<(), _>(error));
        }
        for request in mem::take(&mut self.frames.requests) {
            self.pass_on(request);
        }
        while let Some(index) = self.lanes.next(List::Framed) {
            self.end_turn(index);
        }
        self.send_replies();
        self.flush_ports();
    }

    /// Sends what lanes have built.
    pub(super) fn flush_ports(&mut self) {
        self.shared.ports.iter_mut().for_each(ports::flush);
    }

    /// System calls that sent frames.
    pub(super) fn port_sends(&mut self) -> u64 {
        self.shared.ports.iter_mut().map(|port| port.counts().send_calls).sum()
    }

    fn send_replies(&mut self) {
        for reply in self.frames.replies.drain(..) {
            reply.put(&mut self.shared.ports);
        }
    }

    /// A frame for one of our lanes.
    fn hear(&mut self, port: usize, octets: &[u8]) {
        let heard = ports::read(octets).and_then(|(source, header, kind, body)| {
            let index = self.lane_of(&header);
            if index.is_none() && kind == FrameType::Leave {
                self.answer_leave(port, source, &header, body);
            }
            let index = index.ok_or(Drop::Token)?;
            self.check_link(index, port, source, &header)?;
            Ok((index, header, kind, body))
        });
        let (index, header, kind, body) = match heard {
            Ok(heard) => heard,
            Err(drop) => return self.frames.drops.count(drop),
        };
        if self.frames.failed.iter().any(|(failed, _)| *failed == index) {
            return;
        }
        let is_first = !self.lanes.is_noted(List::Framed, index);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        if is_first {
            lane.hear_load(&mut self.shared);
        }
        if let Err(error) = lane.take_frame(&mut self.shared, &header, kind, body) {
            return self.frames.failed.push((index, error));
        }
        self.lanes.note(List::Framed, index);
    }

    /// The lane with that token.
    fn lane_of(&self, header: &FrameHeader) -> Option<u32> {
        self.lane_with(header.token.get())
    }

    fn lane_with(&self, token: u64) -> Option<u32> {
        let index = (token & 0xffff) as u32;
        let lane = self.lanes.get(index).filter(|lane| !lane.session.is_ended())?;
        (lane.ether()?.token == token).then_some(index)
    }

    fn check_link(
        &self,
        index: u32,
        port: usize,
        source: MacAddress,
        header: &FrameHeader,
    ) -> Result<(), Drop> {
        let ether = self.lanes.get(index).and_then(Lane::ether);
        let link = ether.and_then(|ether| ether.link(header.link)).ok_or(Drop::Link)?;
        if (link.port, link.peer) == (port, source) { Ok(()) } else { Err(Drop::Source) }
    }

    /// A host ends a lane that we know no more: it is to know that.
    fn answer_leave(&mut self, port: usize, to: MacAddress, header: &FrameHeader, body: &[u8]) {
        let Ok((leave, _)) = Leave::ref_from_prefix(body) else { return };
        if self.frames.leaves.take(self.shared.now) {
            self.frames.deny(port, to, header, header.token.get(), leave.token.get());
        }
    }

    /// A frame for socket number 0.
    fn hear_stranger(&mut self, port: usize, frame_bytes: usize, octets: &[u8]) {
        let Frames { listener, replies, drops, requests, .. } = &mut self.frames;
        let Some(listener) = listener else { return };
        match ports::read(octets) {
            Ok((source, header, kind, body)) => {
                let heard = Heard { port, frame_bytes, source, header, kind, body };
                let (now, control) = (self.shared.now, &self.shared.control);
                requests.extend(listener.hear(now, &heard, control, replies, drops));
            }
            Err(drop) => drops.count(drop),
        }
    }

    /// A request goes to the reactor that the host's token says.
    fn pass_on(&mut self, request: Request) {
        let reactor = (request.host_token() % self.peers.len() as u64) as usize;
        if reactor == self.number {
            self.take_request(&request);
        } else {
            self.peers[reactor].send(Order::Request(request));
        }
    }

    /// A request for a lane of this reactor.
    pub(super) fn take_request(&mut self, request: &Request) {
        match request {
            Request::Join(join) => {
                if let Err(drop) = self.join(join) {
                    self.frames.drops.count(drop);
                }
            }
            Request::Query(query) => self.answer_query(query),
        }
        self.send_replies();
    }

    fn answer_query(&mut self, query: &QueryRequest) {
        let &QueryRequest { port, source, header, token, host_token, leaves } = query;
        let Some(index) = self.lane_with(token) else {
            return self.frames.deny(port, source, &header, token, host_token);
        };
        let now = self.shared.now;
        let answered = self.use_lane(index, |lane, _| {
            let Some(ether) = lane.ether_mut() else { return Ok(()) };
            if ether.qpair.links().peer_token() != host_token {
                return Ok(());
            }
            if leaves {
                // From wherever: perhaps none of its links leads here any more. When it is repeated that is answered.
                return Err(LaneError::Closed);
            }
            let is_link = |(_, link): &(u8, Link)| (link.port, link.peer) == (port, source);
            let link = ether.links().find(is_link);
            if let Some((link, _)) = link {
                ether.qpair.links_mut().acknowledge(now, link);
            }
            Ok(())
        });
        if answered.is_some() {
            self.end_turn(index);
        }
    }

    /// A host connects: does it still have the lanes that it has here?
    pub(super) fn ask(&mut self, hostnqn: &str) {
        let now = clock::now();
        for index in self.lanes.indices() {
            let ask = |lane: &mut Lane, shared: &mut Shared| {
                Ok::<_, LaneError>(lane.ask(now, &shared.control, hostnqn))
            };
            if self.use_lane(index, ask) == Some(true) {
                self.end_turn(index);
            }
        }
    }

    /// What changes without a frame.
    pub(super) fn check_frames(&mut self) {
        let now = self.shared.now;
        if self.frames.check_at().is_none_or(|at| now < at) {
            return;
        }
        if self.check_ports() {
            self.tell_lanes();
        }
        for index in self.lanes.indices() {
            let idle = self.buffer_idle;
            let Some(lane) = self.lanes.get_mut(index) else { continue };
            let keep_alive = lane.session.queue().map(|connected| connected.keep_alive);
            let Some(ether) = lane.ether_mut() else { continue };
            ether.damq.trim(now, idle);
            let patience = keep_alive.unwrap_or_default().max(SILENCE_MAX);
            if now.since(ether.heard) >= patience {
                let error = LaneError::Ended("nothing has come for long");
                self.use_lane(index, |_, _| Err::<(), _>(error));
            }
        }
        self.log_drops(now);
    }

    fn log_drops(&mut self, now: Instant) {
        let (at, before) = self.frames.drops_logged;
        if now.since(at) >= DROPS_LOGGED && before != self.frames.drops {
            tracing::info!(drops = %self.frames.drops, "frames were dropped");
            self.frames.drops_logged = (now, self.frames.drops);
        }
    }
}
