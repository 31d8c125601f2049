//! Lanes over simulated links. What lanes send goes over the links; set-up (Join, Query, and Leave before a new
//! association) is by word of mouth, which takes its time and needs a link.

use super::host::HostLink;
use super::net::{Net, Packet};
use super::plan::Plan;
use super::target::TargetLink;
use crate::network::{Arrival, ConnId, End};
use crate::plan::{self, Sabotage};
use crate::rng::Rng;
use crate::transport::{Opening, Transport};
use core::time::Duration;
use roadtrain_proto::ether::channel::{ChannelConfig, WINDOW};
use roadtrain_proto::ether::links::Links;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::parse;
use std::collections::{BTreeMap, VecDeque};

/// Time that a word takes.
const WORD: Duration = Duration::from_micros(500);
/// What a host waits for the answer to its Query.
const QUERY: Duration = Duration::from_millis(2);

/// An end of a lane.
struct Side {
    token: u64,
    socket_number: u16,
    /// Its first SEQ of each link.
    firsts: Vec<u32>,
    /// Numbers that it has room for.
    window: u16,
    arrived: VecDeque<Vec<u8>>,
    /// It knows the lane.
    is_there: bool,
    /// It hears then that the lane is over.
    over_at: Option<Instant>,
    /// It has.
    has_heard: bool,
}

impl Side {
    fn new(rng: &mut Rng, links: usize, window: u16) -> Self {
        Side {
            token: rng.bits(),
            socket_number: rng.between(1, 0xffff) as u16,
            firsts: (0..links).map(|_| first_seq(rng)).collect(),
            window,
            arrived: VecDeque::new(),
            is_there: true,
            over_at: None,
            has_heard: false,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        !self.is_there || self.over_at.is_some_and(|at| at <= now)
    }
}

/// A lane.
struct Lane {
    hostid: [u8; 16],
    entries: u16,
    host: Side,
    /// `None` until the target has made it.
    target: Option<Side>,
    /// The next word arrives then: Join at the target, or Joined at the host.
    word_at: Option<Instant>,
    /// The answer to Query.
    query_at: Option<Instant>,
}

impl Lane {
    fn side(&mut self, end: End) -> Option<&mut Side> {
        match end {
            End::Host => Some(&mut self.host),
            End::Target => self.target.as_mut(),
        }
    }
}

/// The links, and the lanes over them.
pub struct Ether {
    /// The links.
    pub net: Net,
    /// Octets that were no frame, or of no lane.
    pub foreign: u64,
    /// Lanes that were made.
    pub made: u64,
    plan: Plan,
    rng: Rng,
    lanes: BTreeMap<ConnId, Lane>,
    last: u32,
    /// The target does not answer before.
    silent_until: Instant,
}

impl Ether {
    /// Without lanes.
    #[must_use]
    pub fn new(plan: &Plan, mut rng: Rng) -> Self {
        let ways: Vec<_> = plan.links.iter().map(|link| link.ways).collect();
        Ether {
            net: Net::new(&ways, plan.ring_frames, rng.fork()),
            foreign: 0,
            made: 0,
            plan: plan.clone(),
            rng,
            lanes: BTreeMap::new(),
            last: 0,
            silent_until: Instant(0),
        }
    }

    /// What has arrived at an end goes to its lanes.
    pub fn sort(&mut self, now: Instant, end: End) {
        for (_, packet) in self.net.receive(now, end) {
            let Packet::Frame(octets) = packet else { continue };
            let names = parse(&octets)
                .ok()
                .map(|(header, ..)| (header.token.get(), header.socket_number.get()));
            let sides = self.lanes.values_mut().filter_map(|lane| lane.side(end));
            let is_its =
                |side: &&mut Side| side.is_there && names == Some((side.token, side.socket_number));
            match sides.into_iter().find(is_its) {
                Some(side) => side.arrived.push_back(octets),
                None => self.foreign += 1,
            }
        }
    }

    /// The target's process is not there before.
    pub fn silence(&mut self, until: Instant) {
        self.silent_until = until;
    }

    /// The host's ends move to other socket numbers: what they are now.
    pub fn change_socket_number(&mut self, id: ConnId) -> u16 {
        let number = self.rng.between(1, 0xffff) as u16;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.host.socket_number = number;
        }
        number
    }

    /// The host is to end one of its lanes.
    pub fn end_any(&mut self, now: Instant) {
        let number = self.rng.below(self.lanes.len().max(1) as u64) as usize;
        if let Some(lane) = self.lanes.values_mut().nth(number) {
            lane.host.over_at = Some(now);
        }
    }

    /// While a link of the lane is suspect the target is asked whether it knows it.
    pub(super) fn query(&mut self, now: Instant, id: ConnId, is_suspect: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if !is_suspect {
            lane.query_at = None;
            return;
        }
        if *lane.query_at.get_or_insert(now + QUERY) > now {
            return;
        }
        lane.query_at = None;
        let is_known = lane.target.as_ref().is_some_and(|side| side.is_there);
        if !is_known && self.silent_until <= now {
            lane.host.over_at = Some(now);
        }
    }

    fn has_carrier(&self) -> bool {
        (0..self.net.links()).any(|link| self.net.has_carrier(link))
    }

