//! Ends a host's earlier lanes, so that no old command is executed after its retry in a new lane.
//!
//! The host adds a lane as soon as commands may arrive in it. Before the host creates others, [`Fence::begin`] lists
//! the targets that exist. [`Fence::put`] requests each of them to end its lanes, until [`Fence::state`] reports that
//! all have ended. A target that replies takes no more frames of the lane.

use super::links::{LINKS_MAX, LaneLinks};
use super::query_timer::{QueryIntervals, QueryTimer};
use super::setup::query;
use core::time::Duration;
use roadtrain_proto::seal::Proofs;
use roadtrain_proto::security::PROOF_BYTES;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason, endpoint_tag};
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::sync::Arc;

/// Retransmission intervals of Leave and Query.
const PACE: QueryIntervals = QueryIntervals {
    first: Duration::from_millis(10),
    longest: Duration::from_secs(1),
    total: Duration::from_secs(5),
};

/// Most routes kept for a lane: the newest ones.
const ROUTES_MAX: usize = 2 * LINKS_MAX;

/// A link: the host's port, and the peer's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRoute {
    pub port: usize,
    pub peer: MacAddress,
}

/// A lane that must end before the host creates others.
#[derive(Clone, Debug)]
pub struct EarlierLane {
    /// Endpoint of the lane's target.
    endpoint: [u8; 16],
    token: u64,
    peer_token: u64,
    nqn: Arc<str>,
    /// This end's proof in Leave, if the lane is sealed.
    proof: Option<[u8; PROOF_BYTES]>,
    /// LINK, its route, and the target's socket number on it.
    links: Vec<(u8, LaneRoute, u16)>,
}

/// Lanes that the target may still have, and the last target.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    lanes: Vec<EarlierLane>,
    target: Option<[u8; 16]>,
    query_timer: Option<QueryTimer>,
}

/// State of the fence: lanes may be created when it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// All earlier lanes have ended.
    Open,
    /// Queries to the lanes' targets are in progress.
    Querying,
    /// A target has not confirmed in time that its lanes have ended.
    Closed,
}

impl Fence {
    /// Adds a lane.
    pub fn add(&mut self, lane: EarlierLane) {
        self.lanes.push(lane);
    }

    /// Adds a route to a target.
    pub fn add_route(&mut self, endpoint: &[u8; 16], route: LaneRoute) {
        let lanes = self.lanes.iter_mut().filter(|lane| lane.endpoint == *endpoint);
        lanes.for_each(|lane| lane.add_route(route));
    }

    /// Endpoints of the targets with earlier lanes, and of the last target: an earlier connect to it may have failed.
    #[must_use]
    pub fn endpoints(&self) -> Vec<[u8; 16]> {
        self.lanes.iter().map(|lane| lane.endpoint).chain(self.target).collect()
    }

    /// Begins to end the earlier lanes, before lanes to the target `endpoint` are created over `routes`. A lane has
    /// ended if its target is not in `existing`; the other lanes are ended now.
    pub fn begin(
        &mut self,
        now: Instant,
        endpoint: [u8; 16],
        routes: &[LaneRoute],
        existing: &[[u8; 16]],
    ) {
        self.target = Some(endpoint);
        self.set_routes(&endpoint, routes);
        self.lanes.retain(|lane| existing.contains(&lane.endpoint));
        self.query_timer = Some(QueryTimer::new(now, PACE));
    }

    /// Sets the routes to a target. A lane that has one of them keeps its own: an offer alone proves nothing.
    fn set_routes(&mut self, endpoint: &[u8; 16], routes: &[LaneRoute]) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.endpoint == *endpoint) {
            if !routes.iter().any(|route| lane.has_route(*route)) {
                routes.iter().for_each(|route| lane.add_route(*route));
            }
        }
    }

    /// Passes the frames that are due now to `put`: route, header without REPLY and BODY, body.
    pub fn put(&mut self, now: Instant, mut put: impl FnMut(LaneRoute, FrameHeader, &[u8])) {
        if self.lanes.is_empty()
            || !self.query_timer.as_mut().is_some_and(|query_timer| query_timer.is_due(now))
        {
            return;
        }
        for lane in &self.lanes {
            lane.put(&mut put);
        }
    }

    /// Processes a received frame.
    pub fn receive(&mut self, header: &FrameHeader, kind: FrameType, body: &[u8]) {
        let Ok((leave, _)) = LeaveBody::ref_from_prefix(body) else { return };
        if kind == FrameType::Leave {
            self.lanes.retain(|lane| !lane.is_ended_by(header, leave));
        }
    }

    /// Returns whether lanes may be created.
    #[must_use]
    pub fn state(&self, now: Instant) -> FenceState {
        match &self.query_timer {
            _ if self.lanes.is_empty() => FenceState::Open,
            Some(query_timer) if !query_timer.is_over(now) => FenceState::Querying,
            _ => FenceState::Closed,
        }
    }

    /// Time at which [`Fence::put`] has work, or [`Fence::state`] changes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let query_timer = self.query_timer.as_ref().filter(|_| !self.lanes.is_empty());
        query_timer.map(QueryTimer::deadline)
    }
}

