//! Lane: a queue pair, and the ports of its links.

use super::late::LateJoins;
use super::port_writer::{BuiltFrames, CommandDataSource, PortWriter};
use super::ports::{HostFrame, Ports};
use super::reconnect::ReconnectCheck;
use super::route::route;
use crate::counters::PathReading;
use crate::link::LinkError;
use roadtrain_ether_port::{FrameSeal, RefusalLog, opening};
use roadtrain_ether_proto::fence::{EarlierLane, LaneRoute};
use roadtrain_ether_proto::host_queue::{EtherHostEvent, EtherHostQpair};
use roadtrain_ether_proto::liveness::{LaneLoss, Liveness};
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::ReactorCells;
use roadtrain_system::platform::numa;
use roadtrain_wire::ether::setup::LeaveReason;
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Interval at which the admin queue queries the target's addresses and frame sizes.
const SURVEY_EVERY: Duration = Duration::from_secs(1);
/// Minimum credits of a link, however many lanes share a port.
const CREDITS_MIN: usize = 32;

/// Lane over raw Ethernet.
pub(crate) struct HostEtherLane {
    pub(crate) qpair: EtherHostQpair,
    /// Route of each LINK.
    pub(super) routes: Vec<(u8, LaneRoute)>,
    /// Links that may still join it.
    pub(super) late: LateJoins,
    /// Last reported addresses of the target.
    pub(super) addresses: Vec<MacAddress>,
    pub(super) surveyed_at: Instant,
    /// True if addresses or links have changed since the last survey.
    pub(super) has_news: bool,
    /// Local addresses by port, at the last check.
    sources: Vec<MacAddress>,
    /// True if a link has joined, and its settings were not sent to the target.
    pub(super) has_new: bool,
    /// Credits of each link, once decided.
    credits: Option<u16>,
    /// Endpoint of its target.
    pub(super) endpoint: [u8; 16],
    pub(super) nqn: Arc<str>,
    /// Check whether its target still has it.
    liveness: Liveness,
    /// Check whether its links still suit.
    pub(super) reconnect: ReconnectCheck,
    /// Seal of its frames, if they are sealed.
    seal: Option<Box<FrameSeal>>,
    refusals: RefusalLog,
}

/// Parts of a lane.
pub(super) struct LaneParts {
    pub(super) qpair: EtherHostQpair,
    /// Route of each LINK.
    pub(super) routes: Vec<(u8, LaneRoute)>,
    pub(super) late: LateJoins,
    /// Addresses of the target.
    pub(super) addresses: Vec<MacAddress>,
    /// Endpoint of its target.
    pub(super) endpoint: [u8; 16],
    pub(super) nqn: Arc<str>,
    pub(super) liveness: Liveness,
}

impl HostEtherLane {
    pub(super) fn new(now: Instant, parts: LaneParts, ports: &Ports) -> Self {
        let LaneParts { qpair, routes, late, addresses, endpoint, nqn, liveness } = parts;
        HostEtherLane {
            qpair,
            routes,
            late,
            addresses,
            surveyed_at: now,
            has_news: true,
            sources: (0..ports.len()).map(|port| ports.mac(port)).collect(),
            has_new: false,
            credits: None,
            endpoint,
            nqn,
            liveness,
            reconnect: ReconnectCheck::default(),
            seal: None,
            refusals: RefusalLog::default(),
        }
    }

    /// Seals its frames from now on, and drops frames that are not sealed.
    pub(crate) fn seal(
        &mut self,
        secret: &FrameSecret,
        limits: KeyLimits,
    ) -> Result<(), LinkError> {
        let links = &self.qpair.end.links;
        let keys = secret.keys(links.token(), links.peer_token());
        let seal = FrameSeal::host(&keys, limits).map_err(|_| LinkError::Cipher)?;
        self.qpair.set_sealed(seal.proofs());
        self.seal = Some(Box::new(seal));
        Ok(())
    }

    /// Checks whether its links still suit, for the admin queue.
    pub(super) fn check_links(&mut self, now: Instant, ports: &mut Ports) {
        let what = (&self.routes[..], &*self.nqn);
        self.reconnect.check_links(now, ports, &self.qpair.end.links, what);
    }

