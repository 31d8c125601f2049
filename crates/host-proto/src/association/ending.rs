//! How an association comes to its end: what is under way may end while the target answers, then the controller is shut
//! down. And how requests fail before, while no path works.

use super::{Action, Association, Failure, Instant, Procedure, State};
use super::{Done, bringup};
use core::time::Duration;

/// How far its end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Whether the target answers is not known yet.
    Asking,
    /// Requests may end until then.
    Waiting {
        until: Instant,
        is_there: bool,
    },
    ShuttingDown,
    Over,
}

impl<E: Send + 'static> Association<E> {
    /// It is to end. If the path is lost, or is going to be, and another association lives (`has_help`), what is under way
    /// has its time to go there.
    pub fn stop(&mut self, now: Instant, has_help: bool) {
        if self.ending.is_some() {
            return;
        }
        self.has_help = has_help && self.config.beside.is_some();
        self.actions.push_back(Action::Finish);
        self.refuse_look_ups();
        self.ending = Some(Ending::Asking);
        if !self.is_live() {
            self.give_up(now);
        }
    }

    /// Those who submit requests have come to an end, by themselves or because of [`Action::Finish`].
    pub fn ended(&mut self, now: Instant) {
        self.has_ended = true;
        self.stop(now, false);
    }

    /// The target is not there at the end: what is under way fails, at once or when others have had time to take it.
    pub(super) fn give_up(&mut self, now: Instant) {
        self.path.abandon();
        self.abandon_look_ups();
        let until = if self.has_help { now + self.config.wants.timeout * 2 } else { now };
        self.ending = Some(Ending::Waiting { until, is_there: false });
    }

    /// How long what is under way may take at the end while the target is there. Where there are several paths an answer is
    /// not waited for as long, but requests of a lost path may still come here.
    pub(super) fn patience_at_end(&self) -> Duration {
        self.config.wants.timeout * if self.config.beside.is_some() { 4 } else { 1 }
    }

    pub(super) fn advance_ending(&mut self, now: Instant) -> bool {
        let Some(Ending::Waiting { until, is_there }) = self.ending else { return false };
        let timeout = self.config.wants.timeout;
        if self.has_ended {
            let path = &mut self.path;
            if is_there && path.state == State::Live {
                path.expresses.arrived(); // if an express connection was on its way, nobody wants it
                // The timer does not run any more, and a controller that has shut down may refuse a Keep Alive.
                path.keep_alive_at = None;
                path.task = Some(Procedure::new(|driver| async move {
                    bringup::shut_down(&driver, timeout).await.map(|()| Done::ShutDown)
                }));
                self.ending = Some(Ending::ShuttingDown);
            } else {
                self.end(now, None);
            }
            return true;
        }
        if until > now {
            return false;
        }
        self.actions.push_back(Action::Fail { lane: None });
        self.ending = Some(Ending::Waiting { until: now + timeout, is_there });
        true
    }

    pub(super) fn end(&mut self, now: Instant, shut_down: Option<Result<(), Failure<E>>>) {
        self.ending = Some(Ending::Over);
        self.controllers_end(now, matches!(shut_down, Some(Ok(()))));
        self.path.abandon();
        self.writes.disconnected();
        self.abandon_look_ups();
        self.actions.push_back(Action::End { shut_down });
    }

    /// The end: whether the path's controller was shut down, or may still have something.
    fn controllers_end(&mut self, now: Instant, is_shut_down: bool) {
        let old = &self.config.old_commands;
        // Nobody connects there any more.
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

    /// When requests fail by [`super::Config::fast_io_fail_timeout`].
    pub(super) fn fast_failing_at(&self) -> Option<Instant> {
        let timeout = self.config.fast_io_fail_timeout.filter(|_| self.ending.is_none());
        self.loss.fast_failing_at(timeout)
    }

    /// The controller-loss timeout, unless an attempt is under way.
    pub(super) fn fail_if_lost(&mut self, now: Instant) -> bool {
        if self.fast_failing_at().is_some_and(|at| at <= now) {
            self.loss.failed_fast();
            self.actions.push_back(Action::FailFast);
            return true;
        }
        if self.ending.is_some()
            || self.loss.failing_at(self.config.controller_loss_timeout).is_none_or(|at| at > now)
            || !matches!(self.path.state, State::Down { .. })
        {
            return false;
        }
        self.loss.failed();
        self.actions.push_back(Action::Fail { lane: None });
        true
    }

    /// Instead of [`Action::FailFast`]: another path works, and takes the requests as soon as that is safe. Should that one
    /// be lost, too, they fail.
    pub fn fail_later(&mut self, now: Instant) {
        self.loss.fail_later(now);
    }
}
