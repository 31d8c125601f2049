//! Lanes over simulated links. Frames of lanes are sent over the links, and so are hosts' queries about lanes (Query,
//! and Leave before new lanes are made). Discovery of the target and joining are direct messages, which take time and
//! need a link.

use super::net::Net;
use super::packet::Packet;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival, ConnectionLost};
use crate::plan::{NQN, Sabotage, SimPlan};
use crate::rng::SimRng;
use crate::transport::QueueOpening;
use core::time::Duration;
use roadtrain_ether_proto::channel::{ChannelConfig, WINDOW};
use roadtrain_ether_proto::fence::{EarlierLane, Fence, FenceState, LaneRoute};
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::setup::{Inquiry, InquiryVerdict};
use roadtrain_proto::seal::Proofs;
use roadtrain_proto::security::PROOF_BYTES;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress, VERSION, parse, set_hcrc};
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::{BTreeMap, VecDeque};

/// Latency of a direct message.
const MESSAGE_LATENCY: Duration = Duration::from_micros(500);

/// One end of a lane.
struct EtherLaneSide {
    token: u64,
    socket_number: u16,
    /// First SEQ of each link.
    firsts: Vec<u32>,
    /// Receive window in frames.
    window: u16,
    arrived: VecDeque<Vec<u8>>,
    /// True while this end knows the lane.
    is_there: bool,
    /// Time at which this end notices that the lane has ended.
    over_at: Option<Instant>,
    /// True once it has noticed.
    has_noticed: bool,
}

impl EtherLaneSide {
    fn new(rng: &mut SimRng, links: usize, window: u16) -> Self {
        EtherLaneSide {
            token: rng.bits(),
            socket_number: rng.between(1, 0xffff) as u16,
            firsts: (0..links).map(|_| first_seq(rng)).collect(),
            window,
            arrived: VecDeque::new(),
            is_there: true,
            over_at: None,
            has_noticed: false,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        !self.is_there || self.over_at.is_some_and(|at| at <= now)
    }
}

/// Step of a host before it joins.
enum JoinStep {
    /// Discovery of the target, with the time of the next attempt.
    Finding(Instant),
    /// Ending earlier lanes.
    Fencing,
}

/// A lane.
struct SimEtherLane {
    hostid: [u8; 16],
    entries: u16,
    /// Target that the host has discovered.
    endpoint: [u8; 16],
    join_step: Option<JoinStep>,
    host: EtherLaneSide,
    /// Target end; `None` until the target has made it.
    target: Option<EtherLaneSide>,
    /// Proof with which the host ends a sealed lane.
    proof: Option<[u8; PROOF_BYTES]>,
    /// Arrival time of the next direct message: Join at the target, or Joined at the host.
    message_at: Option<Instant>,
}

impl SimEtherLane {
    fn side(&mut self, end: ConnEnd) -> Option<&mut EtherLaneSide> {
        match end {
            ConnEnd::Host => Some(&mut self.host),
            ConnEnd::Target => self.target.as_mut(),
        }
    }
}

/// Action at the end of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Relief {
    Mend { link: u8, is_notified: bool },
    Widen(ConnEnd),
}

/// The links, and the lanes over them.
pub struct EtherNetwork {
    /// The links.
    pub net: Net,
    /// Received frames that were invalid, or of no lane.
    pub foreign: u64,
    /// Lanes that were made.
    pub made: u64,
    /// Frames that sealed lanes have refused.
    pub refused: u64,
    /// Lanes that hosts abandoned because only an echo arrived.
    pub silent: u64,
    /// Time until which an echo is active.
    pub(super) echo_until: Instant,
    plan: SimPlan,
    pub(super) rng: SimRng,
    lanes: BTreeMap<ConnId, SimEtherLane>,
    last: u32,
    /// Fences that end hosts' earlier lanes, while their processes live.
    fences: BTreeMap<[u8; 16], Fence>,
    /// Identifier of the target's process.
    endpoint: [u8; 16],
    /// Time before which the target does not respond.
    silent_until: Instant,
    /// Time before which each end is stalled.
    pub(super) stalled_until: [Instant; 2],
    /// Actions at the end of faults.
    pub(super) reliefs: Vec<(Instant, Relief)>,
}

