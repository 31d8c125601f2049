//! How an end waits while it has nothing to do: the product's own machine, under virtual time.

use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::{Wait, Waiting};
use std::time::Duration;

/// The machine that decides, between two turns.
#[derive(Debug)]
pub struct Waits {
    wait: Wait,
    /// As it was before the wait.
    before: Wait,
    /// It polls again and again until then, if nothing comes.
    polls_until: Option<Instant>,
}

/// Course of a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waited {
    /// Time of polling.
    pub polled: Duration,
    pub slept: bool,
}

impl Waits {
    pub fn new(waiting: Waiting) -> Self {
        Waits { wait: Wait::new(waiting), before: Wait::new(waiting), polls_until: None }
    }

    pub fn polls_until(&self) -> Option<Instant> {
        self.polls_until
    }

    pub fn polls(&self) -> bool {
        self.wait.polls()
    }

    /// A turn ends. `expects`: something may come; `due`: something is to be done then.
    pub fn begin(&mut self, now: Instant, expects: bool, due: Option<Instant>) {
        self.before = self.wait.clone();
        self.wait.poll_again(now, expects, due);
        self.polls_until = self.wait.polls_until();
    }

    /// The wait that began at `since` is over: at `event` there was something to do, and at `start` a turn can begin.
    /// `turn`: a sleep costs at least that.
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
