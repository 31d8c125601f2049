//! Ends the lanes of the past, so that no old command is executed after its retry in a new lane.

use super::ask::{Pace, Question, ask};
use super::lane::Route;
use super::path_discovery::Found;
use super::ports::{Heard, Ports};
use crate::host::link::LinkError;
use roadtrain_proto::ether::links::LINKS_MAX;
use roadtrain_wire::ether::setup::{Leave, Query, Reason, endpoint_tag};
use roadtrain_wire::ether::{FrameHeader, FrameType};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::sync::Arc;
use std::time::Duration;

/// How often the target is told.
const PACE: Pace = Pace {
    first: Duration::from_millis(10),
    longest: Duration::from_secs(1),
    total: Duration::from_secs(5),
};

/// Ways of a lane that are remembered: the newest.
const ROUTES_MAX: usize = 2 * LINKS_MAX;

/// A lane that was given up.
#[derive(Clone, Debug)]
pub(crate) struct PastLane {
    /// Of which target it is.
    pub(crate) endpoint: [u8; 16],
    pub(crate) token: u64,
    pub(crate) peer_token: u64,
    pub(crate) nqn: Arc<str>,
    /// LINK, its way, and the target's socket number to it.
    pub(crate) links: Vec<(u8, Route, u16)>,
}

/// Lanes that the target may not have given up yet, and the last target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    lanes: Vec<PastLane>,
    target: Option<[u8; 16]>,
}

impl Past {
    /// One more.
    pub(crate) fn add(&mut self, lane: Option<PastLane>) {
        self.lanes.extend(lane);
    }

    /// One more way to a target was found.
    pub(crate) fn add_route(&mut self, found: &Found) {
        let lanes = self.lanes.iter_mut().filter(|lane| lane.endpoint == found.endpoint);
        lanes.for_each(|lane| lane.add_route(found.path.route));
    }

    /// All ways to that target now. They say nothing to lanes of which one is among them: an offer alone proves nothing.
    pub(crate) fn set_routes(&mut self, endpoint: &[u8; 16], routes: &[Route]) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.endpoint == *endpoint) {
            if !routes.iter().any(|route| lane.has_route(*route)) {
                routes.iter().for_each(|route| lane.add_route(*route));
            }
        }
    }

    /// The targets that have them, and the last one: a try to connect to it may have come to nothing.
    pub(crate) fn endpoints(&self) -> Vec<[u8; 16]> {
        self.lanes.iter().map(|lane| lane.endpoint).chain(self.target).collect()
    }

    /// From now on that is the target.
    pub(crate) fn set_target(&mut self, endpoint: [u8; 16]) {
        self.target = Some(endpoint);
    }

    /// Returns when the targets that are `there` take no more frames of them.
    ///
    /// # Errors
    /// They do not say so.
    pub(crate) fn end(&mut self, ports: &mut Ports, there: &[[u8; 16]]) -> Result<(), LinkError> {
        // Others have ended with their target.
        self.lanes.retain(|lane| there.contains(&lane.endpoint));
        match self.lanes.is_empty() || ask(ports, PACE, self)? {
            true => Ok(()),
            false => Err(LinkError::Clinging),
        }
    }
}

impl PastLane {
    fn has_route(&self, route: Route) -> bool {
        self.links.iter().any(|&(_, known, _)| known == route)
    }

    /// One more way, to socket number 0.
    fn add_route(&mut self, route: Route) {
        if self.has_route(route) {
            return;
        }
        if self.links.len() >= ROUTES_MAX {
            self.links.remove(0);
        }
        self.links.push((0, route, 0));
    }

    /// Whether that says that its target takes no more frames of it. Another one that listens at the same port, for the
    /// same subsystem, does not know it either.
    fn is_ended_by(&self, header: &FrameHeader, leave: &Leave) -> bool {
        (self.token, self.peer_token) == (header.token.get(), leave.token.get())
            && [[0; 6], endpoint_tag(&self.endpoint)].contains(&leave.endpoint)
    }
}

impl Question for Past {
    fn put(&mut self, ports: &mut Ports) {
        for lane in &self.lanes {
            for &(link, Route { port, peer }, socket_number) in &lane.links {
                let token = lane.peer_token.into();
                let header = FrameHeader { token, link, ..FrameHeader::default() };
                let leave = Leave {
                    token: lane.token.into(),
                    reason: (Reason::Done as u16).into(),
                    endpoint: [0; 6],
                };
                let (kind, socket_number) = (FrameType::Leave as u8, socket_number.into());
                ports.put(
                    port,
                    peer,
                    FrameHeader { kind, socket_number, ..header },
                    leave.as_bytes(),
                );
                // That socket may be closed by now.
                let query = Query {
                    token,
                    host_token: lane.token.into(),
                    nqn_length: (lane.nqn.len() as u16).into(),
                    reserved: [0; 6],
                };
                let body = [query.as_bytes(), lane.nqn.as_bytes()].concat();
                let kind = FrameType::Query as u8;
                ports.put(port, peer, FrameHeader { kind, ..header }, &body);
            }
        }
    }