impl EtherNetwork {
    /// Handles a host's query about a lane, sent to socket number 0, or to that of an ended lane.
    fn answer(
        &mut self,
        now: Instant,
        link: u8,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
    ) {
        let is_unaddressed = header.socket_number.get() == 0;
        let received = Inquiry::read(header, kind, body);
        let received = received.filter(|_| is_unaddressed || kind == FrameType::Leave);
        let Some((inquiry, _)) = received.filter(|_| self.silent_until <= now) else {
            self.foreign += 1;
            return;
        };
        let target =
            |lane: &SimEtherLane| lane.target.as_ref().map(|side| (side.is_there, side.token));
        let lane = self.lanes.values_mut().find(|l| target(l) == Some((true, inquiry.token)));
        if lane.is_some() && !is_unaddressed {
            return; // that lane has another socket number
        }
        let known = lane.as_ref().map(|lane| (lane.host.token, lane.proof));
        let side = lane.and_then(|lane| lane.target.as_mut());
        match (inquiry.verdict(known), side) {
            (InquiryVerdict::Deny, _) => {
                let (answer, leave) = inquiry.deny(header, &self.endpoint);
                self.send_frame(now, link, ConnEnd::Target, answer, leave.as_bytes());
            }
            (InquiryVerdict::End, Some(side)) => side.over_at = Some(now),
            (InquiryVerdict::Acknowledge, Some(side)) => {
                side.arrived.push_back([header.as_bytes(), body].concat());
            }
            _ => {}
        }
    }

    /// Sets the proof with which the host ends the lane.
    pub(super) fn set_proof(&mut self, id: ConnId, proofs: Option<Proofs>) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.proof = proofs.map(|proofs| proofs.peer);
        }
    }

    /// Sends a frame that is not of a lane's qpair.
    pub(super) fn send_frame(
        &mut self,
        now: Instant,
        link: u8,
        from: ConnEnd,
        header: FrameHeader,
        body: &[u8],
    ) {
        let bytes = frame(header, body);
        self.net.send(now, link, from, Packet::Frame(bytes));
    }

    /// Sends a host's query about its lane, over each link.
    pub(super) fn query(&mut self, now: Instant, id: ConnId, header: FrameHeader, body: &[u8]) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let reply = lane.host.socket_number.into();
        for link in 0..self.net.links() {
            self.send_frame(now, link, ConnEnd::Host, FrameHeader { link, reply, ..header }, body);
        }
    }

    /// Runs a host's steps before it joins.
    pub(super) fn prepare(&mut self, now: Instant, id: ConnId) -> Result<(), ConnectionLost> {
        let is_there = self.has_carrier() && self.silent_until <= now;
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(ConnectionLost) };
        let fence = self.fences.entry(lane.hostid).or_default();
        if let Some(JoinStep::Finding(at)) = &mut lane.join_step
            && *at <= now
        {
            if !is_there {
                *at = now + MESSAGE_LATENCY;
                return Ok(());
            }
            lane.endpoint = self.endpoint;
            let routes: Vec<LaneRoute> = (0..self.plan.ether.links.len()).map(route).collect();
            let there: &[_] = match self.plan.sabotage {
                Some(Sabotage::NoFence) => &[],
                _ => &[self.endpoint],
            };
            fence.begin(now, self.endpoint, &routes, there);
            lane.join_step = Some(JoinStep::Fencing);
        }
        let Some(JoinStep::Fencing) = lane.join_step else { return Ok(()) };
        for bytes in lane.host.arrived.drain(..) {
            if let Ok((header, kind, body)) = parse(&bytes) {
                fence.receive(&header, kind, body);
            }
        }
        match fence.state(now) {
            FenceState::Open => {
                (lane.join_step, lane.message_at) = (None, Some(now + MESSAGE_LATENCY))
            }
            FenceState::Querying => {}
            FenceState::Closed => return Err(ConnectionLost),
        }
        let (net, reply) = (&mut self.net, lane.host.socket_number.into());
        fence.put(now, |route, header, body| {
            let bytes = frame(FrameHeader { reply, ..header }, body);
            net.send(now, route.port as u8, ConnEnd::Host, Packet::Frame(bytes));
        });
        Ok(())
    }

    /// Moves the host end to another socket number, and returns it.
    pub fn change_socket_number(&mut self, id: ConnId) -> u16 {
        let number = self.rng.between(1, 0xffff) as u16;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.host.socket_number = number;
        }
        number
    }

    /// Makes a host end one of its lanes.
    pub fn end_any(&mut self, now: Instant) {
        let number = self.rng.below(self.lanes.len().max(1) as u64) as usize;
        if let Some(lane) = self.lanes.values_mut().nth(number) {
            lane.host.over_at = Some(now);
        }
    }

    /// Makes hosts end all their lanes.
    pub(super) fn end_all(&mut self, now: Instant) {
        self.lanes.values_mut().for_each(|lane| lane.host.over_at = Some(now));
    }

    fn has_carrier(&self) -> bool {
        (0..self.net.links()).any(|link| self.net.has_carrier(link))
    }

    /// Returns the links of a lane's end, and the entries of its queue.
    pub(super) fn links<R: Copy>(
        &mut self,
        now: Instant,
        id: ConnId,
        end: ConnEnd,
    ) -> Option<(LaneLinks<R>, u16)> {
        let lane = self.lanes.get_mut(&id)?;
        if end == ConnEnd::Host {
            lane.target.as_ref()?;
            lane.message_at.take_if(|at| *at <= now)?;
        }
        let (ours, theirs) = match end {
            ConnEnd::Host => (&lane.host, lane.target.as_ref()?),
            ConnEnd::Target => (lane.target.as_ref()?, &lane.host),
        };
        let mut links = LaneLinks::new(ours.token, theirs.token, ours.socket_number);
        for (link, plan) in (0..).zip(&self.plan.ether.links) {
            let config = ChannelConfig {
                link,
                first_tx: ours.firsts[usize::from(link)],
                first_rx: theirs.firsts[usize::from(link)],
                window: theirs.window,
                frame_bytes: plan.frame_bytes,
            };
            assert!(links.add(now, &config, theirs.socket_number));
        }
        Some((links, lane.entries))
    }

    /// Returns the plan of the run.
    pub(super) fn plan(&self) -> &SimPlan {
        &self.plan
    }
}