    /// Handles an Offer.
    pub(crate) fn receive_offer(&mut self, now: Instant, received: &HostFrame<'_>) {
        self.reconnect.receive_offer(now, received, &self.routes, (self.endpoint, &self.nqn));
    }

    /// Returns the host's token of the lane.
    pub(crate) fn token(&self) -> u64 {
        self.qpair.end.links.token()
    }

    /// Shifts port numbers: the thread that it moves to has this many ports of other paths before its own.
    pub(crate) fn shift(&mut self, ports: usize) {
        self.routes.iter_mut().for_each(|(_, route)| route.port += ports);
        self.late.shift(ports);
        self.sources.splice(..0, vec![MacAddress::default(); ports]);
    }

    /// Moves it to these ports of the calling thread, which `lanes` lanes share.
    pub(crate) fn move_to(&mut self, now: Instant, ports: &Ports, lanes: usize) {
        let credits = (ports.ring_frames() / lanes.max(1)).max(CREDITS_MIN);
        self.credits = Some(credits.min(u16::MAX.into()) as u16);
        self.prefer(|port| numa::remote_node_cost(ports.node(port)));
        self.settle(now, ports);
        self.check_carriers(now, ports);
    }

    /// Sets the parameters of each link, which are sent to the target.
    fn settle(&mut self, now: Instant, ports: &Ports) {
        let links = &mut self.qpair.end.links;
        if let Some(credits) = self.credits {
            links.set_credits(now, credits);
        }
        links.set_socket_number(ports.socket_number());
    }

    /// Sets the additional cost of frames over each port.
    fn prefer(&mut self, detour: impl Fn(usize) -> Duration) {
        for &(link, route) in &self.routes {
            self.qpair.end.links.set_bias(link, detour(route.port));
        }
    }

