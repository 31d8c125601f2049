//! Check whether a lane's links still suit: their target may have moved to addresses without a link, and interfaces may
//! take smaller frames than before. Then the lane has to reconnect.

use super::ports::{HostFrame, Ports};
use super::route::FRAME_MIN;
use crate::link::LinkError;
use roadtrain_ether_proto::Item;
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_ether_proto::links::{LINKS_MAX, LaneLinks};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{OfferBody, with_nqn};
use roadtrain_wire::ether::{FrameHeader, FrameType, GROUP};
use std::time::Duration;

/// Time for which all links are suspect before the target is searched at other addresses, and interval of searches.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// Time that links then have to recover: the whole target may have been unresponsive.
const DOUBT: Duration = Duration::from_millis(250);
/// Time for which an interface takes smaller frames before this is final: its administrator may have more to change.
const SMALL_FOR: Duration = Duration::from_secs(2);

/// Search for the target of a lane without a working link.
struct ReconnectSearch {
    /// Time of the next search.
    search_at: Instant,
    /// Time at which it was found at another address.
    found_at: Option<Instant>,
}

/// Problems of a lane's links.
#[derive(Default)]
pub(super) struct ReconnectCheck {
    search: Option<ReconnectSearch>,
    /// True for each LINK whose target takes smaller frames than the link has.
    is_small: [bool; LINKS_MAX],
    /// Time since which one end of a link takes smaller frames.
    small_since: Option<Instant>,
}

impl ReconnectCheck {
    /// Checks that the links still suit.
    ///
    /// # Errors
    /// Returns the reason to reconnect.
    pub(super) fn check(&self, now: Instant) -> Result<(), LinkError> {
        let found_at = self.search.as_ref().and_then(|search| search.found_at);
        if found_at.is_some_and(|at| now.since(at) >= DOUBT) {
            return Err(LinkError::Moved);
        }
        match self.small_since {
            Some(at) if now.since(at) >= SMALL_FOR => Err(LinkError::Shrunk),
            _ => Ok(()),
        }
    }

    /// Returns the time of the next timer.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let search = self.search.as_ref().map(|search| match search.found_at {
            Some(at) => at + DOUBT,
            None => search.search_at,
        });
        search.into_iter().chain(self.small_since.map(|at| at + SMALL_FOR)).min()
    }

    /// Sets whether the target's end of a link takes smaller frames than the link has.
    pub(super) fn set_small(&mut self, link: u8, is_small: bool) {
        if let Some(place) = self.is_small.get_mut(usize::from(link)) {
            *place = is_small;
        }
    }

    /// True if a search for the target is due.
    fn is_due(&mut self, now: Instant, are_all_suspect: bool) -> bool {
        if !are_all_suspect {
            self.search = None;
            return false;
        }
        let search_at = now + SEARCH_EVERY;
        let search = self.search.get_or_insert(ReconnectSearch { search_at, found_at: None });
        let is_due = search.search_at <= now;
        if is_due {
            search.search_at = search_at;
        }
        is_due
    }

    /// Runs the checks, for the admin queue: all lanes use the same links.
    pub(super) fn check_links(
        &mut self,
        now: Instant,
        ports: &mut Ports,
        links: &LaneLinks<Item>,
        (routes, nqn): (&[(u8, LaneRoute)], &str),
    ) {
        if self.is_due(now, links.are_all_suspect()) {
            let header = FrameHeader { kind: FrameType::Discover as u8, ..FrameHeader::default() };
            for port in 0..ports.len() {
                ports.put(port, GROUP, header, nqn.as_bytes());
            }
        }
        let is_small = routes.iter().any(|&(link, route)| {
            let takes = ports.frame_bytes(route.port);
            let is_there = ports.has_carrier(route.port);
            self.is_small[usize::from(link)] || is_there && is_small(takes, links.frame_bytes(link))
        });
        self.small_since = is_small.then(|| self.small_since.unwrap_or(now));
    }

    /// Handles an Offer, perhaps of the lane's subsystem. It proves little: but it ends a lane only when the lane
    /// receives nothing else.
    pub(super) fn receive_offer(
        &mut self,
        now: Instant,
        received: &HostFrame<'_>,
        routes: &[(u8, LaneRoute)],
        (endpoint, nqn): ([u8; 16], &str),
    ) {
        let Some(search) = &mut self.search else { return };
        let offer = with_nqn::<OfferBody>(received.body, |offer| offer.nqn_length.get());
        let is_ours = offer.is_some_and(|(offer, name)| offer.endpoint == endpoint && name == nqn);
        let leads_there = routes.iter().any(|(_, route)| route.peer == received.source);
        if is_ours && !leads_there {
            search.found_at.get_or_insert(now);
        }
    }
}

/// True if an interface that takes frames of `takes` bytes has no room for those of the link, but for useful ones.
pub(super) fn is_small(takes: usize, link: usize) -> bool {
    (usize::from(FRAME_MIN)..link).contains(&takes)
}

