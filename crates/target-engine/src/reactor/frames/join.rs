//! Creation of lanes over Ethernet and of their links.

use crate::ether::damq::{self, LaneDamq};
use crate::ether::listener::refusal;
use crate::ether::{Drop, JoinRequest, ReplyFrame};
use crate::lane::{EtherLaneParts, EtherTransport, TargetLaneLink};
use crate::lane::{LaneError, TargetLane};
use crate::reactor::frames::{LinkMove, PortFrames};
use crate::reactor::lanes::TargetLanes;
use roadtrain_ether_port::port::Port;
use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::setup::answer;
use roadtrain_ether_proto::target_queue::{EtherTargetConfig, EtherTargetQpair};
use roadtrain_system::platform::numa;
use roadtrain_system::random;
use roadtrain_wire::ether::setup::{ADDRESSES_MAX, JoinBody, JoinedBody, join_flags};
use roadtrain_wire::ether::{
    DATA_RECORD_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameType, PAGE_BYTES,
};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::io;
use std::time::Duration;

/// Number of lanes that a token can address.
const LANES_MAX: usize = 1 << 16;
/// Most lanes without a connected queue.
const UNCONNECTED_MAX: usize = 128;
/// Time for which such a lane keeps its slot although others need it.
const UNCONNECTED_GRACE: Duration = Duration::from_secs(1);
/// Window of a host, in frames, until the host reports its own.
const WINDOW_FIRST: u16 = 128;
/// Largest window of one end of a channel, in frames.
const WINDOW_MAX: usize = 1024;
/// Smallest window, however small the ring is.
const WINDOW_MIN: usize = 16;
/// Smallest number of queue entries.
const SLOTS_MIN: u16 = 2;

/// Returns the size in bytes of a frame with one piece.
fn piece_frame_bytes(join: &JoinBody) -> usize {
    FRAME_HEADER_BYTES + DATA_RECORD_BYTES + usize::from(join.piece.get())
}

impl PortFrames {
    /// Handles the request for a lane or another link of it; also a repeated one, if the reply was lost.
    pub(super) fn join(
        &mut self,
        lanes: &mut TargetLanes,
        request: &JoinRequest,
    ) -> Result<(), Drop> {
        if request.port >= lanes.shared.ports.len() {
            return Err(Drop::Setup);
        }
        let known = lanes.hosts.by_token.get(&request.join.token.get()).copied();
        let frame_bytes = lanes.shared.ports[request.port].frame_bytes();
        if frame_bytes < piece_frame_bytes(&request.join) {
            return Err(Drop::Setup); // the interface has changed since
        }
        let made = match known {
            Some(index) => return self.join_link(lanes, index, request),
            None if request.header.token.get() != 0 => return Err(Drop::Token),
            None => self.make_lane(lanes, request)?,
        };
        if let Err(status) = made {
            self.replies.push(refusal(request, status, frame_bytes));
        }
        Ok(())
    }

    /// Handles the Join of an existing lane: adds the link, moves it, or repeats the reply.
    fn join_link(
        &mut self,
        lanes: &mut TargetLanes,
        index: u32,
        request: &JoinRequest,
    ) -> Result<(), Drop> {
        let JoinRequest { port, source, header, join, nqn } = request;
        let ether =
            lanes.table.get_mut(index).and_then(TargetLane::ether_mut).ok_or(Drop::Token)?;
        let token = header.token.get();
        if let Some(link) = ether.link(join.link) {
            let is_same = (link.port, link.peer) == (*port, *source);
            if link.join != *join || (token != ether.token && (token != 0 || !is_same)) {
                return Err(Drop::Source);
            }
            // Any peer can repeat a Join: only sealed frames prove where the host of a sealed lane is.
            if !is_same && ether.is_sealed() {
                Self::check_size(lanes, index, join.link, *port)?;
            } else if !is_same {
                let (link, port, source) = (join.link, *port, *source);
                self.move_link(lanes, LinkMove { index, link, port, source })?;
            }
        } else {
            let (_, first) = ether.links().next().ok_or(Drop::Token)?;
            let fixed = |j: &JoinBody| (j.piece, j.links, j.flags);
            if token != ether.token || **nqn != *ether.nqn || fixed(join) != fixed(&first.join) {
                return Err(Drop::Setup);
            }
            Self::add_link(lanes, index, request).map_err(|_| Drop::Setup)?;
        }
        self.joined(lanes, index, request);
        lanes.end_turn(index);
        Ok(())
    }