/// Methods of [`crate::transport::SimTransport`].
impl EtherNetwork {
    /// Makes the network of a run.
    pub(super) fn new(plan: &SimPlan, mut rng: SimRng) -> Self {
        let directions: Vec<_> = plan.ether.links.iter().map(|link| link.directions).collect();
        EtherNetwork {
            net: Net::new(&directions, plan.ether.ring_frames, rng.fork()),
            foreign: 0,
            made: 0,
            refused: 0,
            silent: 0,
            echo_until: Instant(0),
            plan: plan.clone(),
            rng,
            lanes: BTreeMap::new(),
            last: 0,
            fences: BTreeMap::new(),
            endpoint: [1; 16],
            silent_until: Instant(0),
            stalled_until: [Instant(0); 2],
            reliefs: Vec::new(),
        }
    }

    /// Returns the time of the next event at an end.
    pub(super) fn next_at(&self, end: ConnEnd) -> Option<Instant> {
        let messages = self.lanes.values().flat_map(|lane| {
            let is_mine = lane.target.is_some() == (end == ConnEnd::Host);
            let side = if end == ConnEnd::Host { Some(&lane.host) } else { lane.target.as_ref() };
            let over_at = side
                .filter(|side| side.is_there && !side.has_noticed)
                .and_then(|side| side.over_at);
            let join_step =
                lane.join_step.as_ref().filter(|_| end == ConnEnd::Host && lane.host.is_there);
            let join_step = join_step.and_then(|join_step| match join_step {
                JoinStep::Finding(at) => Some(*at),
                JoinStep::Fencing => self.fences.get(&lane.hostid)?.deadline(),
            });
            let message_at = lane.message_at.filter(|_| is_mine && lane.host.is_there);
            [over_at, join_step, message_at].into_iter().flatten()
        });
        let reliefs = self.reliefs.iter().map(|(at, _)| *at);
        let due = messages.chain(self.net.next_at(end)).min();
        let due = due.map(|at| at.max(self.stalled_until(end)));
        reliefs.chain(due).min()
    }

    /// Returns the time before which an end is stalled.
    pub(super) fn stalled_until(&self, end: ConnEnd) -> Instant {
        self.stalled_until[usize::from(end == ConnEnd::Target)]
    }

    /// Sorts packets that have arrived at an end by lanes.
    pub(super) fn sort(&mut self, now: Instant, end: ConnEnd) {
        for (link, packet) in self.net.receive(now, end) {
            let Packet::Frame(bytes) = packet else { continue };
            let Ok((header, kind, body)) = parse(&bytes) else {
                self.foreign += 1;
                continue;
            };
            let names = (header.token.get(), header.socket_number.get());
            let side = self.lanes.values_mut().find_map(|lane| {
                // A host that is fencing receives replies about other lanes.
                let is_fencing = lane.join_step.is_some();
                let side = lane.side(end).filter(|side| side.is_there)?;
                let is_its = names == (side.token, side.socket_number);
                (is_its || is_fencing && names.1 == side.socket_number).then_some(side)
            });
            match (side, kind) {
                (Some(side), _) => side.arrived.push_back(bytes),
                (None, FrameType::Leave | FrameType::Query) if end == ConnEnd::Target => {
                    self.answer(now, link, &header, kind, body);
                }
                (None, _) => self.foreign += 1,
            }
        }
    }

    /// Replaces the target's process, which is silent until `until`.
    pub(super) fn silence(&mut self, until: Instant) {
        self.silent_until = until;
        self.endpoint = u128::from(self.rng.bits()).to_le_bytes();
    }

    /// True if the host still has the lane.
    pub(super) fn has_host(&self, id: ConnId) -> bool {
        self.lanes.get(&id).is_some_and(|lane| lane.host.is_there)
    }

