//! A channel's timers: lost frames, requests for acknowledgements, and suspect links.

use super::{LaneChannel, THRESHOLD_MIN};
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Shortest delay after which an overtaken frame is lost.
const OVERDUE_MIN: Duration = Duration::from_micros(100);
/// Interval of a sender's requests for credits.
const CREDITS_EVERY: Duration = Duration::from_millis(10);
/// Silence after which the peer of an idle channel is probed.
const SILENCE_MAX: Duration = Duration::from_secs(1);

impl<R: Copy> LaneChannel<R> {
    fn timeout_at(&self) -> Option<Instant> {
        let from = self.sender.oldest_sent()?.max(self.timer_from);
        Some(from + self.rtt.timeout(self.health.timeouts()))
    }

    /// Returns the age at which a frame is lost that at least one later frame has overtaken. It grows with the
    /// threshold: frames that often overtake each other get more time.
    pub(super) fn overdue_age(&self) -> Duration {
        let smoothed = self.rtt.smoothed();
        smoothed + OVERDUE_MIN.max(smoothed / 4) * self.threshold / THRESHOLD_MIN
    }

    fn overdue_at(&self) -> Option<Instant> {
        Some(self.sender.oldest_overtaken_sent()? + self.overdue_age())
    }

    /// Time at which [`LaneChannel::expire`] has work, or an acknowledgement is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let patience = match self.health.is_suspect() {
            true => self.health.probe_at(),
            false => self.loss_at().or_else(|| self.ack_request_at()),
        };
        let pace = self.is_held.then(|| self.pacer.ready_at());
        [self.receiver.due_at(), patience, pace].into_iter().flatten().min()
    }

    /// Time at which the next frame in flight counts as lost.
    fn loss_at(&self) -> Option<Instant> {
        let timeout_at = self.timeout_at()?;
        Some(self.overdue_at().map_or(timeout_at, |at| at.min(timeout_at)))
    }

    /// Time of the next probe of an idle channel's peer.
    fn ack_request_at(&self) -> Option<Instant> {
        let at = if self.is_starved() { self.credits_at } else { self.received_at + SILENCE_MAX };
        (!self.must_request_ack).then_some(at)
    }

    /// Handles expired timers.
    pub fn expire(&mut self, now: Instant) {
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        self.is_held &= self.pacer.ready_at() > now;
        if self.health.is_suspect() {
            if is_over(self.health.probe_at()) {
                self.health.probe(now, self.sender.in_flight() > 0);
                self.count_all_lost();
                self.must_request_ack = true;
            }
        } else if is_over(self.overdue_at()) {
            self.find_lost(now);
        } else if is_over(self.timeout_at()) {
            self.time_out(now);
        } else if self.sender.in_flight() == 0 && is_over(self.ack_request_at()) {
            self.credits_at = now + CREDITS_EVERY;
            self.must_request_ack = true;
        }
    }

    fn time_out(&mut self, now: Instant) {
        let Some(sent) = self.sender.oldest_sent() else { return };
        self.sender.time_out();
        self.stats.lost += 1;
        self.stats.timeouts += 1;
        self.timer_from = now;
        self.must_request_ack = true;
        if self.health.record_timeout(now, sent) {
            self.begin_suspicion();
        } else if self.health.timeouts() == 2 {
            self.cubic.collapse(now, self.sender.next());
        }
        self.update_latency();
    }

    pub(super) fn begin_suspicion(&mut self) {
        self.stats.suspicions += 1;
        self.must_request_ack = false;
        self.count_all_lost();
    }

    /// Counts all frames in flight as lost; their records leave over other links.
    fn count_all_lost(&mut self) {
        while self.sender.time_out().is_some() {
            self.stats.lost += 1;
        }
    }
}