impl EarlierLane {
    /// Creates the record of a lane to the target `endpoint`, for the subsystem `nqn`; `routes` are by LINK.
    #[must_use]
    pub fn new<R: Copy>(
        endpoint: [u8; 16],
        nqn: Arc<str>,
        links: &LaneLinks<R>,
        routes: impl IntoIterator<Item = (u8, LaneRoute)>,
    ) -> Self {
        let socket_number = |link| links.peer_socket_number(link).unwrap_or(0);
        EarlierLane {
            endpoint,
            token: links.token(),
            peer_token: links.peer_token(),
            nqn,
            proof: None,
            links: routes
                .into_iter()
                .map(|(link, route)| (link, route, socket_number(link)))
                .collect(),
        }
    }

    /// Adds this end's proof, if the lane is sealed.
    #[must_use]
    pub fn sealed(self, proofs: Option<Proofs>) -> Self {
        EarlierLane { proof: proofs.map(|proofs| proofs.own), ..self }
    }

    fn has_route(&self, route: LaneRoute) -> bool {
        self.links.iter().any(|&(_, known, _)| known == route)
    }

    /// Adds a route with socket number 0.
    fn add_route(&mut self, route: LaneRoute) {
        if self.has_route(route) {
            return;
        }
        if self.links.len() >= ROUTES_MAX {
            self.links.remove(0);
        }
        self.links.push((0, route, 0));
    }

    /// Sends Leave to the lane's sockets, and Query to socket number 0, because the lane's socket may be closed by
    /// now.
    fn put(&self, put: &mut impl FnMut(LaneRoute, FrameHeader, &[u8])) {
        let leave = LeaveBody {
            token: self.token.into(),
            reason: (LeaveReason::Done as u16).into(),
            endpoint: [0; 6],
        };
        let proof = self.proof.as_ref().map_or(&[][..], |proof| proof);
        let leave = [leave.as_bytes(), proof].concat();
        let (query, query_body) = query(self.peer_token, self.token, &self.nqn);
        for &(link, route, socket_number) in &self.links {
            let leave_header = FrameHeader {
                kind: FrameType::Leave as u8,
                token: self.peer_token.into(),
                socket_number: socket_number.into(),
                link,
                ..FrameHeader::default()
            };
            put(route, leave_header, &leave);
            put(route, FrameHeader { link, ..query }, &query_body);
        }
    }