    /// Opens a lane for a host.
    pub(super) fn open(&mut self, now: Instant, queue: QueueOpening) -> ConnId {
        self.last += 1;
        let id = ConnId(self.last);
        let host = EtherLaneSide::new(&mut self.rng, self.plan.ether.links.len(), WINDOW as u16);
        let QueueOpening { hostid, qid, entries, .. } = queue;
        // I/O queues use the target of the admin queue.
        let is_its = |lane: &&SimEtherLane| lane.hostid == hostid && lane.host.is_there;
        let endpoint = self.lanes.values().rfind(is_its).map(|lane| lane.endpoint);
        let (join_step, message_at) = match qid {
            0 => (Some(JoinStep::Finding(now + MESSAGE_LATENCY)), None),
            _ => (None, Some(now + MESSAGE_LATENCY)),
        };
        let endpoint = endpoint.unwrap_or(self.endpoint);
        let (target, proof) = (None, None);
        let lane =
            SimEtherLane { hostid, entries, endpoint, join_step, host, target, proof, message_at };
        self.lanes.insert(id, lane);
        id
    }

    /// Accepts the next lane that its host has joined.
    pub(super) fn accept(&mut self, now: Instant) -> Option<ConnId> {
        let has_carrier = self.has_carrier();
        let is_due = |lane: &SimEtherLane| {
            lane.target.is_none() && lane.message_at.is_some_and(|at| at <= now)
        };
        let due: Vec<_> =
            self.lanes.iter().filter(|(_, lane)| is_due(lane)).map(|(&i, _)| i).collect();
        for id in due {
            let lane = self.lanes.get_mut(&id)?;
            if lane.endpoint != self.endpoint {
                lane.message_at = None;
                lane.host.over_at = Some(now + MESSAGE_LATENCY); // no reply
                continue;
            }
            if !has_carrier || self.silent_until > now {
                lane.message_at = Some(now + MESSAGE_LATENCY);
                continue;
            }
            let window = self.rng.pick(&[1, 64, WINDOW as u16]);
            lane.target =
                Some(EtherLaneSide::new(&mut self.rng, self.plan.ether.links.len(), window));
            lane.message_at = Some(now + MESSAGE_LATENCY);
            self.made += 1;
            return Some(id);
        }
        None
    }

    /// Takes a frame that has arrived at `end`.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        id: ConnId,
        end: ConnEnd,
    ) -> Option<ConnectionArrival> {
        let side = self.lanes.get_mut(&id)?.side(end)?;
        if side.is_over(now) {
            return (!std::mem::replace(&mut side.has_noticed, true))
                .then_some(ConnectionArrival::Closed);
        }
        side.arrived.pop_front().map(ConnectionArrival::Bytes)
    }

    /// Closes the lane at `end`.
    pub(super) fn close(&mut self, id: ConnId, end: ConnEnd) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(side) = lane.side(end) {
            side.is_there = false;
        }
        if !lane.host.is_there && lane.target.as_ref().is_none_or(|side| !side.is_there) {
            self.lanes.remove(&id);
        }
    }

    /// Records a host's lane that may carry commands: it must be ended before the host makes new ones.
    pub(super) fn keep<R: Copy>(
        &mut self,
        hostid: [u8; 16],
        id: ConnId,
        links: &LaneLinks<R>,
        proofs: Option<Proofs>,
    ) {
        let endpoint = self.lanes.get(&id).map_or(self.endpoint, |lane| lane.endpoint);
        let routes = (0..self.net.links()).map(|link| (link, route(link.into())));
        let lane = EarlierLane::new(endpoint, NQN.into(), links, routes);
        let lane = lane.sealed(proofs);
        self.fences.entry(hostid).or_default().add(lane);
    }

    /// Drops the fence of a host process that has ended.
    pub(super) fn forget(&mut self, hostid: [u8; 16]) {
        self.fences.remove(&hostid);
    }

    /// True if the end of the lane has arrived at `end`.
    pub(super) fn is_closed(&self, now: Instant, id: ConnId, end: ConnEnd) -> bool {
        let Some(lane) = self.lanes.get(&id) else { return true };
        match end {
            ConnEnd::Host => lane.host.is_over(now),
            ConnEnd::Target => lane.target.as_ref().is_none_or(|side| side.is_over(now)),
        }
    }
}

/// Returns the route over a link.
fn route(link: usize) -> LaneRoute {
    LaneRoute { port: link, peer: MacAddress([link as u8; 6]) }
}

fn frame(header: FrameHeader, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).into();
    let mut header = FrameHeader { version: VERSION, body: length, ..header };
    set_hcrc(&mut header);
    [header.as_bytes(), body].concat()
}

/// Returns a first SEQ, close to the wrap-around every other time.
fn first_seq(rng: &mut SimRng) -> u32 {
    if rng.chance(50) { 0u32.wrapping_sub(rng.between(0, 2000) as u32) } else { rng.bits() as u32 }
}
