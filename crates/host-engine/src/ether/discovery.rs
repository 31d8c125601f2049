//! Discovery of targets, and of the links to a target.

use super::address::EtherAddress;
use super::ports::{HostFrame, Ports, shared_port_config};
use super::query::{EtherQuery, run_query};
use super::route::{FRAME_MIN, LinkPath, Survey};
use crate::error::HostControlError;
use crate::link::LinkError;
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_ether_proto::query_timer::QueryIntervals;
use roadtrain_wire::ether::setup::{OfferBody, with_nqn};
use roadtrain_wire::ether::{FrameHeader, FrameType, GROUP, MacAddress};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use std::time::{Duration, Instant};

/// Maximum links of a lane.
const LINKS_MAX: usize = 16;
/// Maximum number of stored offers.
const OFFERS_MAX: usize = 4096;
/// Approximate memory for received offers, in bytes.
const RECEIVE_BYTES: usize = 256 << 10;
/// Time for the other interfaces once one has a reply.
const GRACE: Duration = Duration::from_millis(120);
/// Time for a known target once another one has replied: three queries.
const GRACE_KNOWN: Duration = Duration::from_millis(250);
/// Duration of the search for one subsystem.
const PATIENCE: Duration = Duration::from_secs(2);
/// Duration of the search for all targets.
const SEARCH_ALL: Duration = Duration::from_millis(350);

/// Error if a target offers the subsystem, but no frames are large enough.
const TOO_SMALL: LinkError =
    LinkError::Nonsense("frames between here and the target are too small: is an MTU below 1128?");

/// Subsystem at a port of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtherOffer {
    /// Local interface.
    pub interface: String,
    /// Address of the target's port.
    pub address: MacAddress,
    /// Endpoint identifier, the same at all ports of one target.
    pub endpoint: [u8; 16],
    /// Largest frame of the port, in bytes.
    pub frame_bytes: u16,
    /// NQN of the subsystem.
    pub nqn: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundPort {
    route: LaneRoute,
    endpoint: [u8; 16],
    frame_bytes: u16,
    nqn: String,
}

struct TargetSearch<'a> {
    /// NQN of the subsystem; empty: all subsystems.
    nqn: &'a str,
    ports: &'a [usize],
    /// Endpoints of known targets that may still be there.
    known: &'a [[u8; 16]],
    found: Vec<FoundPort>,
    /// Addresses whose replies count; empty: all.
    from: &'a [MacAddress],
    /// Ports with a carrier, which may get replies.
    alive: Vec<usize>,
    first_at: Option<Instant>,
}

impl EtherQuery for TargetSearch<'_> {
    fn put(&mut self, ports: &mut Ports) {
        let header = FrameHeader { kind: FrameType::Discover as u8, ..FrameHeader::default() };
        for &port in self.ports {
            ports.put(port, GROUP, header, self.nqn.as_bytes());
        }
        ports.check_carriers();
        self.alive = self.ports.iter().copied().filter(|&port| ports.has_carrier(port)).collect();
    }

    fn receive(&mut self, received: &HostFrame<'_>) {
        let Some((offer, nqn)) =
            with_nqn::<OfferBody>(received.body, |offer| offer.nqn_length.get())
        else {
            return;
        };
        let is_wanted = received.kind == FrameType::Offer
            && (self.nqn.is_empty() || self.nqn == nqn)
            && self.ports.contains(&received.port)
            && (self.from.is_empty() || self.from.contains(&received.source));
        let route = LaneRoute { port: received.port, peer: received.source };
        let (endpoint, frame_bytes, nqn) = (offer.endpoint, offer.frame.get(), nqn.to_owned());
        let found = FoundPort { route, endpoint, frame_bytes, nqn };
        if is_wanted && self.found.len() < OFFERS_MAX && !self.found.contains(&found) {
            self.first_at.get_or_insert_with(Instant::now);
            self.found.push(found);
        }
    }

    fn is_answered(&self) -> bool {
        if self.nqn.is_empty() {
            return false; // there may always be one more target
        }
        let is_there = |known: &[u8; 16]| self.found.iter().any(|found| found.endpoint == *known);
        let grace = if self.known.iter().all(is_there) { GRACE } else { GRACE_KNOWN };
        let is_late = self.first_at.is_some_and(|at| at.elapsed() >= grace);
        let has = |port: &usize| self.found.iter().any(|found| found.route.port == *port);
        // A query of certain addresses waits for the last one.
        let is_complete = grace == GRACE && self.from.is_empty() && self.alive.iter().all(has);
        is_late || (self.first_at.is_some() && is_complete)
    }
}