#[cfg(test)]
mod tests {
    use super::super::lane::HostEtherLane;
    use super::super::lane::tests::{PEER, START, lane};
    use super::*;
    use roadtrain_wire::ether::MacAddress;
    use roadtrain_wire::zerocopy::IntoBytes;

    fn after(ms: u64) -> Instant {
        START + Duration::from_millis(ms)
    }

    /// Returns a lane without a working link since the start, whose search has begun.
    fn dead_lane() -> HostEtherLane {
        let mut lane = lane();
        lane.qpair.end.links.set_carrier(START, 0, false);
        lane.check_links(START, &mut Ports::default());
        lane
    }

    fn offer(lane: &mut HostEtherLane, now: Instant, source: MacAddress, endpoint: u8, nqn: &str) {
        let nqn_length = (nqn.len() as u16).into();
        let offer = OfferBody {
            endpoint: [endpoint; 16],
            frame: 9000.into(),
            nqn_length,
            reserved: 0.into(),
        };
        let body = [offer.as_bytes(), nqn.as_bytes()].concat();
        let (header, kind) = (&FrameHeader::default(), FrameType::Offer);
        lane.receive_offer(now, &HostFrame { port: 0, source, header, kind, body: &body });
    }

    #[test]
    fn a_dead_lane_ends_when_its_target_is_elsewhere() {
        let (mut lane, elsewhere) = (dead_lane(), MacAddress([7; 6]));
        for (source, endpoint, nqn) in
            [(PEER, 9, "nqn.x:y"), (elsewhere, 8, "nqn.x:y"), (elsewhere, 9, "nqn.x:z")]
        {
            offer(&mut lane, after(1000), source, endpoint, nqn);
            assert!(lane.check(after(2000)).is_ok(), "an address with a link, or another target");
        }
        offer(&mut lane, after(1000), elsewhere, 9, "nqn.x:y");
        offer(&mut lane, after(1200), elsewhere, 9, "nqn.x:y");
        assert!(lane.check(after(1249)).is_ok());
        assert_eq!(lane.reconnect.deadline(), Some(after(1250)));
        assert!(matches!(lane.check(after(1250)), Err(LinkError::Moved)));
        lane.qpair.end.links.set_carrier(after(1240), 0, true);
        lane.check_links(after(1240), &mut Ports::default());
        assert!(lane.check(after(1250)).is_err(), "not back yet");
    }

    #[test]
    fn an_offer_ends_no_lane_that_lives() {
        let elsewhere = MacAddress([7; 6]);
        let mut alive = lane();
        alive.check_links(START, &mut Ports::default());
        offer(&mut alive, after(1), elsewhere, 9, "nqn.x:y");
        assert!(alive.check(after(2000)).is_ok());

        let mut reconnect = ReconnectCheck::default();
        assert!(!reconnect.is_due(START, true));
        reconnect.search.as_mut().expect("a search").found_at = Some(after(1000));
        assert!(!reconnect.is_due(after(1100), false), "a link is back");
        assert!(reconnect.check(after(1250)).is_ok() && reconnect.deadline().is_none());
    }

    #[test]
    fn a_target_is_searched_once_a_second() {
        let mut reconnect = ReconnectCheck::default();
        assert!(!reconnect.is_due(START, false) && reconnect.deadline().is_none());
        assert!(!reconnect.is_due(START, true), "links may come back");
        for second in 1..4 {
            let at = after(second * 1000);
            assert_eq!(reconnect.deadline(), Some(at));
            assert!(!reconnect.is_due(after(second * 1000 - 1), true));
            assert!(reconnect.is_due(at, true) && !reconnect.is_due(at, true));
        }
        assert!(!reconnect.is_due(after(5000), false) && !reconnect.is_due(after(9000), true));
    }

    #[test]
    fn a_lane_ends_when_a_link_stays_small() {
        let mut lane = lane();
        let check_after = |lane: &mut HostEtherLane, ms, is_small| {
            lane.reconnect.set_small(0, is_small);
            lane.check_links(after(ms), &mut Ports::default());
        };
        check_after(&mut lane, 0, true);
        check_after(&mut lane, 1900, false);
        check_after(&mut lane, 2500, true);
        check_after(&mut lane, 3000, true);
        assert!(lane.check(after(4499)).is_ok());
        assert_eq!(lane.reconnect.deadline(), Some(after(4500)));
        assert!(matches!(lane.check(after(4500)), Err(LinkError::Shrunk)));
    }

    #[test]
    fn frames_that_could_be_smaller_are_small() {
        assert!(is_small(1500, 9000) && is_small(1128, 1129));
        assert!(!is_small(9000, 9000) && !is_small(65535, 9000));
        assert!(!is_small(1111, 9000), "of no use, whatever is done");
        assert!(!is_small(0, 9000), "not there");
    }
}
