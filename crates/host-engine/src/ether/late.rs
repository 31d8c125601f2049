//! Links that join a live lane, because they got no reply when it was made or were found since; and links that move,
//! because one of their ends has another address.

use super::ports::{HostFrame, Ports};
use super::route::{HEADS_BYTES, LinkPath, Linked};
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_proto::time::Instant;
use roadtrain_system::random;
use roadtrain_wire::ether::setup::{JoinBody, JoinedBody};
use roadtrain_wire::ether::{FrameHeader, FrameType, MacAddress};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::time::Duration;
use tracing::info;

/// First wait for a reply; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest such wait, and the pause before a link without a reply is retried.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pending Join of a link.
struct LateJoin {
    route: LaneRoute,
    join: JoinBody,
    /// Time of the next Join, and the wait after it.
    at: Instant,
    pause: Duration,
}

/// Pending and moving links of a lane.
pub(crate) struct LateJoins {
    /// Unused LINKs of the lane.
    free: Vec<u8>,
    /// Common part of the lane's Joins.
    common: JoinBody,
    /// Joins of its links.
    made: Vec<JoinBody>,
    joins: Vec<LateJoin>,
}

impl LateJoins {
    /// Creates the state of a lane whose links were joined as `made` lists; further Joins are like `common`, except for
    /// their numbers.
    pub(super) fn new(common: JoinBody, made: Vec<JoinBody>, free: Vec<u8>) -> Self {
        LateJoins { free, common, made, joins: Vec::new() }
    }

    /// Returns the Join of an existing link.
    pub(super) fn made(&self, link: u8) -> Option<&JoinBody> {
        self.made.iter().find(|join| join.link == link)
    }

    /// Adds a Join that has just failed without a reply.
    pub(super) fn unanswered(&mut self, now: Instant, route: LaneRoute, join: JoinBody) {
        let (at, pause) = (now + PAUSE_MAX, PAUSE_MAX);
        self.joins.push(LateJoin { route, join, at, pause });
    }

    /// Adds a path to the target, which is at `addresses` now, as one more link if the lane may have it. Instead of a
    /// new link it moves one of the same port that leads to no such address any more: one of `gone`, or a pending one.
    pub(super) fn add(
        &mut self,
        now: Instant,
        LinkPath { route, frame_bytes }: LinkPath,
        addresses: &[MacAddress],
        gone: &[u8],
    ) {
        let heads = usize::from(HEADS_BYTES);
        let fits = usize::from(frame_bytes) >= heads + usize::from(self.common.piece.get());
        if !fits || self.joins.iter().any(|late| late.route == route) {
            return;
        }
        let (at, pause) = (now, PAUSE);
        let is_lost = |late: &&mut LateJoin| {
            late.route.port == route.port
                && !addresses.contains(&late.route.peer)
                && late.join.frame.get() <= frame_bytes
        };
        if let Some(late) = self.joins.iter_mut().find(is_lost) {
            return *late = LateJoin { route, join: late.join, at, pause };
        }
        let is_pending = |link: u8| self.joins.iter().any(|late| late.join.link == link);
        let moved = gone.iter().find(|link| !is_pending(**link)).and_then(|link| self.made(*link));
        if let Some(&join) = moved {
            return self.joins.push(LateJoin { route, join, at, pause });
        }
        let Some(&link) = self.free.last() else { return };
        let Ok(first) = random::number() else { return };
        self.free.pop();
        let (first, frame) = ((first as u32).into(), frame_bytes.into());
        self.joins.push(LateJoin {
            route,
            join: JoinBody { link, first, frame, ..self.common },
            at,
            pause,
        });
    }

    /// Shifts port numbers: its thread has this many ports before its own.
    pub(super) fn shift(&mut self, ports: usize) {
        self.joins.iter_mut().for_each(|late| late.route.port += ports);
    }

    /// Repeats the Join of a link, to report the new address of this end to the target.
    pub(super) fn again(&mut self, now: Instant, link: u8, route: LaneRoute) {
        if self.joins.iter().all(|late| late.join.link != link)
            && let Some(&join) = self.made(link)
        {
            self.joins.push(LateJoin { route, join, at: now, pause: PAUSE });
        }
    }

    /// Returns when [`LateJoins::put`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.joins.iter().map(|late| late.at).min()
    }

    /// Builds the Joins that are due, for the target that knows the lane by `peer_token`.
    pub(super) fn put(&mut self, now: Instant, ports: &mut Ports, peer_token: u64, nqn: &str) {
        for late in self.joins.iter_mut().filter(|late| late.at <= now) {
            late.at = now + late.pause;
            late.pause = (late.pause * 2).min(PAUSE_MAX);
            late.put(ports, peer_token, nqn);
        }
    }

    /// Handles a Joined from the target that knows the lane by `peer_token`. Returns the established link.
    pub(super) fn receive_joined(
        &mut self,
        received: &HostFrame<'_>,
        peer_token: u64,
    ) -> Option<Linked> {
        let (joined, _) = JoinedBody::read_from_prefix(received.body).ok()?;
        let from = LaneRoute { port: received.port, peer: received.source };
        let is_it = |late: &LateJoin| late.route == from && late.join.link == received.header.link;
        let position = self.joins.iter().position(is_it)?;
        let status = joined.status.get();
        if status == 0 && joined.token.get() != peer_token {
            return None; // another target
        }
        let LateJoin { join, .. } = self.joins.swap_remove(position);
        if status != 0 {
            info!("a link was refused: status {status:#x}");
            return None;
        }
        if self.made(join.link).is_none() {
            self.made.push(join);
        }
        Some(Linked::new(from, &join, &joined, received.header.reply.get()))
    }
}

