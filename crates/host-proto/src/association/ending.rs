//! End of an association: pending requests may finish while the target replies, then the controller is shut down. Also
//! the timeouts after which requests fail while no path works.

use super::{AssociationAction, HostAssociation, Instant, PathPhase, Procedure, ProcedureFailure};
use super::{PathTaskOutput, bringup};
use core::time::Duration;

/// State of the association's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssociationEnd {
    /// A Keep Alive checks if the target replies.
    CheckingTarget,
    /// Pending requests may finish until this deadline.
    Waiting {
        until: Instant,
        is_there: bool,
    },
    ShuttingDown,
    Over,
}

impl<E: Send + 'static> HostAssociation<E> {
    /// Starts to end the association. If its path is down or fails, and another association is live (`has_live_sibling`),
    /// pending requests get time to move to that one.
    pub fn stop(&mut self, now: Instant, has_live_sibling: bool) {
        if self.ending.is_some() {
            return;
        }
        self.has_live_sibling = has_live_sibling && self.config.siblings.is_some();
        self.actions.push_back(AssociationAction::Finish);
        self.refuse_allocation_queries();
        self.ending = Some(AssociationEnd::CheckingTarget);
        if !self.is_live() {
            self.end_without_target(now);
        }
    }

    /// Handles the end of all submitters of requests, whether or not [`AssociationAction::Finish`] caused it.
    pub fn ended(&mut self, now: Instant) {
        self.has_ended = true;
        self.stop(now, false);
    }

    /// Ends without the target: pending requests fail at once, or after other associations had time to take them.
    pub(super) fn end_without_target(&mut self, now: Instant) {
        self.path.abandon();
        self.abandon_allocation_queries();
        let until = if self.has_live_sibling { now + self.config.wants.timeout * 2 } else { now };
        self.ending = Some(AssociationEnd::Waiting { until, is_there: false });
    }

    /// Returns the time that pending requests have at the end while the target replies. With several paths it is
    /// longer, as requests of a lost path may still move here.
    pub(super) fn patience_at_end(&self) -> Duration {
        self.config.wants.timeout * if self.config.siblings.is_some() { 4 } else { 1 }
    }

    pub(super) fn advance_ending(&mut self, now: Instant) -> bool {
        let Some(AssociationEnd::Waiting { until, is_there }) = self.ending else { return false };
        let timeout = self.config.wants.timeout;
        if self.has_ended {
            let path = &mut self.path;
            if is_there && path.state == PathPhase::Live {
                path.expresses.arrived(); // a pending express connection is not needed any more
                // The keep-alive timer has stopped, and a controller that has shut down may refuse a Keep Alive.
                path.keep_alive_at = None;
                path.task = Some(Procedure::new(|driver| async move {
                    bringup::shut_down(&driver, timeout).await.map(|()| PathTaskOutput::ShutDown)
                }));
                self.ending = Some(AssociationEnd::ShuttingDown);
            } else {
                self.end(now, None);
            }
            return true;
        }
        if until > now {
            return false;
        }
        self.actions.push_back(AssociationAction::Fail { lane: None });
        self.ending = Some(AssociationEnd::Waiting { until: now + timeout, is_there });
        true
    }

    pub(super) fn end(&mut self, now: Instant, shut_down: Option<Result<(), ProcedureFailure<E>>>) {
        self.ending = Some(AssociationEnd::Over);
        self.controllers_end(now, matches!(shut_down, Some(Ok(()))));
        self.path.abandon();
        self.writes.disconnected();
        self.abandon_allocation_queries();
        self.actions.push_back(AssociationAction::End { shut_down });
    }

    /// Marks the path's controllers as ended (`is_shut_down`), or as absent.
    fn controllers_end(&mut self, now: Instant, is_shut_down: bool) {
        let old = &self.config.old_commands;
        // No further connection reaches these controllers.
        if let Some((serial, _)) = self.path.controller.take() {
            if is_shut_down {
                old.end(serial);
            } else {
                old.lost(now, serial);
                old.absent(now, serial);
            }
        }
        self.path.lost.absent(now, old);
    }

    // ---- Requests that fail while no path works ----

    /// Returns the time at which requests fail by [`super::AssociationConfig::fast_io_fail_timeout`].
    pub(super) fn fast_failing_at(&self) -> Option<Instant> {
        let timeout = self.config.fast_io_fail_timeout.filter(|_| self.ending.is_none());
        self.loss.fast_failing_at(timeout)
    }

    /// Fails requests once a timeout has passed, except during an attempt to connect. True if it did.
    pub(super) fn fail_if_lost(&mut self, now: Instant) -> bool {
        if self.fast_failing_at().is_some_and(|at| at <= now) {
            self.loss.failed_fast();
            self.actions.push_back(AssociationAction::FailFast);
            return true;
        }
        if self.ending.is_some()
            || self.loss.failing_at(self.config.controller_loss_timeout).is_none_or(|at| at > now)
            || !matches!(self.path.state, PathPhase::Down { .. })
        {
            return false;
        }
        self.loss.failed();
        self.actions.push_back(AssociationAction::Fail { lane: None });
        true
    }

    /// Defers [`AssociationAction::FailFast`]: another path works and takes the requests once that is safe. They fail if that path
    /// is lost, too.
    pub fn fail_later(&mut self, now: Instant) {
        self.loss.fail_later(now);
    }
}