    /// Handles a received frame with the lane's token.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        received: &HostFrame<'_>,
        event: &mut impl FnMut(&[u8], EtherHostEvent),
    ) {
        let from = LaneRoute { port: received.port, peer: received.source };
        if received.kind == FrameType::Joined {
            return self.joined(now, received, from);
        }
        if route(&self.routes, received.header.link) != Some(from) {
            return;
        }
        let HostEtherLane { qpair, liveness, seal, .. } = self;
        let &HostFrame { header, kind, body, .. } = received;
        opening(seal.is_some(), |out| {
            let frame = (header, kind, body);
            let Some(frame) = qpair.end.open(now, seal.as_deref_mut(), frame, out) else { return };
            if liveness.receive(now, kind, frame, &qpair.end.links) {
                let body = frame.body;
                qpair.receive(now, header, kind, body, &mut |what| event(body, what));
            }
        });
    }

    /// Checks that the lane is alive.
    ///
    /// # Errors
    /// Returns the reason for its end.
    pub(crate) fn check(&self, now: Instant) -> Result<(), LinkError> {
        if let Some(broken) = self.qpair.end.broken() {
            return Err(LinkError::Broken(broken.to_string()));
        }
        match (self.qpair.end.ended(), self.liveness.loss(now)) {
            (Some(reason), _) => Err(LinkError::Left(reason)),
            (None, Some(LaneLoss::Unknown)) => Err(LinkError::Left(LeaveReason::UnknownToken)),
            (None, Some(LaneLoss::Silent)) => Err(LinkError::Silent),
            (None, None) if self.seal.as_ref().is_some_and(|seal| seal.is_used_up()) => {
                Err(LinkError::KeysUsedUp)
            }
            (None, None) => self.reconnect.check(now),
        }
    }

    /// Returns when [`HostEtherLane::keep`] and [`HostEtherLane::send`] are due at the latest.
    pub(crate) fn deadline(&self, is_admin: bool) -> Option<Instant> {
        let survey = is_admin.then_some(self.surveyed_at + SURVEY_EVERY);
        let (late, reconnect) = (self.late.deadline(), self.reconnect.deadline());
        let alive = self.liveness.deadline(is_admin, &self.qpair.end.links);
        [self.qpair.end.deadline(), late, survey, reconnect]
            .into_iter()
            .flatten()
            .chain([alive])
            .min()
    }

    /// Runs the timers of the lane.
    pub(crate) fn keep(&mut self, now: Instant, ports: &mut Ports, is_admin: bool) {
        self.qpair.end.expire(now);
        self.log_refusals(now);
        let links = &self.qpair.end.links;
        if let Some((header, body)) = self.liveness.query(now, is_admin, links, &self.nqn) {
            for &(link, LaneRoute { port, peer }) in &self.routes {
                ports.put(port, peer, FrameHeader { link, ..header }, &body);
            }
        }
        let peer_token = self.qpair.end.links.peer_token();
        self.late.put(now, ports, peer_token, &self.nqn);
        if is_admin && self.surveyed_at + SURVEY_EVERY <= now {
            self.survey(now, ports);
        }
        if is_admin {
            self.check_links(now, ports);
        }
        if std::mem::take(&mut self.has_new) {
            if self.credits.is_some() {
                self.prefer(|port| numa::remote_node_cost(ports.node(port)));
            }
            self.settle(now, ports);
        }
    }

    fn log_refusals(&mut self, now: Instant) {
        if self.seal.is_some()
            && let Some(count) = self.refusals.due(now, &self.qpair.end.rejected)
        {
            let peer = self.routes.first().map(|(_, route)| route.peer).unwrap_or_default();
            warn!(%peer, nqn = %self.nqn, count, "frames that the target has not sealed were dropped");
        }
    }

    /// Builds the frames that may be sent now, and counts the sizes of caravans in `cells`. They are sent when the
    /// ports are flushed.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        ports: &mut Ports,
        source: &impl CommandDataSource,
        cells: Option<&ReactorCells>,
    ) -> BuiltFrames {
        let mut sum = BuiltFrames::default();
        while self.qpair.end.has_tx(now) {
            let seal = self.seal.as_deref_mut();
            let mut writer = PortWriter::new(ports, &self.routes, (source, cells), seal);
            self.qpair.poll_tx(now, &mut writer);
            let built = writer.built();
            sum.frames += built.frames;
            sum.bytes += built.bytes;
            if built.frames == 0 {
                break;
            }
            if self.qpair.end.has_tx(now) {
                ports.flush(); // a port is full
            }
        }
        sum
    }

    /// Updates links after the ports have checked their interfaces and carriers.
    pub(crate) fn check_carriers(&mut self, now: Instant, ports: &Ports) {
        for &(link, route) in &self.routes {
            let links = &mut self.qpair.end.links;
            // The interface may take only smaller frames than before.
            let fits = links.frame_bytes(link) <= ports.frame_bytes(route.port);
            links.set_carrier(now, link, ports.has_carrier(route.port) && fits);
        }
        for port in 0..ports.len() {
            let mac = ports.mac(port);
            let Some(before) = self.sources.get_mut(port) else { continue };
            if mac != MacAddress::default() && std::mem::replace(before, mac) != mac {
                let links = self.routes.iter().filter(|(_, route)| route.port == port);
                links.for_each(|&(link, route)| self.late.again(now, link, route));
            }
        }
    }

    /// Sends Leave: nothing else is sent any more.
    pub(crate) fn leave(&mut self, now: Instant, ports: &mut Ports) {
        self.qpair.end.leave(LeaveReason::Done);
        self.send(now, ports, &NoData, None);
        ports.flush();
    }

    /// Returns the identity that a fence needs to end the lane later.
    pub(crate) fn earlier(&self) -> EarlierLane {
        let routes = self.routes.iter().copied();
        let end = &self.qpair.end;
        EarlierLane::new(self.endpoint, self.nqn.clone(), &end.links, routes).sealed(end.proofs())
    }

    /// Returns samples of its part of every link.
    pub(crate) fn paths(&self, ports: &Ports) -> impl Iterator<Item = PathReading> {
        self.routes.iter().filter_map(|&(link, LaneRoute { port, peer })| {
            let stats = self.qpair.end.links.stats(link)?;
            Some(PathReading {
                interface: ports.interface(port).to_owned(),
                node: ports.node(port),
                peer: peer.to_string(),
                is_suspect: stats.is_suspect,
                is_sealed: self.seal.is_some(),
                smoothed_rtt: stats.smoothed_rtt,
                sent: stats.sent,
                lost: stats.lost,
            })
        })
    }
}

