//! The host's check that the target still has a lane.

use super::end::OpenFrame;
use super::links::LaneLinks;
use super::setup::query;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason};
use roadtrain_wire::ether::{FrameHeader, FrameType};
use roadtrain_wire::zerocopy::FromBytes;

/// Interval of queries for a lane that is silent or has a suspect link.
const QUERY_EVERY: Duration = Duration::from_millis(250);
/// Silence after which the admin queue queries its target, so that a restart is detected soon.
const QUIET: Duration = Duration::from_millis(400);
/// Time for the target to reply after another one at the same port has reported the lane as unknown.
const DOUBT: Duration = Duration::from_millis(100);

/// Reason why a lane is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneLoss {
    /// The target does not know the lane.
    Unknown,
    /// Nothing has arrived for too long.
    Silent,
}

/// Reception state of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    /// Time of the last frame.
    received_at: Instant,
    /// Time of the last query.
    queried_at: Option<Instant>,
    /// Time of the first reply that reported the lane as unknown.
    doubted_at: Option<Instant>,
    silence_max: Duration,
}

impl Liveness {
    /// Creates the state of a live lane, which is lost after `silence_max` without a frame.
    #[must_use]
    pub fn new(now: Instant, silence_max: Duration) -> Self {
        Liveness { received_at: now, queried_at: None, doubted_at: None, silence_max }
    }

    /// Processes a frame of the lane that arrived over one of its links and could be opened. Returns true if the
    /// queue pair must process it.
    pub fn receive<R: Copy>(
        &mut self,
        now: Instant,
        kind: FrameType,
        frame: OpenFrame<'_>,
        links: &LaneLinks<R>,
    ) -> bool {
        if kind == FrameType::Leave && is_unknown(frame.body, links.peer_token()) {
            // Several targets may listen at a port: one that still sends frames knows the lane.
            if self.queried_at.is_some_and(|at| self.received_at < at) {
                self.doubted_at.get_or_insert(now);
            }
            return false;
        }
        if frame.is_sign_of_life {
            (self.received_at, self.doubted_at) = (now, None);
        }
        true
    }

    /// Returns why the lane is lost, if it is.
    #[must_use]
    pub fn loss(&self, now: Instant) -> Option<LaneLoss> {
        if self.doubted_at.is_some_and(|at| now.since(at) >= DOUBT) {
            return Some(LaneLoss::Unknown);
        }
        (now.since(self.received_at) >= self.silence_max).then_some(LaneLoss::Silent)
    }

    /// Time of the next query; `is_admin` is true for the lane of an admin queue.
    fn query_at<R: Copy>(&self, is_admin: bool, links: &LaneLinks<R>) -> Option<Instant> {
        let again = self.queried_at.map_or(Instant::default(), |at| at + QUERY_EVERY);
        let quiet = is_admin.then(|| self.received_at + QUIET);
        let suspect = links.has_suspect().then_some(Instant::default());
        suspect.or(quiet).map(|at| at.max(again))
    }

    /// Returns the query that is due on each link, if any: header without LINK, REPLY and BODY, and body.
    pub fn query<R: Copy>(
        &mut self,
        now: Instant,
        is_admin: bool,
        links: &LaneLinks<R>,
        nqn: &str,
    ) -> Option<(FrameHeader, Vec<u8>)> {
        self.query_at(is_admin, links).filter(|at| *at <= now)?;
        self.queried_at = Some(now);
        Some(query(links.peer_token(), links.token(), nqn))
    }

    /// Time of the next query, or of the loss of the lane.
    #[must_use]
    pub fn deadline<R: Copy>(&self, is_admin: bool, links: &LaneLinks<R>) -> Instant {
        let ends = self.doubted_at.map_or(self.received_at + self.silence_max, |at| at + DOUBT);
        self.query_at(is_admin, links).map_or(ends, |at| at.min(ends))
    }
}