/// Discovers all subsystems that are offered at the interfaces.
///
/// # Errors
/// An interface cannot be used.
pub fn discover_ether(
    address: &EtherAddress,
    nqn: &str,
) -> Result<Vec<EtherOffer>, HostControlError> {
    let failed = |source| HostControlError::Unreachable { address: address.clone().into(), source };
    let config = shared_port_config(&address.port, RECEIVE_BYTES);
    let mut ports = Ports::open(address, &config).map_err(failed)?;
    ports.report();
    let pace =
        QueryIntervals { first: Duration::from_millis(50), longest: SEARCH_ALL, total: SEARCH_ALL };
    let mut found = search(&mut ports, nqn, pace).map_err(failed)?;
    // Each target has a discovery subsystem; the caller wants the others.
    found.retain(|found| found.nqn != DISCOVERY_NQN || found.nqn == nqn);
    found.sort_by(|a, b| {
        let key = |found: &FoundPort| (found.nqn.clone(), found.endpoint, found.route.port);
        key(a).cmp(&key(b))
    });
    let offer = |found: FoundPort| EtherOffer {
        interface: address.interfaces[found.route.port].clone(),
        address: found.route.peer,
        endpoint: found.endpoint,
        frame_bytes: found.frame_bytes,
        nqn: found.nqn,
    };
    Ok(found.into_iter().map(offer).collect())
}

fn search(ports: &mut Ports, nqn: &str, pace: QueryIntervals) -> Result<Vec<FoundPort>, LinkError> {
    search_at(ports, &(0..ports.len()).collect::<Vec<_>>(), nqn, &[], &[], pace)
}

fn search_at(
    ports: &mut Ports,
    at: &[usize],
    nqn: &str,
    known: &[[u8; 16]],
    from: &[MacAddress],
    pace: QueryIntervals,
) -> Result<Vec<FoundPort>, LinkError> {
    let (found, alive) = (Vec::new(), Vec::new());
    let mut search = TargetSearch { nqn, ports: at, known, found, from, alive, first_at: None };
    run_query(ports, pace, &mut search)?;
    Ok(search.found)
}

/// Finds new paths to the target, in addition to those of the survey, between ports of either side without a link.
pub(super) fn find_more(
    ports: &mut Ports,
    nqn: &str,
    endpoint: &[u8; 16],
    survey: &Survey,
) -> Result<Vec<LinkPath>, LinkError> {
    ports.check_carriers();
    let at: Vec<usize> = (0..ports.len()).filter(|&port| ports.has_carrier(port)).collect();
    if at.is_empty() || survey.addresses.is_empty() {
        return Ok(Vec::new());
    }
    let pace = QueryIntervals { first: GRACE / 2, longest: GRACE, total: GRACE };
    // Other targets may offer it: this target has reported its addresses.
    let mut found = search_at(ports, &at, nqn, &[*endpoint], &survey.addresses, pace)?;
    found.retain(|found| found.endpoint == *endpoint);
    let offers: Vec<LinkPath> = found.iter().filter_map(|found| path(ports, found)).collect();
    Ok(pair(&survey.used().collect::<Vec<_>>(), &offers))
}

/// Returns the path to a found port. `None`: one of its ends takes no frames that are large enough, such as an
/// interface that was removed since.
fn path(ports: &Ports, found: &FoundPort) -> Option<LinkPath> {
    usable(found, ports.frame_bytes(found.route.port))
}

/// Returns the path to a found port, if the local port takes frames of `ours` bytes.
fn usable(found: &FoundPort, ours: usize) -> Option<LinkPath> {
    let frame_bytes = found.frame_bytes.min(ours.min(u16::MAX.into()) as u16);
    (frame_bytes >= FRAME_MIN).then_some(LinkPath { route: found.route, frame_bytes })
}

/// Found target.
pub(crate) struct FoundTarget {
    pub(crate) endpoint: [u8; 16],
    /// Links to the target, over as many local ports as reach it.
    pub(crate) offered: Vec<LinkPath>,
    /// Endpoints of all targets that offer the subsystem.
    pub(crate) there: Vec<[u8; 16]>,
}

/// Finds the target that offers `nqn`, preferably one of those that are `known`.
///
/// # Errors
/// No target offers it, or none with frames that are large enough.
pub(crate) fn find(
    ports: &mut Ports,
    nqn: &str,
    known: &[[u8; 16]],
) -> Result<FoundTarget, LinkError> {
    let second = Duration::from_secs(1);
    let pace =
        QueryIntervals { first: Duration::from_millis(50), longest: second, total: PATIENCE };
    let at: Vec<usize> = (0..ports.len()).collect();
    let mut found = search_at(ports, &at, nqn, known, &[], pace)?;
    let there: Vec<[u8; 16]> = found.iter().map(|found| found.endpoint).collect();
    found.retain(|found| path(ports, found).is_some());
    let Some(endpoint) = choose(&found, known) else {
        return Err(if there.is_empty() { LinkError::NoTarget } else { TOO_SMALL });
    };
    let ours = found.iter().filter(|found| found.endpoint == endpoint);
    let offers: Vec<LinkPath> = ours.filter_map(|found| path(ports, found)).collect();
    Ok(FoundTarget { endpoint, offered: pair(&[], &offers), there })
}

