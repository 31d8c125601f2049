//! How a reactor waits: spinning is worth its core only while it usually catches something.
//!
//! What learns whether it does is [`roadtrain_proto::spin`]; here is what is configured, and what others see of it.

mod meter;

pub use meter::Meter;
pub use roadtrain_proto::spin::{Adaptive, Learnt, Reading};

use roadtrain_proto::time::Instant;
use std::time::Duration;

/// Fruitless spins in a row after which spinning pauses for twice as many sleeps, up to this many.
const PAUSE_MAX: u32 = 1024;

/// How a reactor waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Waiting {
    /// Polls at most as long as a sleep would cost, where that saves CPU time.
    #[default]
    Adaptive,
    /// Asleep whenever there is nothing to do.
    Sleep,
    /// Polls that long before it sleeps, while that pays.
    Spin(Duration),
    /// Never sleeps: burns the core.
    BusyPoll,
}

/// Decides, each time there is nothing to do, whether to look again or to sleep, as it was configured. What learns
/// is [`Adaptive`].
#[derive(Debug)]
pub struct Spinner {
    waiting: Waiting,
    /// Since when there was nothing to do.
    since: Option<Instant>,
    pause: u32,
    skip: u32,
}

impl Spinner {
    /// With nothing learnt yet.
    #[must_use]
    #[inline]
    pub fn new(waiting: Waiting) -> Self {
        Spinner { waiting, since: None, pause: 1, skip: 0 }
    }

    /// As configured.
    #[must_use]
    #[inline]
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// Something was there to do.
    #[inline]
    pub fn worked(&mut self) {
        if self.since.take().is_some() {
            self.pause = 1; // the spin caught it
        }
    }

    /// Nothing is there to do: whether to look again at once instead of sleeping. `expecting` says that
    /// an answer is under way.
    pub fn spin_again(&mut self, now: Instant, expecting: bool) -> bool {
        match self.waiting {
            Waiting::Sleep | Waiting::Adaptive => false,
            Waiting::BusyPoll => true,
            Waiting::Spin(limit) => self.spin(now, limit, expecting),
        }
    }

    fn spin(&mut self, now: Instant, limit: Duration, expecting: bool) -> bool {
        if self.since.is_none() {
            if !expecting {
                return false;
            }
            if self.skip > 0 {
                self.skip -= 1;
                return false;
            }
        }
        let since = *self.since.get_or_insert(now);
        if now.since(since) < limit {
            return true;
        }
        self.since = None;
        self.skip = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(20);

    #[test]
    fn fruitless_spins_become_rare() {
        let mut spinner = Spinner::new(Waiting::Spin(LIMIT));
        let (mut now, mut looks) = (Instant(0), 0);
        for _ in 0..1000 {
            while spinner.spin_again(now, true) {
                looks += 1;
                now += LIMIT;
            }
            now += LIMIT * 10;
        }
        assert!(looks < 20, "{looks} spins in 1000 sleeps that none of them shortened");
    }

    #[test]
    fn successful_spins_go_on() {
        let mut spinner = Spinner::new(Waiting::Spin(LIMIT));
        for turn in 0..1000 {
            assert!(spinner.spin_again(Instant(turn * 1000), true));
            spinner.worked();
        }
        assert!(!spinner.spin_again(Instant(0), false), "nothing is expected: sleep");
    }
}
