//! Detection of links that have failed.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Consecutive timeouts that make a link suspect ...
const TIMEOUTS_MAX: u32 = 3;
/// ... if the peer acknowledged nothing for this long: its process may only run late.
const STALL_MIN: Duration = Duration::from_millis(50);
/// Interval of probes on a suspect link, ...
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// ... and the delay after a reply.
const PROBE_AFTER_REPLY: Duration = Duration::from_millis(10);
/// Consecutive replies after which the link is in use again.
const REPLIES_MIN: u32 = 3;

pub(super) struct LinkHealth {
    has_carrier: bool,
    trial: Option<Trial>,
    /// Number of consecutive timeouts.
    timeouts: u32,
    /// Send time of the first frame that timed out.
    stalled_at: Instant,
}

/// State of a suspect link.
struct Trial {
    replies: u32,
    probe_at: Instant,
}

impl LinkHealth {
    pub(super) fn new(now: Instant) -> Self {
        LinkHealth { has_carrier: true, trial: None, timeouts: 0, stalled_at: now }
    }

    pub(super) fn has_carrier(&self) -> bool {
        self.has_carrier
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.trial.is_some()
    }

    pub(super) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Records a timeout of the oldest frame, sent at `sent`. Returns true if the link becomes suspect.
    pub(super) fn record_timeout(&mut self, now: Instant, sent: Instant) -> bool {
        if self.timeouts == 0 {
            self.stalled_at = sent;
        }
        self.timeouts += 1;
        let is_dead = self.timeouts >= TIMEOUTS_MAX && now.since(self.stalled_at) >= STALL_MIN;
        if is_dead {
            self.suspect(now + PROBE_INTERVAL);
        }
        is_dead
    }

    /// Records a new acknowledgement. Returns true if the link is in use again.
    pub(super) fn record_reply(&mut self, now: Instant) -> bool {
        self.timeouts = 0;
        let Some(trial) = self.trial.as_mut().filter(|_| self.has_carrier) else { return false };
        trial.replies += 1;
        trial.probe_at = trial.probe_at.min(now + PROBE_AFTER_REPLY);
        let is_back = trial.replies >= REPLIES_MIN;
        if is_back {
            self.trial = None;
        }
        is_back
    }

    /// True if a suspect link has replied.
    pub(super) fn has_replied(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.replies > 0)
    }

    /// Restores the link at once: there is no better one.
    pub(super) fn restore(&mut self) {
        self.trial = None;
    }

    /// Records the state of the carrier. Returns true if it changed.
    pub(super) fn set_carrier(&mut self, now: Instant, has_carrier: bool) -> bool {
        let is_change = has_carrier != self.has_carrier;
        self.has_carrier = has_carrier;
        if is_change {
            self.suspect(now);
        }
        is_change
    }

    fn suspect(&mut self, probe_at: Instant) {
        self.trial = Some(Trial { replies: 0, probe_at });
        self.timeouts = 0;
    }

    /// Time of the next probe on a suspect link.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let trial = self.trial.as_ref().filter(|_| self.has_carrier)?;
        Some(trial.probe_at)
    }

    /// Records a probe; `has_no_reply` means that the previous one got no reply.
    pub(super) fn probe(&mut self, now: Instant, has_no_reply: bool) {
        if let Some(trial) = &mut self.trial {
            trial.probe_at = now + PROBE_INTERVAL;
            if has_no_reply {
                trial.replies = 0;
            }
        }
    }
}