impl LateJoin {
    fn put(&self, ports: &mut Ports, peer_token: u64, nqn: &str) {
        put_join(ports, self.route, &self.join, peer_token, nqn);
    }
}

/// Builds a Join of an existing lane.
pub(super) fn put_join(
    ports: &mut Ports,
    route: LaneRoute,
    join: &JoinBody,
    peer_token: u64,
    nqn: &str,
) {
    let (kind, link) = (FrameType::Join as u8, join.link);
    let header = FrameHeader { kind, token: peer_token.into(), link, ..FrameHeader::default() };
    ports.put(route.port, route.peer, header, &[join.as_bytes(), nqn.as_bytes()].concat());
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_ether_proto::channel::ChannelConfig;
    use roadtrain_wire::zerocopy::FromZeros;

    const NOW: Instant = Instant(1_000_000_000);
    const TOKEN: u64 = 0x7e57;

    fn mac(byte: u8) -> MacAddress {
        MacAddress([byte; 6])
    }

    fn path(port: usize, peer: u8, frame_bytes: u16) -> LinkPath {
        LinkPath { route: LaneRoute { port, peer: mac(peer) }, frame_bytes }
    }

    fn answer_of(
        late: &mut LateJoins,
        at: LinkPath,
        link: u8,
        status: u16,
        token: u64,
    ) -> Option<Linked> {
        let header = &FrameHeader { link, reply: 77.into(), ..FrameHeader::default() };
        let (status, first, frame, window) = (status.into(), 500.into(), 4000.into(), 128.into());
        let token = token.into();
        let joined = JoinedBody { status, first, frame, window, token, ..JoinedBody::new_zeroed() };
        let LaneRoute { port, peer: source } = at.route;
        let (kind, body) = (FrameType::Joined, joined.as_bytes());
        late.receive_joined(&HostFrame { port, source, header, kind, body }, TOKEN)
    }

    fn answer(late: &mut LateJoins, at: LinkPath, link: u8) -> Option<Linked> {
        answer_of(late, at, link, 0, TOKEN)
    }

    fn lane(links: u8) -> LateJoins {
        let common = JoinBody { piece: 1408.into(), links, ..JoinBody::new_zeroed() };
        let made = JoinBody { frame: 9000.into(), first: 4.into(), ..common };
        LateJoins::new(common, vec![made], (1..links).rev().collect())
    }

    #[test]
    fn links_join_once_they_are_found() {
        let mut late = lane(3);
        let all = [mac(1), mac(2), mac(3)];
        assert!(late.deadline().is_none());
        late.add(NOW, path(1, 1, 1400), &all, &[]);
        assert!(late.deadline().is_none(), "too small for the lane's pieces");
        let one = path(1, 1, 9000);
        late.add(NOW, one, &all, &[]);
        late.add(NOW, one, &all, &[]);
        assert_eq!((late.joins.len(), late.deadline()), (1, Some(NOW)));
        assert!(answer(&mut late, one, 2).is_none(), "another link");
        assert!(answer(&mut late, path(2, 1, 0), 1).is_none(), "another port");
        assert!(answer(&mut late, path(1, 2, 0), 1).is_none(), "another address");
        assert!(answer_of(&mut late, one, 1, 0, 1).is_none(), "another target");
        let linked = answer(&mut late, one, 1).expect("a link");
        let ChannelConfig { link, first_rx, frame_bytes, .. } = linked.config;
        assert_eq!((link, first_rx, frame_bytes, linked.socket_number), (1, 500, 4000, 77));
        assert!(answer(&mut late, one, 1).is_none(), "it exists already");
        late.add(NOW, path(1, 2, 9000), &all, &[]);
        assert!(answer_of(&mut late, path(1, 2, 0), 2, 0x102, TOKEN).is_none(), "refused");
        assert!(late.joins.is_empty());
        late.add(NOW, path(3, 1, 9000), &all, &[]);
        assert!(late.joins.is_empty(), "the lane has no more numbers");
    }

    /// Checks that nothing grows, however often an interface gets another address.
    #[test]
    fn links_are_moved_to_where_their_target_is_now() {
        let mut late = lane(2);
        for round in 10..250 {
            let at = path(0, round, 9000);
            late.add(NOW, at, &[mac(round)], &[0]);
            let linked = answer(&mut late, at, 0).expect("the same link");
            assert_eq!((linked.route, linked.config.first_tx), (at.route, 4));
            assert_eq!((late.made.len(), late.free.len(), late.joins.len()), (1, 1, 0));
        }
        // The interface is removed again before its reply.
        for round in 10..250 {
            late.add(NOW, path(0, round, 9000), &[mac(round)], &[]);
            assert_eq!((late.free.len(), late.joins.len()), (0, 1), "one more link is pending");
        }
        assert!(answer(&mut late, path(0, 249, 9000), 1).is_some());
    }

    #[test]
    fn a_link_is_joined_again_from_another_address() {
        let mut late = lane(1);
        let at = path(0, 1, 9000);
        late.again(NOW, 0, at.route);
        late.again(NOW, 0, at.route);
        assert_eq!((late.joins.len(), late.joins[0].join.first.get()), (1, 4));
        assert!(answer(&mut late, at, 0).is_some());
        late.again(NOW, 1, at.route);
        assert!(late.joins.is_empty(), "no such link");
    }

    #[test]
    fn a_silent_target_gets_another_join() {
        let mut late = lane(1);
        late.unanswered(NOW, path(0, 0, 0).route, JoinBody::new_zeroed());
        assert_eq!(late.deadline(), Some(NOW + PAUSE_MAX));
    }
}
