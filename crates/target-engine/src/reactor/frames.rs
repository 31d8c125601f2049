//! Lanes over Ethernet: frames from the ports to their lanes, and replies without a lane.

mod join;
mod watched;

use super::Peers;
use super::hosts::count_lost;
use super::lanes::TargetLanes;
use crate::ether::listener::{EtherListener, ReceivedFrame};
use crate::ether::{
    Bucket, Drop, Drops, EtherParts, LaneSetupRequest, QueryRequest, ReplyFrame, ports,
};
use crate::lane::{LaneError, LaneResources, TargetLane, TargetLaneLink};
use crate::order::TargetReactorMessage;
use roadtrain_ether_port::port::Port;
use roadtrain_ether_proto::Packing;
use roadtrain_ether_proto::setup::{Inquiry, InquiryVerdict};
use roadtrain_proto::security::SealUse;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::LaneList;
use roadtrain_reactor::metrics::FrameCount;
use roadtrain_system::clock;
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress, flags};
use roadtrain_wire::zerocopy::IntoBytes;
use std::mem;
use std::time::Duration;
use watched::PortWatch;

/// Most frames of a port in one turn.
const FRAMES_PER_TURN: usize = 128;
/// Most bytes of frames in one turn, so that the host gets completions while the rest is handled.
const BYTES_PER_TURN: usize = 256 << 10;
/// Time without a frame after which a lane ends, unless its keep-alive timeout is longer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Interval between two log lines about dropped frames.
const DROPS_LOGGED: Duration = Duration::from_secs(10);

/// Move of a lane's link to another port or address.
#[derive(Clone, Copy, Debug)]
struct LinkMove {
    /// Index of the lane.
    index: u32,
    link: u8,
    /// Index of the new port.
    port: usize,
    /// New address of the host.
    source: MacAddress,
}

/// Ports of a reactor and their state.
pub(super) struct PortFrames {
    /// Ports with socket number 0 and their listener, at the reactor that listens.
    listening: Vec<Port>,
    listener: Option<EtherListener>,
    /// Identifier of the target.
    endpoint: [u8; 16],
    packing: Packing,
    seals: SealUse,
    watched: PortWatch,
    /// True if frames arrived in the last turn, so that there may be more.
    pub(super) has_more: bool,
    joins: Bucket,
    leaves: Bucket,
    drops: Drops,
    drops_logged: (Instant, Drops),
    /// Work deferred while ports are receiving: lanes to end, links to move, replies to send and requests to pass on.
    failed: Vec<(u32, LaneError)>,
    moved: Vec<LinkMove>,
    replies: Vec<ReplyFrame>,
    requests: Vec<LaneSetupRequest>,
}

impl PortFrames {
    /// Creates the state. Returns the ports for lanes separately.
    pub(super) fn new(parts: EtherParts) -> (Vec<Port>, Self) {
        let EtherParts { lanes, listening, endpoint, packing, seals } = parts;
        let frames = PortFrames {
            watched: PortWatch::new(&lanes, listening.len()),
            packing,
            seals,
            listener: (!listening.is_empty()).then(|| EtherListener::new(endpoint)),
            endpoint,
            listening,
            has_more: false,
            joins: Bucket::new(256, 200),
            leaves: Bucket::new(256, 1000),
            drops: Drops::default(),
            drops_logged: (Instant::default(), Drops::default()),
            failed: Vec::new(),
            moved: Vec::new(),
            replies: Vec::new(),
            requests: Vec::new(),
        };
        (lanes, frames)
    }

    /// Returns the time of the next check of ports and lanes, if any is needed.
    pub(super) fn check_at(&self, lanes: &TargetLanes) -> Option<Instant> {
        self.watched.check_at(lanes.hosts.by_token.is_empty())
    }

    /// Replies to a host that it does not have the lane.
    fn reply_unknown_lane(
        &mut self,
        port: usize,
        to: MacAddress,
        query_header: &FrameHeader,
        inquiry: Inquiry,
    ) {
        let (header, leave) = inquiry.deny(query_header, &self.endpoint);
        self.replies.push(ReplyFrame::new(port, to, header, leave.as_bytes()));
    }
}

