//! Since when no path works, and which failures that has led to: at the controller-loss timeout, and before that at the
//! fast-io-fail timeout if there is one. Attempts go on in any case, and a path that works ends it.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Pause before requests fail after all, where they could have gone elsewhere.
const LATER: Duration = Duration::from_millis(250);

/// A loss; by default there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    since: Option<Instant>,
    /// The controller-loss timeout has passed, ...
    has_failed: bool,
    /// ... and that of fast-io-fail.
    has_failed_fast: bool,
    /// Not before then.
    later: Instant,
}

impl Loss {
    /// No path works now.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// When requests fail by the controller-loss timeout, if they have not.
    pub(super) fn failing_at(&self, timeout: Option<Duration>) -> Option<Instant> {
        Some(self.since? + timeout.filter(|_| !self.has_failed)?)
    }

    /// When requests fail by the fast-io-fail timeout, if they have not.
    pub(super) fn fast_failing_at(&self, timeout: Option<Duration>) -> Option<Instant> {
        let at = self.since? + timeout.filter(|_| !self.has_failed_fast)?;
        Some(at.max(self.later))
    }

    /// They have failed by the controller-loss timeout.
    pub(super) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// They have failed by the fast-io-fail timeout.
    pub(super) fn failed_fast(&mut self) {
        self.has_failed_fast = true;
    }

    /// They have not, as another path works and takes them. Should that one be lost, too, they fail.
    pub(super) fn fail_later(&mut self, now: Instant) {
        (self.has_failed_fast, self.later) = (false, now + LATER);
    }
}
