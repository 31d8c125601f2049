//! How an association comes to its end: what is under way may end while the target answers, then the controller is shut
//! down.

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
                path.connecting = None; // if an express connection was on its way, nobody wants it
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
}