/// Sends the frames that lanes have built.
pub(super) fn flush_ports(lanes: &mut TargetLanes) {
    let LaneResources { ports, meters, number, .. } = &mut lanes.shared;
    if ports.is_empty() {
        return;
    }
    ports.iter_mut().for_each(ports::flush);
    let sends = ports.iter().map(Port::send_calls).sum();
    meters.reactor(*number).port_sends.set(sends);
}

/// Returns the counters of frames dropped at the reactor's ports and by its lanes.
pub(super) fn dropped(frames: &PortFrames, lanes: &mut TargetLanes) -> Drops {
    let mut rejected = lanes.hosts.rejected;
    for lane in lanes.table.iter_mut() {
        lane.ether().into_iter().for_each(|ether| rejected += ether.qpair.end.rejected);
    }
    frames.drops.with_lanes(rejected)
}

/// Returns the counters of frames at each port of the reactor. Several ports may belong to one interface.
pub(super) fn counts(frames: &mut PortFrames, lanes: &mut TargetLanes) -> Vec<FrameCount> {
    let mut lost = lanes.hosts.lost.clone();
    for lane in lanes.table.iter_mut() {
        lane.ether().into_iter().for_each(|ether| count_lost(&mut lost, ether));
    }
    let ports = lanes.shared.ports.iter_mut().chain(&mut frames.listening);
    let count = |(number, port): (usize, &mut Port)| {
        let (interface, counts) = (port.interface().name.clone(), port.counts());
        FrameCount {
            interface,
            sent_frames: counts.sent,
            received_frames: counts.received,
            lost_frames: lost.get(number).copied().unwrap_or(0),
        }
    };
    ports.enumerate().map(count).collect()
}

/// Returns the index of the lane with that token.
fn lane_with(lanes: &TargetLanes, token: u64) -> Option<u32> {
    let index = (token & 0xffff) as u32;
    let lane = lanes.table.get(index).filter(|lane| !lane.session.is_ended())?;
    (lane.ether()?.token == token).then_some(index)
}

/// True if a frame comes from another port or address than its link's. Only a sealed frame may.
fn is_off_link(
    lanes: &TargetLanes,
    index: u32,
    port: usize,
    source: MacAddress,
    header: &FrameHeader,
) -> Result<bool, Drop> {
    let ether = lanes.table.get(index).and_then(TargetLane::ether).ok_or(Drop::Link)?;
    let link = ether.link(header.link).ok_or(Drop::Link)?;
    let is_off_link = (link.port, link.peer) != (port, source);
    if is_off_link && !(ether.is_sealed() && header.flags.get() & flags::SEALED != 0) {
        return Err(Drop::Source);
    }
    Ok(is_off_link)
}

/// Probes whether a connecting host still has its lanes at this reactor.
pub(super) fn probe_hosts(lanes: &mut TargetLanes, hostnqn: &str) {
    let now = clock::now();
    for index in lanes.table.indices() {
        let probe = |lane: &mut TargetLane, shared: &mut LaneResources| {
            Ok::<_, LaneError>(lane.probe_host(now, &shared.control, hostnqn))
        };
        if lanes.use_lane(index, probe) == Some(true) {
            lanes.end_turn(index);
        }
    }
}

fn frames_per_turn(port: &Port) -> usize {
    (BYTES_PER_TURN / port.frame_bytes().max(1)).clamp(1, FRAMES_PER_TURN)
}