    /// Checks that the frames of a link fit the port.
    fn check_size(lanes: &mut TargetLanes, index: u32, link: u8, port: usize) -> Result<(), Drop> {
        let ether = lanes.table.get(index).and_then(TargetLane::ether).ok_or(Drop::Token)?;
        let takes = lanes.shared.ports[port].frame_bytes();
        if ether.qpair.end.links.frame_bytes(link) > takes { Err(Drop::Setup) } else { Ok(()) }
    }

    /// Moves a link to another port or address because one of its ends is gone. Undelivered frames go there.
    pub(super) fn move_link(
        &mut self,
        lanes: &mut TargetLanes,
        moved: LinkMove,
    ) -> Result<(), Drop> {
        let LinkMove { index, link, port, source } = moved;
        Self::check_size(lanes, index, link, port)?;
        let detour = numa::remote_node_cost(lanes.shared.ports[port].interface().node);
        let ether =
            lanes.table.get_mut(index).and_then(TargetLane::ether_mut).ok_or(Drop::Token)?;
        ether.qpair.end.links.set_bias(link, detour);
        ether.move_link(link, port, source);
        ether.set_states(lanes.shared.now, &self.watched.states);
        Ok(())
    }

    /// Creates a lane, or returns the status of the refusal.
    fn make_lane(
        &mut self,
        lanes: &mut TargetLanes,
        request: &JoinRequest,
    ) -> Result<Result<(), Status>, Drop> {
        if !self.joins.take(lanes.shared.now) {
            return Err(Drop::Rate);
        }
        if lanes.stopping || !Self::has_room_for_unconnected(lanes) {
            return Ok(Err(Status::CONNECT_CONTROLLER_BUSY));
        }
        let most = lanes.shared.control.limits().queue_entries_max;
        let slots = request.join.slots.get().clamp(SLOTS_MIN, most);
        let Some(pages) = damq::pages(slots, lanes.hosts.damq_left) else {
            return Ok(Err(Status::CONNECT_CONTROLLER_BUSY));
        };
        let (index, generation) = lanes.table.reserve();
        match self.new_ether(lanes, index, slots, pages, request) {
            Ok(ether) if (index as usize) < LANES_MAX => {
                let interface = &lanes.shared.ports[request.port].interface().name;
                let peer = format!("{}%{interface}", Mac(request.source.0));
                let lane = TargetLane::over_ether((index, generation), peer, ether, self.seals);
                lanes.hosts.damq_left -= pages as usize * PAGE_BYTES;
                lanes.hosts.by_token.insert(request.join.token.get(), index);
                lanes.add_lane(index, lane);
            }
            Ok(_) | Err(_) => {
                lanes.table.release(index);
                return Ok(Err(Status::INTERNAL_ERROR));
            }
        }
        if Self::add_link(lanes, index, request).is_err() {
            lanes.use_lane(index, |_, _| Err::<(), _>(LaneError::Ended("no link")));
            return Ok(Err(Status::INTERNAL_ERROR));
        }
        self.joined(lanes, index, request);
        Ok(Ok(()))
    }

    fn new_ether(
        &self,
        lanes: &TargetLanes,
        index: u32,
        slots: u16,
        pages: u32,
        request: &JoinRequest,
    ) -> io::Result<EtherTransport> {
        let token = random::number()? & !0xffff | u64::from(index);
        let socket_number = lanes.shared.ports[request.port].socket_number();
        let links = LaneLinks::new(token, request.join.token.get(), socket_number);
        let config = EtherTargetConfig {
            slots,
            pages,
            piece_bytes: request.join.piece.get(),
            data_bytes_max: lanes.shared.control.limits().transfer_bytes_max(),
            policy: lanes.qpair.policy,
            packing: self.packing,
            body_crc: request.join.flags.get() & join_flags::CRC != 0,
        };
        let parts = EtherLaneParts {
            qpair: EtherTargetQpair::new(config, links),
            damq: LaneDamq::new(pages)?,
            token,
            nqn: request.nqn.clone(),
            slots,
        };
        Ok(EtherTransport::new(lanes.shared.now, &request.join, parts))
    }