/// True if a target reports that it does not know the lane.
fn is_unknown(body: &[u8], peer_token: u64) -> bool {
    let leave = LeaveBody::ref_from_prefix(body).ok().map(|(leave, _)| leave);
    leave.is_some_and(|leave| {
        leave.token.get() == peer_token && leave.reason.get() == LeaveReason::UnknownToken as u16
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChannelConfig;
    use roadtrain_wire::zerocopy::IntoBytes;

    const START: Instant = Instant(1_000_000_000);
    const SILENCE: Duration = Duration::from_secs(5);

    fn ms(ms: u64) -> Instant {
        START + Duration::from_millis(ms)
    }

    fn links() -> LaneLinks<u32> {
        let mut links = LaneLinks::new(0x10, 0x20, 3);
        let (link, first_tx, first_rx, window, frame_bytes) = (0, 1, 1, 64, 9000);
        links.add(START, &ChannelConfig { link, first_tx, first_rx, window, frame_bytes }, 4);
        links
    }

    fn leave(token: u64, reason: LeaveReason) -> Vec<u8> {
        let reason = (reason as u16).into();
        LeaveBody { token: token.into(), reason, endpoint: [0; 6] }.as_bytes().to_vec()
    }

    fn receive(liveness: &mut Liveness, at: u64, kind: FrameType, body: &[u8]) -> bool {
        let is_sign_of_life = kind != FrameType::Leave;
        let frame = OpenFrame { body, is_first: false, is_sign_of_life };
        liveness.receive(ms(at), kind, frame, &links())
    }

    #[test]
    fn an_unknown_lane_is_gone_if_no_target_knows_it() {
        let (mut liveness, links) = (Liveness::new(START, SILENCE), links());
        let unknown = leave(0x20, LeaveReason::UnknownToken);
        assert!(!receive(&mut liveness, 1, FrameType::Leave, &unknown));
        assert_eq!(liveness.loss(ms(1000)), None, "no query was sent");
        assert!(liveness.query(ms(400), true, &links, "nqn.x:y").is_some());
        assert!(!receive(&mut liveness, 401, FrameType::Leave, &unknown));
        assert!(receive(&mut liveness, 402, FrameType::Ack, &[]));
        assert_eq!(liveness.loss(ms(1000)), None, "another one knows it");
        assert!(liveness.query(ms(1400), true, &links, "nqn.x:y").is_some());
        assert!(!receive(&mut liveness, 1401, FrameType::Leave, &unknown));
        assert_eq!(liveness.loss(ms(1500)), None, "another one may know it");
        assert_eq!(liveness.deadline(false, &links), ms(1501));
        assert_eq!(liveness.loss(ms(1501)), Some(LaneLoss::Unknown));
    }

    #[test]
    fn other_ends_of_the_lane_are_the_queue_pairs() {
        let mut liveness = Liveness::new(START, SILENCE);
        for body in
            [leave(0x20, LeaveReason::Shutdown), leave(0x21, LeaveReason::UnknownToken), vec![]]
        {
            assert!(receive(&mut liveness, 1, FrameType::Leave, &body));
        }
    }

    #[test]
    fn a_lane_ends_when_nothing_comes() {
        let (mut liveness, links) = (Liveness::new(START, SILENCE), links());
        assert!(receive(&mut liveness, 3000, FrameType::Ack, &[]));
        assert_eq!(liveness.loss(ms(7999)), None);
        assert_eq!(liveness.loss(ms(8000)), Some(LaneLoss::Silent));
        assert_eq!(liveness.deadline(false, &links), ms(8000));
    }

    #[test]
    fn only_the_admin_queue_queries_in_silence() {
        let (mut liveness, mut links) = (Liveness::new(START, SILENCE), links());
        assert_eq!(liveness.query_at(false, &links), None);
        assert_eq!(liveness.query_at(true, &links), Some(START + QUIET));
        assert!(liveness.query(ms(399), true, &links, "").is_none());
        assert!(liveness.query(ms(400), true, &links, "").is_some());
        assert_eq!(liveness.query_at(true, &links), Some(ms(400) + QUERY_EVERY));
        links.set_carrier(ms(500), 0, false);
        assert!(liveness.query(ms(649), false, &links, "").is_none());
        assert!(liveness.query(ms(650), false, &links, "").is_some(), "its only link is suspect");
    }
}