impl PortFrames {
    /// Receives the frames of all ports, and ends the turns of lanes that got some.
    pub(super) fn take_frames(&mut self, lanes: &mut TargetLanes, peers: &Peers) {
        if lanes.shared.ports.is_empty() {
            return;
        }
        self.has_more = false;
        let mut ports = mem::take(&mut lanes.shared.ports);
        for (index, port) in ports.iter_mut().enumerate() {
            let most = frames_per_turn(port);
            self.has_more |=
                port.receive(most, |bytes| self.receive_frame(lanes, index, bytes)) > 0;
        }
        let mut listening = mem::take(&mut self.listening);
        for (index, port) in listening.iter_mut().enumerate() {
            let frame_bytes = port.frame_bytes();
            let receive = |bytes: &[u8]| self.receive_setup_frame(lanes, index, frame_bytes, bytes);
            self.has_more |= port.receive(FRAMES_PER_TURN, receive) > 0;
        }
        (lanes.shared.ports, self.listening) = (ports, listening);
        if !self.has_more {
            return;
        }
        for moved in mem::take(&mut self.moved) {
            let _ = self.move_link(lanes, moved); // the link stays where it is if its frames do not fit
        }
        for (index, error) in mem::take(&mut self.failed) {
            lanes.use_lane(index, |_, _| Err::<(), _>(error));
        }
        for request in mem::take(&mut self.requests) {
            self.pass_on(lanes, peers, request);
        }
        while let Some(index) = lanes.table.next(LaneList::Framed) {
            lanes.end_turn(index);
        }
        self.send_replies(lanes);
        flush_ports(lanes);
    }

    fn send_replies(&mut self, lanes: &mut TargetLanes) {
        for reply in self.replies.drain(..) {
            reply.put(&mut lanes.shared.ports);
        }
    }

    /// Handles a frame for a lane of this reactor.
    fn receive_frame(&mut self, lanes: &mut TargetLanes, port: usize, bytes: &[u8]) {
        let received = ports::read(bytes).and_then(|(source, header, kind, body)| {
            let index = lane_with(lanes, header.token.get());
            if index.is_none() && kind == FrameType::Leave {
                self.answer_leave(lanes.shared.now, port, source, &header, body);
            }
            let index = index.ok_or(Drop::Token)?;
            let is_off_link = is_off_link(lanes, index, port, source, &header)?;
            let seen_at = is_off_link.then_some((port, source));
            Ok((index, header, kind, body, seen_at))
        });
        let (index, header, kind, body, seen_at) = match received {
            Ok(received) => received,
            Err(drop) => return self.drops.count(drop),
        };
        if self.failed.iter().any(|(failed, _)| *failed == index) {
            return;
        }
        let is_first = !lanes.table.is_listed(LaneList::Framed, index);
        let Some(lane) = lanes.table.get_mut(index) else { return };
        if is_first {
            lane.update_load(&mut lanes.shared);
        }
        let frame = (&header, kind, body);
        match (lane.take_frame(&mut lanes.shared, frame, seen_at.is_some()), seen_at) {
            (Err(error), _) => return self.failed.push((index, error)),
            (Ok(true), Some((port, source))) => {
                self.moved.push(LinkMove { index, link: header.link, port, source });
            }
            (Ok(false), Some(_)) => self.drops.count(Drop::Source),
            (Ok(_), None) => {}
        }
        lanes.table.add(LaneList::Framed, index);
    }

    /// Replies to a Leave for an unknown lane.
    fn answer_leave(
        &mut self,
        now: Instant,
        port: usize,
        to: MacAddress,
        header: &FrameHeader,
        body: &[u8],
    ) {
        let Some((inquiry, _)) = Inquiry::read(header, FrameType::Leave, body) else { return };
        if self.leaves.take(now) {
            self.reply_unknown_lane(port, to, header, inquiry);
        }
    }

    /// Handles a frame for socket number 0.
    fn receive_setup_frame(
        &mut self,
        lanes: &TargetLanes,
        port: usize,
        frame_bytes: usize,
        bytes: &[u8],
    ) {
        let PortFrames { listener, replies, drops, requests, .. } = self;
        let Some(listener) = listener else { return };
        match ports::read(bytes) {
            Ok((source, header, kind, body)) => {
                let received = ReceivedFrame { port, frame_bytes, source, header, kind, body };
                let (now, control) = (lanes.shared.now, &lanes.shared.control);
                requests.extend(listener.receive(now, &received, control, replies, drops));
            }
            Err(drop) => drops.count(drop),
        }
    }