/// Data source of a lane that sends no commands any more.
struct NoData;

impl CommandDataSource for NoData {
    fn data(&self, _: u16, _: u32, _: u32) -> Option<&[u8]> {
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use roadtrain_ether_proto::Packing;
    use roadtrain_ether_proto::channel::ChannelConfig;
    use roadtrain_ether_proto::host_queue::EtherHostConfig;
    use roadtrain_ether_proto::links::LaneLinks;
    use roadtrain_proto::policy::PolicyConfig;
    use roadtrain_wire::ether::setup::JoinBody;
    use roadtrain_wire::ether::setup::LeaveBody;
    use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};

    pub(in super::super) const START: Instant = Instant(1_000_000_000);
    pub(in super::super) const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    pub(in super::super) fn lane() -> HostEtherLane {
        let config = EtherHostConfig {
            queue_entries: 4,
            pages: 256,
            piece_bytes: 4096,
            data_bytes_max: 1 << 20,
            policy: PolicyConfig::none(),
            packing: Packing::default(),
            body_crc: false,
        };
        let mut links = LaneLinks::new(0x10, 0x20, 3);
        let (link, first_tx, first_rx, window, frame_bytes) = (0, 1, 1, 64, 9000);
        links.add(START, &ChannelConfig { link, first_tx, first_rx, window, frame_bytes }, 4);
        let routes = vec![(0, LaneRoute { port: 0, peer: PEER })];
        let join = JoinBody { links: 3, piece: 4096.into(), ..JoinBody::new_zeroed() };
        let late = LateJoins::new(join, vec![join], vec![2, 1]);
        let parts = LaneParts {
            qpair: EtherHostQpair::new(config, links),
            routes,
            late,
            addresses: vec![PEER],
            endpoint: [9; 16],
            nqn: "nqn.x:y".into(),
            liveness: Liveness::new(START, Duration::from_secs(5)),
        };
        HostEtherLane::new(START, parts, &Ports::default())
    }

    #[test]
    fn frames_prefer_ports_that_are_near() {
        let mut lane = lane();
        let (link, first_tx, first_rx, window, frame_bytes) = (1, 1, 1, 64, 9000);
        let config = ChannelConfig { link, first_tx, first_rx, window, frame_bytes };
        lane.qpair.end.links.add(START, &config, 4);
        lane.routes.push((1, LaneRoute { port: 1, peer: PEER }));
        for far in [0, 1] {
            lane.prefer(|port| Duration::from_micros(if port == far { 5 } else { 0 }));
            assert_eq!(lane.qpair.end.links.choose(START, 1500), Some(1 - far as u8));
        }
    }

    fn deliver(
        lane: &mut HostEtherLane,
        now: Instant,
        source: MacAddress,
        kind: FrameType,
        body: &[u8],
    ) {
        let header = &FrameHeader { token: 0x10.into(), ..FrameHeader::default() };
        let received = HostFrame { port: 0, source, header, kind, body };
        lane.deliver(now, &received, &mut |_, event| panic!("{event:?}"));
    }

    fn leave(reason: LeaveReason) -> LeaveBody {
        LeaveBody { token: 0x20.into(), reason: (reason as u16).into(), endpoint: [0; 6] }
    }

    #[test]
    fn a_lane_ends_when_the_target_says_so() {
        let mut lane = lane();
        let stranger = MacAddress([2, 0, 0, 0, 0, 2]);
        let body = leave(LeaveReason::Shutdown);
        deliver(&mut lane, START, stranger, FrameType::Leave, body.as_bytes());
        assert!(lane.check(START).is_ok());
        deliver(&mut lane, START, PEER, FrameType::Leave, body.as_bytes());
        assert!(matches!(lane.check(START), Err(LinkError::Left(LeaveReason::Shutdown))));
    }

    #[test]
    fn a_lane_ends_when_nothing_comes() {
        let mut lane = lane();
        let second = |n| START + Duration::from_secs(n);
        deliver(&mut lane, second(3), PEER, FrameType::Ack, &[]);
        assert!(lane.check(second(7)).is_ok());
        assert!(matches!(lane.check(second(8)), Err(LinkError::Silent)));
        assert!(lane.deadline(false) <= Some(second(8)));
    }
}
