//! Time without a working path, and the timeouts that follow: controller loss, and fast-io-fail before that if
//! configured. Attempts to connect continue, and a path that works ends the loss.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Delay before requests fail after they could have moved to another path.
const LATER: Duration = Duration::from_millis(250);

/// Loss of the last working path; the default value is no loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    since: Option<Instant>,
    /// True once the controller-loss timeout has passed.
    has_failed: bool,
    /// True once the fast-io-fail timeout has passed.
    has_failed_fast: bool,
    /// Earliest time at which requests fail fast.
    later: Instant,
}

impl Loss {
    /// Starts the loss, unless it has started.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Returns when requests fail by the controller-loss timeout, if they have not.
    pub(super) fn failing_at(&self, timeout: Option<Duration>) -> Option<Instant> {
        Some(self.since? + timeout.filter(|_| !self.has_failed)?)
    }

    /// Returns when requests fail by the fast-io-fail timeout, if they have not.
    pub(super) fn fast_failing_at(&self, timeout: Option<Duration>) -> Option<Instant> {
        let at = self.since? + timeout.filter(|_| !self.has_failed_fast)?;
        Some(at.max(self.later))
    }

    /// Records that requests failed by the controller-loss timeout.
    pub(super) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Records that requests failed by the fast-io-fail timeout.
    pub(super) fn failed_fast(&mut self) {
        self.has_failed_fast = true;
    }

    /// Defers the failure: another path works and takes the requests. They fail if that path is lost, too.
    pub(super) fn fail_later(&mut self, now: Instant) {
        (self.has_failed_fast, self.later) = (false, now + LATER);
    }
}