    /// Passes a request to the reactor that the host's token selects.
    fn pass_on(&mut self, lanes: &mut TargetLanes, peers: &Peers, request: LaneSetupRequest) {
        let reactor = (request.host_token() % peers.all.len() as u64) as usize;
        if reactor == peers.number {
            self.take_request(lanes, &request);
        } else {
            peers.all[reactor].send(TargetReactorMessage::Request(request));
        }
    }

    /// Handles a request for a lane of this reactor.
    pub(super) fn take_request(&mut self, lanes: &mut TargetLanes, request: &LaneSetupRequest) {
        match request {
            LaneSetupRequest::Join(join) => {
                if let Err(drop) = self.join(lanes, join) {
                    self.drops.count(drop);
                }
            }
            LaneSetupRequest::Query(query) => self.answer_query(lanes, query),
        }
        self.send_replies(lanes);
    }

    fn answer_query(&mut self, lanes: &mut TargetLanes, query: &QueryRequest) {
        let &QueryRequest { port, source, header, inquiry } = query;
        let index = lane_with(lanes, inquiry.token);
        let ether = index.and_then(|index| lanes.table.get(index)).and_then(TargetLane::ether);
        let known = ether.map(|ether| {
            let end = &ether.qpair.end;
            (end.links.peer_token(), end.proofs().map(|proofs| proofs.peer))
        });
        let (index, verdict) = (index.unwrap_or_default(), inquiry.verdict(known));
        let now = lanes.shared.now;
        let answered = match verdict {
            InquiryVerdict::Deny => return self.reply_unknown_lane(port, source, &header, inquiry),
            InquiryVerdict::Ignore => return,
            InquiryVerdict::End => lanes.use_lane(index, |_, _| Err(LaneError::Closed)),
            InquiryVerdict::Acknowledge => lanes.use_lane(index, |lane, _| {
                let is_link =
                    |(_, link): &(u8, TargetLaneLink)| (link.port, link.peer) == (port, source);
                let Some(ether) = lane.ether_mut() else { return Ok(()) };
                let link = ether.links().find(is_link);
                if let Some((link, _)) = link {
                    ether.qpair.end.links.acknowledge(now, link);
                }
                Ok(())
            }),
        };
        if answered.is_some() {
            lanes.end_turn(index);
        }
    }

    /// Checks the state that changes without a frame.
    pub(super) fn check_frames(&mut self, lanes: &mut TargetLanes, idle: Duration) {
        let now = lanes.shared.now;
        if self.check_at(lanes).is_none_or(|at| now < at) {
            return;
        }
        if self.check_ports(lanes) {
            self.notify_lanes(lanes);
        }
        for index in lanes.table.indices() {
            let Some(lane) = lanes.table.get_mut(index) else { continue };
            let keep_alive = lane.session.queue().map(|connected| connected.keep_alive);
            lane.log_refusals(now);
            let Some(ether) = lane.ether_mut() else { continue };
            if !ether.qpair.keeps_data() {
                ether.damq.trim(now, idle);
            }
            let silence_max = keep_alive.unwrap_or_default().max(SILENCE_MAX);
            if ether.qpair.is_silent(now, silence_max) {
                let error = LaneError::Ended("nothing has come for long");
                lanes.use_lane(index, |_, _| Err::<(), _>(error));
            }
        }
        self.log_drops(now, lanes);
    }

    fn log_drops(&mut self, now: Instant, lanes: &mut TargetLanes) {
        let (at, before) = self.drops_logged;
        if now.since(at) < DROPS_LOGGED {
            return;
        }
        let drops = dropped(self, lanes);
        if before != drops {
            tracing::info!(%drops, "frames were dropped");
            self.drops_logged = (now, drops);
        }
    }
}
