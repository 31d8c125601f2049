//! Links that join a lane while it lives: they did not answer when it was made, or were found since.

use super::discovery::Path;
use super::lane::{Linked, Route};
use super::ports::{Heard, Ports};
use crate::random;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{Join, Joined};
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameType};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::time::Duration;
use tracing::info;

/// First wait for an answer; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest such wait, and that before a link that has not answered is asked for again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A link that is asked for.
struct LateJoin {
    route: Route,
    join: Join,
    /// When it is asked for again, and how long is waited then.
    at: Instant,
    pause: Duration,
}

/// A lane's links to come.
pub(crate) struct LateJoins {
    /// LINKs of the lane that nobody has.
    free: Vec<u8>,
    /// What the lane's Joins have in common.
    common: Join,
    joins: Vec<LateJoin>,
}

impl LateJoins {
    /// Of a lane whose links were joined as `common` says, but for those numbers.
    pub(super) fn new(common: Join, free: Vec<u8>) -> Self {
        LateJoins { free, common, joins: Vec::new() }
    }

    /// Asked for in vain, just now.
    pub(super) fn unanswered(&mut self, now: Instant, route: Route, join: Join) {
        let (at, pause) = (now + PAUSE_MAX, PAUSE_MAX);
        self.joins.push(LateJoin { route, join, at, pause });
    }

    /// One more link, if the lane may have it: one for each of our ports.
    pub(super) fn add(&mut self, now: Instant, Path { route, frame_bytes }: Path) {
        let is_asked = self.joins.iter().any(|late| late.route.port == route.port);
        let heads = FRAME_HEADER_BYTES + DATA_RECORD_BYTES;
        let fits = usize::from(frame_bytes) >= heads + usize::from(self.common.piece.get());
        let Some(&link) = self.free.last().filter(|_| !is_asked && fits) else { return };
        let Ok(first) = random::number() else { return };
        self.free.pop();
        let (first, frame) = ((first as u32).into(), frame_bytes.into());
        let join = Join { link, first, frame, ..self.common };
        self.joins.push(LateJoin { route, join, at: now, pause: PAUSE });
    }

    /// When [`LateJoins::put`] has something to ask.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.joins.iter().map(|late| late.at).min()
    }

    /// Builds what is to be asked now, of the target that knows the lane by `peer_token`.
    pub(super) fn put(&mut self, now: Instant, ports: &mut Ports, peer_token: u64, nqn: &str) {
        for late in self.joins.iter_mut().filter(|late| late.at <= now) {
            late.at = now + late.pause;
            late.pause = (late.pause * 2).min(PAUSE_MAX);
            late.put(ports, peer_token, nqn);
        }
    }

    /// Joined has come: the link that is there now.
    pub(super) fn hear(&mut self, heard: &Heard<'_>) -> Option<Linked> {
        let (joined, _) = Joined::read_from_prefix(heard.body).ok()?;
        let from = Route { port: heard.port, peer: heard.source };
        let is_it = |late: &LateJoin| late.route == from && late.join.link == heard.header.link;
        let late = self.joins.swap_remove(self.joins.iter().position(is_it)?);
        let status = joined.status.get();
        if status != 0 {
            info!("a link was refused: status {status:#x}");
            return None;
        }
        Some(Linked::new(from, &late.join, &joined, heard.header.reply.get()))
    }
}

impl LateJoin {
    fn put(&self, ports: &mut Ports, peer_token: u64, nqn: &str) {
        let (kind, link) = (FrameType::Join as u8, self.join.link);
        let token = peer_token.into();
        let header = FrameHeader { kind, token, link, ..FrameHeader::default() };
        let body = [self.join.as_bytes(), nqn.as_bytes()].concat();
        ports.put(self.route.port, self.route.peer, header, &body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::ether::channel::ChannelConfig;
    use roadtrain_wire::ether::MacAddress;
    use roadtrain_wire::zerocopy::FromZeros;

    const NOW: Instant = Instant(1_000_000_000);

    fn path(port: usize, frame_bytes: u16) -> Path {
        Path { route: Route { port, peer: MacAddress([port as u8; 6]) }, frame_bytes }
    }

    fn answer(late: &mut LateJoins, port: usize, link: u8, status: u16) -> Option<Linked> {
        let header = &FrameHeader { link, reply: 77.into(), ..FrameHeader::default() };
        let (status, first, frame, window) = (status.into(), 500.into(), 4000.into(), 128.into());
        let joined = Joined { status, first, frame, window, ..Joined::new_zeroed() };
        let (source, kind, body) = (path(port, 0).route.peer, FrameType::Joined, joined.as_bytes());
        late.hear(&Heard { port, source, header, kind, body })
    }

    #[test]
    fn links_join_once_they_are_found() {
        let common = Join { piece: 1408.into(), links: 3, ..Join::new_zeroed() };
        let mut late = LateJoins::new(common, vec![2, 1]);
        assert!(late.deadline().is_none());
        late.add(NOW, path(1, 1400));
        assert!(late.deadline().is_none(), "too small for the lane's pieces");
        late.add(NOW, path(1, 9000));
        late.add(NOW, path(1, 9000));
        assert_eq!((late.joins.len(), late.deadline()), (1, Some(NOW)));
        assert!(answer(&mut late, 1, 2, 0).is_none(), "another link");
        assert!(answer(&mut late, 2, 1, 0).is_none(), "another port");
        let linked = answer(&mut late, 1, 1, 0).expect("a link");
        let ChannelConfig { link, first_rx, frame_bytes, .. } = linked.config;
        assert_eq!((link, first_rx, frame_bytes, linked.door), (1, 500, 4000, 77));
        assert!(answer(&mut late, 1, 1, 0).is_none(), "it is there already");
        late.add(NOW, path(2, 9000));
        assert!(answer(&mut late, 2, 2, 0x102).is_none(), "refused");
        assert!(late.joins.is_empty());
        late.add(NOW, path(3, 9000));
        assert!(late.joins.is_empty(), "the lane has no more numbers");
    }

    #[test]
    fn who_does_not_answer_is_asked_again() {
        let mut late = LateJoins::new(Join::new_zeroed(), Vec::new());
        late.unanswered(NOW, path(0, 0).route, Join::new_zeroed());
        assert_eq!(late.deadline(), Some(NOW + PAUSE_MAX));
    }
}
