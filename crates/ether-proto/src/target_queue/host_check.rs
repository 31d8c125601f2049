//! The target's check that a lane's host still has the lane, when the host connects again.

use crate::links::LaneLinks;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Longest wait for a sign of life of a host that connects again.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Result of [`HostCheck::probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostProbe {
    /// The lane carries no I/O, so late execution does no harm. This counts as a reply.
    Harmless,
    /// Probe frames must leave now.
    Now,
    /// A probe is in progress.
    Already,
}

/// State of the check.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCheck {
    /// True for an I/O queue: its commands may still be executed, including those in flight.
    pub(super) is_io: bool,
    /// Deadline of the probe in progress.
    until: Option<Instant>,
}

impl HostCheck {
    /// Probes the host for this lane, because it connects again. See [`roadtrain_target_proto::host_connections`].
    pub fn probe<R: Copy>(&mut self, now: Instant, links: &mut LaneLinks<R>) -> HostProbe {
        if !self.is_io {
            return HostProbe::Harmless;
        }
        if self.until.is_some() {
            return HostProbe::Already;
        }
        self.until = Some(now + SIGN_OF_LIFE);
        links.probe();
        HostProbe::Now
    }

    /// True once, after a probed host has replied.
    pub fn has_replied<R: Copy>(&mut self, links: &LaneLinks<R>) -> bool {
        self.until.take_if(|_| links.has_replied()).is_some()
    }

    /// True if the host has not replied to the probe in time: the lane must end.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Deadline of the probe.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChannelConfig;

    const NOW: Instant = Instant(1_000_000_000);

    fn links(token: u64, peer_token: u64) -> LaneLinks<u32> {
        let mut links = LaneLinks::new(token, peer_token, 1);
        let (link, first_tx, first_rx, window, frame_bytes) = (0, 5, 5, 64, 9000);
        links.add(NOW, &ChannelConfig { link, first_tx, first_rx, window, frame_bytes }, 1);
        links
    }

    /// Delivers the due Ack of `from` to `to`.
    fn deliver_ack(from: &mut LaneLinks<u32>, to: &mut LaneLinks<u32>) {
        let (link, requests_ack) = from.ack_due(NOW).expect("something to say");
        let header = from.send_ack(NOW, link, 64, requests_ack);
        to.receive(NOW, &header, &[], &mut |_| ());
    }

    #[test]
    fn a_host_answers_or_is_gone() {
        let (mut check, mut ours, mut theirs) = (HostCheck::default(), links(1, 2), links(2, 1));
        let later = NOW + SIGN_OF_LIFE;
        assert_eq!(check.probe(NOW, &mut ours), HostProbe::Harmless);
        assert!(!check.has_replied(&ours) && !check.is_over(later), "no probe was sent");
        check.is_io = true;
        assert_eq!(check.probe(NOW, &mut ours), HostProbe::Now);
        assert_eq!(check.probe(NOW, &mut ours), HostProbe::Already);
        deliver_ack(&mut ours, &mut theirs);
        assert!(!check.has_replied(&ours) && !check.is_over(NOW) && check.is_over(later));
        deliver_ack(&mut theirs, &mut ours);
        assert!(check.has_replied(&ours) && !check.has_replied(&ours), "reported once");
        assert!(!check.is_over(later) && check.until.is_none());
    }
}
