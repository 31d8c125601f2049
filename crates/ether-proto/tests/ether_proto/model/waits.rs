//! The wait of an idle end: the product's own state machine, under virtual time.

use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::{WaitDecider, WaitPolicy};
use std::time::Duration;

/// The state machine that decides between two turns.
#[derive(Debug)]
pub struct ModelWaits {
    wait: WaitDecider,
    /// State before the wait.
    before: WaitDecider,
    /// End of polling, if nothing arrives.
    polls_until: Option<Instant>,
}

/// Course of a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waited {
    /// Time of polling.
    pub polled: Duration,
    pub slept: bool,
}

impl ModelWaits {
    pub fn new(waiting: WaitPolicy) -> Self {
        ModelWaits {
            wait: WaitDecider::new(waiting),
            before: WaitDecider::new(waiting),
            polls_until: None,
        }
    }

    pub fn polls_until(&self) -> Option<Instant> {
        self.polls_until
    }

    pub fn polls(&self) -> bool {
        self.wait.polls()
    }

    /// Begins a wait after a turn. `expects` is true if something may arrive; `due` is the next deadline.
    pub fn begin(&mut self, now: Instant, expects: bool, due: Option<Instant>) {
        self.before = self.wait.clone();
        self.wait.poll_again(now, expects, due);
        self.polls_until = self.wait.polls_until();
    }

    /// Ends the wait that began at `since`: at `event` there was work, and at `start` a turn can begin. `turn` is the
    /// least cost of a sleep.
    pub fn end(
        &mut self,
        (since, event, start): (Instant, Instant, Instant),
        turn: Duration,
    ) -> Waited {
        let until = self.polls_until.take();
        if event <= since {
            self.wait = self.before.clone(); // there was something to do: no wait began
            return Waited::default();
        }
        if let Some(until) = until {
            self.wait.poll_again(event.min(until), true, None);
            if event <= until {
                self.wait.worked();
                return Waited { polled: event.since(since), slept: false };
            }
        }
        if self.wait.samples_next() {
            self.wait.slept(start.since(event).max(turn));
        }
        self.wait.woke(start);
        self.wait.worked();
        Waited { polled: until.map_or(Duration::ZERO, |until| until.since(since)), slept: true }
    }
}
