//! When requests fail because no path works: at the controller-loss timeout, and before that at the fast-io-fail timeout
//! if there is one. Attempts go on in any case, and a path that works ends it.

use super::{Action, Association, State};
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Pause before requests fail after all, where they could have gone elsewhere.
const LATER: Duration = Duration::from_millis(250);

/// What of a loss has led to failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failed {
    /// The controller-loss timeout has passed, ...
    pub(super) of_loss: bool,
    /// ... and that of fast-io-fail.
    of_fast: bool,
    /// Not before then.
    later: Instant,
}

impl<E: Send + 'static> Association<E> {
    pub(super) fn failing_at(&self) -> Option<Instant> {
        let limit = self.config.controller_loss_timeout.filter(|_| !self.failed.of_loss)?;
        Some(self.lost_at? + limit)
    }

    /// When requests fail by [`super::Config::fast_io_fail_timeout`].
    pub(super) fn fast_failing_at(&self) -> Option<Instant> {
        let is_due = !self.failed.of_fast && self.ending.is_none();
        let limit = self.config.fast_io_fail_timeout.filter(|_| is_due)?;
        Some((self.lost_at? + limit).max(self.failed.later))
    }

    /// The controller-loss timeout, unless an attempt is under way.
    pub(super) fn fail_if_lost(&mut self, now: Instant) -> bool {
        if self.fast_failing_at().is_some_and(|at| at <= now) {
            self.failed.of_fast = true;
            self.actions.push_back(Action::FailFast);
            return true;
        }
        if self.ending.is_some()
            || self.failing_at().is_none_or(|at| at > now)
            || !matches!(self.path.state, State::Down { .. })
        {
            return false;
        }
        self.failed.of_loss = true;
        self.actions.push_back(Action::Fail { lane: None });
        true
    }

    /// Instead of [`Action::FailFast`]: another path works, and takes the requests as soon as that is safe. Should that one
    /// be lost, too, they fail.
    pub fn fail_later(&mut self, now: Instant) {
        (self.failed.of_fast, self.failed.later) = (false, now + LATER);
    }
}