    fn hear(&mut self, heard: &Heard<'_>) {
        let Ok((leave, _)) = Leave::ref_from_prefix(heard.body) else { return };
        if heard.kind == FrameType::Leave {
            self.lanes.retain(|lane| !lane.is_ended_by(heard.header, leave));
        }
    }

    fn is_answered(&self) -> bool {
        self.lanes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_wire::ether::MacAddress;

    fn lane(number: u64) -> PastLane {
        let route = Route { port: 0, peer: MacAddress([2; 6]) };
        PastLane {
            endpoint: [1; 16],
            token: number,
            peer_token: number + 100,
            nqn: "nqn.x:y".into(),
            links: vec![(0, route, 7)],
        }
    }

    fn past(lanes: Vec<PastLane>) -> Past {
        Past { lanes, target: None }
    }

    fn answer(past: &mut Past, token: u64, peer_token: u64, reason: Reason) {
        answer_of(past, [0; 6], token, peer_token, reason);
    }

    fn answer_of(past: &mut Past, endpoint: [u8; 6], token: u64, peer_token: u64, reason: Reason) {
        let header = &FrameHeader { token: token.into(), ..FrameHeader::default() };
        let reason = (reason as u16).into();
        let leave = Leave { token: peer_token.into(), reason, endpoint };
        let (source, kind, body) = (MacAddress([2; 6]), FrameType::Leave, leave.as_bytes());
        past.hear(&Heard { port: 0, source, header, kind, body });
    }

    #[test]
    fn another_target_knows_nothing_about_a_lane() {
        let mut past = past(vec![lane(1)]);
        answer_of(&mut past, [2; 6], 1, 101, Reason::UnknownToken);
        assert!(!past.is_answered());
        answer_of(&mut past, [1; 6], 1, 101, Reason::UnknownToken);
        assert!(past.is_answered());
    }

    #[test]
    fn lanes_remain_until_each_is_answered() {
        let mut past = past(vec![lane(1), lane(2)]);
        answer(&mut past, 1, 102, Reason::Done);
        answer(&mut past, 3, 103, Reason::Done);
        assert!(!past.is_answered() && past.lanes.len() == 2, "tokens of other lanes");
        answer(&mut past, 2, 102, Reason::Done);
        assert!(!past.is_answered());
        answer(&mut past, 1, 101, Reason::UnknownToken);
        assert!(past.is_answered());
    }

    #[test]
    fn lanes_are_ended_where_their_target_is_now() {
        let mut past = past(vec![lane(1), PastLane { endpoint: [2; 16], ..lane(2) }]);
        let old = past.lanes[0].links[0].1;
        let [new, newest] = [3, 4].map(|octet| Route { port: 0, peer: MacAddress([octet; 6]) });
        let ways = |past: &Past, lane: usize| {
            past.lanes[lane]
                .links
                .iter()
                .map(|&(_, route, socket_number)| (route, socket_number))
                .collect::<Vec<_>>()
        };
        past.set_routes(&[1; 16], &[new, old]);
        assert_eq!(ways(&past, 0), [(old, 7)], "it is where it was");
        past.set_routes(&[1; 16], &[new, newest]);
        assert_eq!(ways(&past, 0), [(old, 7), (new, 0), (newest, 0)]);
        assert_eq!(ways(&past, 1), [(old, 7)], "of another target");
        for octet in 10..250 {
            past.set_routes(&[1; 16], &[Route { port: 0, peer: MacAddress([octet; 6]) }]);
        }
        assert_eq!(past.lanes[0].links.len(), ROUTES_MAX);
    }

    #[test]
    fn lanes_end_with_their_target() {
        let mut past = past(vec![lane(1)]);
        past.set_target([3; 16]);
        assert_eq!(past.endpoints(), [[1; 16], [3; 16]]);
        past.end(&mut Ports::default(), &[[2; 16]]).unwrap();
        assert!(past.is_answered());
        assert_eq!(past.endpoints(), [[3; 16]], "a target is remembered without lanes");
    }
}
