//! Links of a lane, as interfaces of both ends change.

use super::lane::HostEtherLane;
use super::late::put_join;
use super::ports::{HostFrame, Ports};
use super::reconnect::is_small;
use super::route::{LinkPath, Linked, Survey, route};
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::MacAddress;
use roadtrain_wire::ether::setup::{JoinedBody, addresses};
use roadtrain_wire::zerocopy::FromBytes;

impl HostEtherLane {
    /// Returns the target's addresses.
    pub(super) fn addresses(&self) -> &[MacAddress] {
        &self.addresses
    }

    /// Takes the addresses and links, to search for missing ones; `None`: unchanged.
    pub(crate) fn take_survey(&mut self) -> Option<Survey> {
        std::mem::take(&mut self.has_news).then(|| Survey {
            addresses: self.addresses.clone(),
            routes: self.routes.iter().map(|&(_, route)| route).collect(),
        })
    }

    /// True if addresses or links have changed.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Handles a found path to a target, which has these `addresses` now. If it is the lane's target, the path becomes
    /// one more link, or replaces one to an address that the target has no more.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        endpoint: &[u8; 16],
        path: LinkPath,
        addresses: &[MacAddress],
    ) {
        let is_used = self.routes.iter().any(|(_, route)| *route == path.route);
        if self.endpoint != *endpoint || is_used {
            return;
        }
        let (links, takes) = (&self.qpair.end.links, path.frame_bytes.into());
        let is_gone = |(_, route): &&(u8, LaneRoute)| {
            route.port == path.route.port && !addresses.contains(&route.peer)
        };
        let gone = self.routes.iter().filter(is_gone).map(|&(link, _)| link);
        let (fit, small): (Vec<u8>, Vec<u8>) =
            gone.partition(|&link| links.frame_bytes(link) <= takes);
        for link in small {
            self.reconnect.set_small(link, is_small(takes, links.frame_bytes(link)));
        }
        self.late.add(now, path, addresses, &fit);
    }

    /// Adds a joined link, or moves an existing one.
    fn add(&mut self, now: Instant, linked: &Linked) {
        let link = linked.config.link;
        if let Some((_, route)) = self.routes.iter_mut().find(|(number, _)| *number == link) {
            *route = linked.route;
        } else if self.qpair.end.links.add(now, &linked.config, linked.socket_number) {
            self.routes.push((link, linked.route));
        }
        self.reconnect.set_small(link, false);
        (self.has_new, self.has_news) = (true, true);
    }

    /// Handles the target's reply to a Join, perhaps of an existing link.
    pub(super) fn joined(&mut self, now: Instant, received: &HostFrame<'_>, from: LaneRoute) {
        let token = self.qpair.end.links.peer_token();
        if let Some(linked) = self.late.receive_joined(received, token) {
            self.add(now, &linked);
        }
        let Ok((joined, rest)) = JoinedBody::read_from_prefix(received.body) else { return };
        let link = received.header.link;
        if route(&self.routes, link) != Some(from) {
            return;
        }
        let is_refused = joined.status.get() != 0; // even a piece does not fit
        if is_refused || joined.token.get() == token {
            let frame_bytes = self.qpair.end.links.frame_bytes(link);
            self.reconnect.set_small(link, is_small(joined.frame.get().into(), frame_bytes));
        }
        if !is_refused && joined.token.get() == token {
            let addresses: Vec<_> = addresses(rest).collect();
            self.has_news |= addresses != self.addresses;
            self.addresses = addresses;
        }
    }

    /// Queries the target's addresses and frame sizes: sends Joins over the existing links.
    pub(super) fn survey(&mut self, now: Instant, ports: &mut Ports) {
        self.surveyed_at = now;
        let peer_token = self.qpair.end.links.peer_token();
        for &(link, route) in &self.routes {
            if let Some(join) = self.late.made(link) {
                put_join(ports, route, join, peer_token, &self.nqn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::tests::{PEER, START, lane};
    use super::*;
    use roadtrain_wire::ether::{FrameHeader, FrameType};
    use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};
    use std::time::Duration;

    fn joined(
        lane: &mut HostEtherLane,
        source: MacAddress,
        link: u8,
        token: u64,
        at: &[MacAddress],
    ) {
        let (frame, window, token) = (9000.into(), 64.into(), token.into());
        let joined = JoinedBody { frame, window, token, ..JoinedBody::new_zeroed() };
        receive_joined(lane, source, link, &joined, at);
    }

    fn receive_joined(
        lane: &mut HostEtherLane,
        source: MacAddress,
        link: u8,
        joined: &JoinedBody,
        at: &[MacAddress],
    ) {
        let addresses = at.iter().flat_map(|mac| mac.0).collect::<Vec<u8>>();
        let body = [joined.as_bytes(), &addresses].concat();
        let header = &FrameHeader { token: 0x10.into(), link, ..FrameHeader::default() };
        let received = HostFrame { port: 0, source, header, kind: FrameType::Joined, body: &body };
        lane.deliver(START, &received, &mut |_, event| panic!("{event:?}"));
    }

    /// Accepts addresses only from the target: on a link, and with the lane's token.
    #[test]
    fn links_lead_to_where_the_target_says_that_it_is() {
        let mut lane = lane();
        let (new, foreign) = (MacAddress([2; 6]), MacAddress([3; 6]));
        assert!(lane.take_survey().is_some() && lane.take_survey().is_none());
        joined(&mut lane, foreign, 0, 0x20, &[foreign]);
        joined(&mut lane, PEER, 0, 0x21, &[foreign]);
        joined(&mut lane, PEER, 1, 0x20, &[foreign]);
        assert!(!lane.has_news() && lane.addresses() == [PEER]);
        joined(&mut lane, PEER, 0, 0x20, &[new]);
        let survey = lane.take_survey().expect("news");
        assert_eq!((survey.addresses, survey.routes.len()), (vec![new], 1));

        let path = LinkPath { route: LaneRoute { port: 0, peer: new }, frame_bytes: 9000 };
        lane.offer(START, &[8; 16], path, &[new]);
        joined(&mut lane, new, 0, 0x20, &[new]);
        assert_eq!(lane.routes[0].1.peer, PEER, "of another target");
        lane.offer(START, &[9; 16], path, &[new]);
        joined(&mut lane, foreign, 0, 0x20, &[new]);
        joined(&mut lane, new, 0, 0x21, &[new]);
        assert_eq!(lane.routes[0].1.peer, PEER, "replies of another peer");
        joined(&mut lane, new, 0, 0x20, &[new]);
        assert_eq!(lane.routes, [(0, path.route)], "the same link");
        assert!(lane.has_news());
    }

    fn is_small_for_long(lane: &mut HostEtherLane) -> bool {
        lane.check_links(START, &mut Ports::default());
        lane.check(START + Duration::from_secs(4)).is_err()
    }

    #[test]
    fn targets_say_how_large_their_frames_are() {
        let says = |status: u16, token: u64, frame: u16| JoinedBody {
            status: status.into(),
            token: token.into(),
            frame: frame.into(),
            ..JoinedBody::new_zeroed()
        };
        let mut lane = lane();
        receive_joined(&mut lane, MacAddress([3; 6]), 0, &says(0, 0x20, 1500), &[PEER]);
        receive_joined(&mut lane, PEER, 0, &says(0, 0x21, 1500), &[PEER]);
        assert!(!is_small_for_long(&mut lane), "another peer");
        for smaller in [says(0, 0x20, 8999), says(2, 0, 1500)] {
            receive_joined(&mut lane, PEER, 0, &smaller, &[PEER]);
            assert!(is_small_for_long(&mut lane), "{smaller:?}");
            receive_joined(&mut lane, PEER, 0, &says(0, 0x20, 9000), &[PEER]);
            assert!(!is_small_for_long(&mut lane), "as large as it was");
        }
        assert_eq!(lane.addresses(), [PEER]);
    }

    /// The recreated interface takes only frames that are too small for the link.
    #[test]
    fn links_are_not_moved_to_where_they_do_not_fit() {
        let (mut lane, new) = (lane(), MacAddress([2; 6]));
        let path = LinkPath { route: LaneRoute { port: 0, peer: new }, frame_bytes: 1500 };
        lane.offer(START, &[9; 16], path, &[PEER, new]);
        assert!(!is_small_for_long(&mut lane), "the link leads to an address of the target");
        lane.offer(START, &[9; 16], path, &[new]);
        assert!(is_small_for_long(&mut lane));
        let fits = LinkPath { frame_bytes: 9000, ..path };
        lane.offer(START, &[9; 16], fits, &[new]);
        joined(&mut lane, new, 0, 0x20, &[new]);
        assert!(!is_small_for_long(&mut lane), "it has become larger, and the link is there");
    }
}