/// Chooses a target. Several may offer the same subsystem with different data: prefers a known one, then one with most
/// links, then the first.
fn choose(found: &[FoundPort], known: &[[u8; 16]]) -> Option<[u8; 16]> {
    let reach = |endpoint: &[u8; 16]| found.iter().filter(|f| f.endpoint == *endpoint).count();
    let rank = |found: &&FoundPort| (known.contains(&found.endpoint), reach(&found.endpoint));
    found.iter().rev().max_by_key(rank).map(|found| found.endpoint)
}

/// Returns links that use every port of either side, and none more often than needed, in addition to existing `routes`.
fn pair(routes: &[LaneRoute], offers: &[LinkPath]) -> Vec<LinkPath> {
    let mut links: Vec<LinkPath> = Vec::new();
    loop {
        let all = || routes.iter().chain(links.iter().map(|link| &link.route));
        let used = |is_same: &dyn Fn(&LaneRoute) -> bool| all().filter(|r| is_same(r)).count();
        let cost = |path: &&LinkPath| {
            let (port, peer) = (path.route.port, path.route.peer);
            let ours = used(&|route| route.port == port);
            let theirs = used(&|route| route.peer == peer);
            (ours.min(theirs), ours.max(theirs))
        };
        let is_new = |offer: &&LinkPath| all().all(|route| *route != offer.route);
        let next = offers.iter().filter(is_new).min_by_key(cost);
        let count = routes.len() + links.len();
        let Some(next) = next.filter(|next| cost(next).0 == 0 && count < LINKS_MAX) else {
            break;
        };
        links.push(*next);
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the links over these offers, as local port and peer.
    fn paired(offers: &[(usize, u8)]) -> Vec<(usize, u8)> {
        let path = |&(port, peer): &(usize, u8)| LinkPath {
            route: LaneRoute { port, peer: MacAddress([peer; 6]) },
            frame_bytes: 1500,
        };
        let offers: Vec<LinkPath> = offers.iter().map(path).collect();
        pair(&[], &offers).iter().map(|link| (link.route.port, link.route.peer.0[0])).collect()
    }

    #[test]
    fn hosts_stay_with_their_target() {
        let found = |endpoint: u8, port| FoundPort {
            route: LaneRoute { port, peer: MacAddress([endpoint; 6]) },
            endpoint: [endpoint; 16],
            frame_bytes: 1500,
            nqn: "nqn.x:y".into(),
        };
        let offers = [found(1, 0), found(2, 0), found(2, 1), found(3, 0), found(3, 1)];
        assert_eq!(choose(&offers, &[]), Some([2; 16]), "over most links, the first");
        assert_eq!(choose(&offers, &[[1; 16]]), Some([1; 16]));
        assert_eq!(choose(&offers, &[[9; 16]]), Some([2; 16]), "that one is gone");
        assert_eq!(choose(&[], &[[1; 16]]), None);
    }

    /// Any peer may send an Offer, and an interface may be removed after one was received.
    #[test]
    fn frames_that_are_too_small_lead_nowhere() {
        let found = |frame_bytes| FoundPort {
            route: LaneRoute { port: 0, peer: MacAddress([1; 6]) },
            endpoint: [1; 16],
            frame_bytes,
            nqn: "nqn.x:y".into(),
        };
        let usable = |offered, ours| usable(&found(offered), ours).map(|path| path.frame_bytes);
        assert_eq!(usable(9000, 1500), Some(1500));
        assert_eq!(usable(FRAME_MIN, 70_000), Some(FRAME_MIN));
        for (offered, ours) in [(0, 9000), (63, 9000), (FRAME_MIN - 1, 9000), (9000, 0)] {
            assert_eq!(usable(offered, ours), None);
        }
    }

    #[test]
    fn every_port_gets_a_link() {
        assert_eq!(paired(&[(0, 1), (1, 2)]), [(0, 1), (1, 2)]);
        // All ports on one segment.
        assert_eq!(paired(&[(0, 1), (0, 2), (1, 1), (1, 2)]), [(0, 1), (1, 2)]);
        // One side has more ports.
        assert_eq!(paired(&[(0, 1), (0, 2), (0, 3)]), [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(paired(&[(0, 1), (1, 1)]), [(0, 1), (1, 1)]);
        assert!(paired(&[]).is_empty());
    }
}
