//! Whether a link is to be trusted.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Time-outs in a row that make a link suspect ...
const TIMEOUTS_MAX: u32 = 3;
/// ... if nothing was acknowledged for this long: a peer may be slow to run.
const PATIENCE: Duration = Duration::from_millis(50);
/// A suspect link is asked this often, ...
const ASK_EVERY: Duration = Duration::from_millis(100);
/// ... and this long after an answer.
const ASK_AFTER_ANSWER: Duration = Duration::from_millis(10);
/// Answers in a row after which it is back.
const ANSWERS: u32 = 3;

pub(super) struct Health {
    has_carrier: bool,
    trial: Option<Trial>,
    /// Time-outs in a row.
    timeouts: u32,
    /// When the first of those frames was sent.
    stalled_at: Instant,
}

/// Of a suspect link.
struct Trial {
    answers: u32,
    ask_at: Instant,
}

impl Health {
    pub(super) fn new(now: Instant) -> Self {
        Health { has_carrier: true, trial: None, timeouts: 0, stalled_at: now }
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

    /// The oldest frame, sent then, has timed out; whether the link is suspect from now on.
    pub(super) fn timed_out(&mut self, now: Instant, sent: Instant) -> bool {
        if self.timeouts == 0 {
            self.stalled_at = sent;
        }
        self.timeouts += 1;
        let is_dead = self.timeouts >= TIMEOUTS_MAX && now.since(self.stalled_at) >= PATIENCE;
        if is_dead {
            self.suspect(now + ASK_EVERY);
        }
        is_dead
    }

    /// Something new was acknowledged; whether that brings the link back.
    pub(super) fn answered(&mut self, now: Instant) -> bool {
        self.timeouts = 0;
        let Some(trial) = self.trial.as_mut().filter(|_| self.has_carrier) else { return false };
        trial.answers += 1;
        trial.ask_at = trial.ask_at.min(now + ASK_AFTER_ANSWER);
        let is_back = trial.answers >= ANSWERS;
        if is_back {
            self.trial = None;
        }
        is_back
    }

    /// Whether a suspect link has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.answers > 0)
    }

    /// Back at once: there is no better link.
    pub(super) fn trust(&mut self) {
        self.trial = None;
    }

    /// Whether the carrier has changed.
    pub(super) fn set_carrier(&mut self, now: Instant, has_carrier: bool) -> bool {
        let is_change = has_carrier != self.has_carrier;
        self.has_carrier = has_carrier;
        if is_change {
            self.suspect(now);
        }
        is_change
    }

    fn suspect(&mut self, ask_at: Instant) {
        self.trial = Some(Trial { answers: 0, ask_at });
        self.timeouts = 0;
    }

    /// When a suspect link is to be asked.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        let trial = self.trial.as_ref().filter(|_| self.has_carrier)?;
        Some(trial.ask_at)
    }

    /// It is asked now; what was asked before had an answer, or not.
    pub(super) fn ask(&mut self, now: Instant, is_unanswered: bool) {
        if let Some(trial) = &mut self.trial {
            trial.ask_at = now + ASK_EVERY;
            if is_unanswered {
                trial.answers = 0;
            }
        }
    }
}