    /// True if `leave` confirms that its target takes no more frames of the lane. Another target at the same port,
    /// for the same subsystem, does not know the lane either and proves nothing.
    fn is_ended_by(&self, header: &FrameHeader, leave: &LeaveBody) -> bool {
        (self.token, self.peer_token) == (header.token.get(), leave.token.get())
            && [[0; 6], endpoint_tag(&self.endpoint)].contains(&leave.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_wire::ether::setup::{QueryBody, with_nqn};

    const START: Instant = Instant(1_000_000_000);

    fn ms(ms: u64) -> Instant {
        START + Duration::from_millis(ms)
    }

    fn route_to(byte: u8) -> LaneRoute {
        LaneRoute { port: 0, peer: MacAddress([byte; 6]) }
    }

    fn lane(number: u64) -> EarlierLane {
        EarlierLane {
            endpoint: [1; 16],
            token: number,
            peer_token: number + 100,
            nqn: "nqn.x:y".into(),
            proof: None,
            links: vec![(0, route_to(2), 7)],
        }
    }

    /// Returns a fence that has been ending these lanes since [`START`].
    fn fence(lanes: Vec<EarlierLane>) -> Fence {
        let mut fence = Fence::default();
        lanes.into_iter().for_each(|lane| fence.add(lane));
        fence.begin(START, [1; 16], &[route_to(2)], &[[1; 16], [2; 16]]);
        fence
    }

    fn is_open(fence: &Fence) -> bool {
        fence.state(START) == FenceState::Open
    }

    /// Returns the frames that are due, as route, type, socket number and token.
    fn put(fence: &mut Fence, now: Instant) -> Vec<(LaneRoute, u8, u16, u64)> {
        let mut frames = Vec::new();
        fence.put(now, |route, header, _| {
            frames.push((route, header.kind, header.socket_number.get(), header.token.get()));
        });
        frames
    }

    fn answer(fence: &mut Fence, token: u64, peer_token: u64, reason: LeaveReason) {
        answer_of(fence, [0; 6], token, peer_token, reason);
    }

    fn answer_of(
        fence: &mut Fence,
        endpoint: [u8; 6],
        token: u64,
        peer_token: u64,
        reason: LeaveReason,
    ) {
        let header = FrameHeader { token: token.into(), ..FrameHeader::default() };
        let reason = (reason as u16).into();
        let leave = LeaveBody { token: peer_token.into(), reason, endpoint };
        fence.receive(&header, FrameType::Leave, leave.as_bytes());
    }

    #[test]
    fn another_target_knows_nothing_about_a_lane() {
        let mut fence = fence(vec![lane(1)]);
        answer_of(&mut fence, [2; 6], 1, 101, LeaveReason::UnknownToken);
        assert!(!is_open(&fence));
        answer_of(&mut fence, [1; 6], 1, 101, LeaveReason::UnknownToken);
        assert!(is_open(&fence));
    }

    #[test]
    fn lanes_remain_until_each_is_answered() {
        let mut fence = fence(vec![lane(1), lane(2)]);
        answer(&mut fence, 1, 102, LeaveReason::Done);
        answer(&mut fence, 3, 103, LeaveReason::Done);
        assert!(!is_open(&fence) && fence.lanes.len() == 2, "tokens of other lanes");
        answer(&mut fence, 2, 102, LeaveReason::Done);
        assert!(!is_open(&fence));
        let header = FrameHeader { token: 1.into(), ..FrameHeader::default() };
        let leave = LeaveBody { token: 101.into(), reason: 1.into(), endpoint: [0; 6] };
        fence.receive(&header, FrameType::Ack, leave.as_bytes());
        fence.receive(&header, FrameType::Leave, &leave.as_bytes()[1..]);
        assert!(!is_open(&fence), "no Leave");
        answer(&mut fence, 1, 101, LeaveReason::UnknownToken);
        assert!(is_open(&fence) && fence.deadline().is_none());
    }

    #[test]
    fn leave_and_query_are_repeated_until_the_timeout() {
        let mut fence = fence(vec![lane(1)]);
        let expected = [
            (route_to(2), FrameType::Leave as u8, 7, 101),
            (route_to(2), FrameType::Query as u8, 0, 101),
        ];
        assert_eq!(put(&mut fence, START), expected);
        assert_eq!((put(&mut fence, ms(9)), fence.deadline()), (Vec::new(), Some(ms(10))));
        assert_eq!(put(&mut fence, ms(10)), expected);
        let again = (11..5000).filter(|&at| !put(&mut fence, ms(at)).is_empty()).count();
        assert_eq!((again, fence.state(ms(4999))), (9, FenceState::Querying));
        assert_eq!((fence.state(ms(5000)), fence.deadline()), (FenceState::Closed, Some(ms(5000))));
        // The next try begins from the start.
        fence.begin(ms(6000), [1; 16], &[route_to(2)], &[[1; 16]]);
        assert_eq!(
            (put(&mut fence, ms(6000)).len(), fence.state(ms(6000))),
            (2, FenceState::Querying)
        );
    }

    #[test]
    fn a_query_names_the_lane_by_both_tokens() {
        let mut bodies = Vec::new();
        fence(vec![lane(1)]).put(START, |_, _, body| bodies.push(body.to_vec()));
        let (leave, _) = LeaveBody::ref_from_prefix(&bodies[0]).unwrap();
        assert_eq!((leave.token.get(), leave.reason.get()), (1, LeaveReason::Done as u16));
        let (query, nqn) =
            with_nqn(&bodies[1], |query: &QueryBody| query.nqn_length.get()).unwrap();
        assert_eq!((query.token.get(), query.host_token.get(), nqn), (101, 1, "nqn.x:y"));
    }

    #[test]
    fn a_fence_with_lanes_is_closed_before_it_begins() {
        let mut fence = Fence::default();
        assert!(is_open(&fence), "there was no lane");
        fence.add(lane(1));
        assert_eq!((fence.state(START), put(&mut fence, START)), (FenceState::Closed, Vec::new()));
    }

    #[test]
    fn lanes_are_ended_where_their_target_is_now() {
        let mut fence = fence(vec![lane(1), EarlierLane { endpoint: [2; 16], ..lane(2) }]);
        let [old, new, newest] = [2, 3, 4].map(route_to);
        let routes_of = |fence: &Fence, lane: usize| {
            let links = fence.lanes[lane].links.iter();
            links.map(|&(_, route, socket_number)| (route, socket_number)).collect::<Vec<_>>()
        };
        fence.set_routes(&[1; 16], &[new, old]);
        assert_eq!(routes_of(&fence, 0), [(old, 7)], "it is where it was");
        fence.set_routes(&[1; 16], &[new, newest]);
        assert_eq!(routes_of(&fence, 0), [(old, 7), (new, 0), (newest, 0)]);
        assert_eq!(routes_of(&fence, 1), [(old, 7)], "of another target");
        for byte in 10..250 {
            fence.add_route(&[1; 16], route_to(byte));
        }
        assert_eq!(fence.lanes[0].links.len(), ROUTES_MAX);
    }

    #[test]
    fn lanes_end_with_their_target() {
        let mut fence = fence(vec![lane(1)]);
        assert_eq!(fence.endpoints(), [[1; 16], [1; 16]]);
        fence.begin(START, [3; 16], &[], &[[2; 16]]);
        assert!(is_open(&fence));
        assert_eq!(fence.endpoints(), [[3; 16]], "a target is remembered without lanes");
    }
}