    /// The fence: the target still has a lane of that host's last association.
    fn is_fenced(&self, hostid: [u8; 16]) -> bool {
        let is_left = |lane: &Lane| {
            lane.hostid == hostid
                && !lane.host.is_there
                && lane.target.as_ref().is_some_and(|side| side.is_there)
        };
        self.plan.base.sabotage != Some(Sabotage::NoFence) && self.lanes.values().any(is_left)
    }

    /// The links of a lane's end, and the entries of its queue.
    pub(super) fn links<R: Copy>(
        &mut self,
        now: Instant,
        id: ConnId,
        end: End,
    ) -> Option<(Links<R>, u16)> {
        let lane = self.lanes.get_mut(&id)?;
        if end == End::Host {
            lane.target.as_ref()?;
            lane.word_at.take_if(|at| *at <= now)?;
        }
        let (ours, theirs) = match end {
            End::Host => (&lane.host, lane.target.as_ref()?),
            End::Target => (lane.target.as_ref()?, &lane.host),
        };
        let mut links = Links::new(ours.token, theirs.token, ours.socket_number);
        for (link, plan) in (0..).zip(&self.plan.links) {
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

    /// What the lanes are made with.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// When something is due at an end.
    #[must_use]
    pub fn next_at(&self, end: End) -> Option<Instant> {
        let words = self.lanes.values().flat_map(|lane| {
            let is_mine = lane.target.is_some() == (end == End::Host);
            let side = if end == End::Host { Some(&lane.host) } else { lane.target.as_ref() };
            let over_at =
                side.filter(|side| side.is_there && !side.has_heard).and_then(|side| side.over_at);
            let query_at = lane.query_at.filter(|_| end == End::Host && lane.host.is_there);
            let word_at = lane.word_at.filter(|_| is_mine && lane.host.is_there);
            [over_at, query_at, word_at].into_iter().flatten()
        });
        words.chain(self.net.next_at(end)).min()
    }
}

impl Transport for Ether {
    type Host = HostLink;
    type Target = TargetLink;

    fn open(&mut self, now: Instant, _: &plan::Plan, queue: Opening, _: &mut Rng) -> HostLink {
        self.last += 1;
        let id = ConnId(self.last);
        let host = Side::new(&mut self.rng, self.plan.links.len(), WINDOW as u16);
        let Opening { hostid, entries, .. } = queue;
        let word_at = Some(now + WORD);
        let lane = Lane { hostid, entries, host, target: None, word_at, query_at: None };
        self.lanes.insert(id, lane);
        HostLink::new(id)
    }

    fn accept(&mut self, now: Instant) -> Option<ConnId> {
        let has_carrier = self.has_carrier();
        let is_due =
            |lane: &Lane| lane.target.is_none() && lane.word_at.is_some_and(|at| at <= now);
        let due: Vec<_> =
            self.lanes.iter().filter(|(_, lane)| is_due(lane)).map(|(&i, _)| i).collect();
        for id in due {
            let is_fenced = self.is_fenced(self.lanes[&id].hostid);
            let lane = self.lanes.get_mut(&id)?;
            if !has_carrier || is_fenced {
                lane.word_at = Some(now + WORD);
                continue;
            }
            let window = self.rng.pick(&[1, 64, WINDOW as u16]);
            lane.target = Some(Side::new(&mut self.rng, self.plan.links.len(), window));
            lane.word_at = Some(now + WORD);
            self.made += 1;
            return Some(id);
        }
        None
    }

    fn target_end(&mut self, now: Instant, id: ConnId, _: &plan::Plan, _: &mut Rng) -> TargetLink {
        TargetLink::new(now, id, self)
    }

    fn receive(&mut self, now: Instant, id: ConnId, end: End) -> Option<Arrival> {
        let side = self.lanes.get_mut(&id)?.side(end)?;
        if side.is_over(now) {
            return (!std::mem::replace(&mut side.has_heard, true)).then_some(Arrival::Closed);
        }
        side.arrived.pop_front().map(Arrival::Octets)
    }

    /// The host has its target give the lane up; the target tells nobody but by Leave.
    fn close(&mut self, now: Instant, id: ConnId, end: End, _orderly: bool) {
        let is_told = self.plan.base.sabotage != Some(Sabotage::NoFence);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(side) = lane.side(end) {
            side.is_there = false;
        }
        match &mut lane.target {
            Some(target) if target.is_there && is_told => target.over_at = Some(now + WORD),
            Some(target) if target.is_there => {}
            _ if !lane.host.is_there => {
                self.lanes.remove(&id);
            }
            _ => {}
        }
    }

    fn is_closed(&self, now: Instant, id: ConnId, end: End) -> bool {
        let Some(lane) = self.lanes.get(&id) else { return true };
        match end {
            End::Host => lane.host.is_over(now),
            End::Target => lane.target.as_ref().is_none_or(|side| side.is_over(now)),
        }
    }
}

/// A first SEQ: near the end of the numbers every other time.
fn first_seq(rng: &mut Rng) -> u32 {
    if rng.chance(50) { 0u32.wrapping_sub(rng.between(0, 2000) as u32) } else { rng.bits() as u32 }
}
