//! Which links a lane has, as interfaces of both ends come and go.

use super::discovery::Path;
use super::lane::{EtherLane, Linked, Route, route};
use super::late::put_join;
use super::ports::{Heard, Ports};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::MacAddress;
use roadtrain_wire::ether::setup::{Joined, addresses};
use roadtrain_wire::zerocopy::FromBytes;

/// Where a target can be reached, and over which links it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) addresses: Vec<MacAddress>,
    pub(crate) routes: Vec<Route>,
}

impl EtherLane {
    /// The target's addresses.
    pub(super) fn addresses(&self) -> &[MacAddress] {
        &self.addresses
    }

    /// What there is to be known about links that the lane might have; `None`: the same as last time.
    pub(crate) fn take_survey(&mut self) -> Option<Survey> {
        std::mem::take(&mut self.has_news).then(|| Survey {
            addresses: self.addresses.clone(),
            routes: self.routes.iter().map(|&(_, route)| route).collect(),
        })
    }

    /// Whether there is something new of that kind.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// A path to that target, which has these `addresses` now, was found: one more link, if it is the lane's target and
    /// the lane may have it; or one that led to an address which it has no more.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        endpoint: &[u8; 16],
        path: Path,
        addresses: &[MacAddress],
    ) {
        let is_used = self.routes.iter().any(|(_, route)| *route == path.route);
        if self.endpoint != *endpoint || is_used {
            return;
        }
        let links = self.qpair.links();
        let is_gone = |(link, route): &&(u8, Route)| {
            route.port == path.route.port
                && !addresses.contains(&route.peer)
                && links.frame_bytes(*link) <= usize::from(path.frame_bytes)
        };
        let gone: Vec<u8> = self.routes.iter().filter(is_gone).map(|&(link, _)| link).collect();
        self.late.add(now, path, addresses, &gone);
    }

    /// A link has joined, or leads elsewhere now.
    fn add(&mut self, now: Instant, linked: &Linked) {
        let link = linked.config.link;
        if let Some((_, route)) = self.routes.iter_mut().find(|(number, _)| *number == link) {
            *route = linked.route;
        } else if self.qpair.links_mut().add(now, &linked.config, linked.door) {
            self.routes.push((link, linked.route));
        }
        (self.has_new, self.has_news) = (true, true);
    }

    /// The target's answer to a Join, perhaps one of a link that is there.
    pub(super) fn joined(&mut self, now: Instant, heard: &Heard<'_>, from: Route) {
        let token = self.qpair.links().peer_token();
        if let Some(linked) = self.late.hear(heard, token) {
            self.add(now, &linked);
        }
        let Ok((joined, rest)) = Joined::read_from_prefix(heard.body) else { return };
        let is_link = route(&self.routes, heard.header.link) == Some(from);
        if is_link && joined.status.get() == 0 && joined.token.get() == token {
            let addresses: Vec<_> = addresses(rest).collect();
            self.has_news |= addresses != self.addresses;
            self.addresses = addresses;
        }
    }

    /// Asks where the target can be reached: joins a link that is there.
    pub(super) fn survey(&mut self, now: Instant, ports: &mut Ports) {
        self.asked_at = now;
        let links = self.qpair.links();
        let is_alive = |link| links.channel(link).is_some_and(|channel| !channel.is_suspect());
        let alive = self.routes.iter().find(|(link, _)| is_alive(*link));
        if let Some(&(link, route)) = alive
            && let Some(join) = self.late.made(link)
        {
            put_join(ports, route, join, links.peer_token(), &self.nqn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::tests::{PEER, START, lane};
    use super::*;
    use roadtrain_wire::ether::{FrameHeader, FrameType};
    use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};

    fn joined(lane: &mut EtherLane, source: MacAddress, link: u8, token: u64, at: &[MacAddress]) {
        let (frame, window, token) = (9000.into(), 64.into(), token.into());
        let joined = Joined { frame, window, token, ..Joined::new_zeroed() };
        let addresses = at.iter().flat_map(|mac| mac.0).collect::<Vec<u8>>();
        let body = [joined.as_bytes(), &addresses].concat();
        let header = &FrameHeader { token: 0x10.into(), link, ..FrameHeader::default() };
        let heard = Heard { port: 0, source, header, kind: FrameType::Joined, body: &body };
        lane.deliver(START, &heard, &mut |event| panic!("{event:?}"));
    }

    /// Only of whom the target says that he is the target: on a link, and by the lane's token.
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

        let path = Path { route: Route { port: 0, peer: new }, frame_bytes: 9000 };
        lane.offer(START, &[8; 16], path, &[new]);
        joined(&mut lane, new, 0, 0x20, &[new]);
        assert_eq!(lane.routes[0].1.peer, PEER, "of another target");
        lane.offer(START, &[9; 16], path, &[new]);
        joined(&mut lane, foreign, 0, 0x20, &[new]);
        joined(&mut lane, new, 0, 0x21, &[new]);
        assert_eq!(lane.routes[0].1.peer, PEER, "somebody else's answers");
        joined(&mut lane, new, 0, 0x20, &[new]);
        assert_eq!(lane.routes, [(0, path.route)], "the same link");
        assert!(lane.has_news());
    }
}