    fn add_link(lanes: &mut TargetLanes, index: u32, request: &JoinRequest) -> io::Result<()> {
        let JoinRequest { port, source, header, join, .. } = request;
        let first = random::number()? as u32;
        let frame_bytes =
            lanes.shared.ports[*port].frame_bytes().min(usize::from(join.frame.get()));
        let channel = ChannelConfig {
            link: join.link,
            first_tx: first,
            first_rx: join.first.get(),
            window: WINDOW_FIRST,
            frame_bytes: frame_bytes as u16,
        };
        let link = TargetLaneLink { port: *port, peer: *source, join: *join, first };
        let (now, window) = (lanes.shared.now, Self::window(lanes));
        let detour = numa::remote_node_cost(lanes.shared.ports[*port].interface().node);
        let ether = lanes.table.get_mut(index).and_then(TargetLane::ether_mut);
        let added = ether.is_some_and(|ether| {
            let added = ether.add_link(now, link, &channel, header.reply.get());
            ether.qpair.end.links.set_credits(now, window);
            ether.qpair.end.links.set_bias(join.link, detour);
            added
        });
        if added { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    }

    /// Returns the window in frames: lanes that share a ring rarely send at the same time.
    fn window(lanes: &TargetLanes) -> u16 {
        let rings = lanes.shared.ports.iter().map(Port::ring_frames);
        rings.min().unwrap_or(WINDOW_MAX).clamp(WINDOW_MIN, WINDOW_MAX) as u16
    }

    /// Replies that the link has joined.
    fn joined(&mut self, lanes: &mut TargetLanes, index: u32, request: &JoinRequest) {
        let JoinRequest { port, source, header, join, .. } = request;
        let Some(ether) = lanes.table.get(index).and_then(TargetLane::ether) else { return };
        let Some(link) = ether.link(join.link) else { return };
        let at = &lanes.shared.ports[*port];
        let joined = JoinedBody {
            status: 0.into(),
            slots: ether.slots.into(),
            token: ether.token.into(),
            first: link.first.into(),
            pages: ((ether.damq.len() / PAGE_BYTES) as u32).into(),
            frame: (at.frame_bytes() as u16).into(),
            window: Self::window(lanes).into(),
        };
        let header = answer(FrameType::Joined, header, join.token.get());
        let header = FrameHeader { link: join.link, ..header };
        let body = [joined.as_bytes(), &Self::addresses(lanes)].concat();
        self.replies.push(ReplyFrame::new(*port, *source, header, &body));
    }

    /// Returns the target's MAC addresses of existing interfaces, whether up or not.
    fn addresses(lanes: &TargetLanes) -> Vec<u8> {
        let there = lanes.shared.ports.iter().filter(|port| !port.is_absent());
        there.take(ADDRESSES_MAX).flat_map(|port| port.mac().0).collect()
    }

    /// True if one more lane without a queue may exist. Ends the oldest one if needed.
    fn has_room_for_unconnected(lanes: &mut TargetLanes) -> bool {
        let is_unconnected = |&(_, (index, generation)): &(_, (u32, u32))| {
            let lane = lanes.table.get(index);
            lanes.table.generation(index) == generation
                && lane.is_some_and(|l| l.session.is_unauthenticated() && l.ether().is_some())
        };
        let mut unconnected = lanes.rules.unauthenticated.iter().filter(is_unconnected);
        let Some((since, (oldest, _))) = unconnected.next() else { return true };
        if unconnected.count() + 1 < UNCONNECTED_MAX {
            return true;
        }
        if lanes.shared.now.since(since) < UNCONNECTED_GRACE {
            return false;
        }
        lanes.use_lane(oldest, |_, _| {
            Err::<(), _>(LaneError::Ended("no queue connected, and another lane needs the slot"))
        });
        true
    }
}

/// MAC address in the usual notation.
struct Mac([u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
