//! When a question is put, again and again until it is answered: frames get lost.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// How often a question is put.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// First wait for an answer; it doubles.
    pub first: Duration,
    /// Longest such wait.
    pub longest: Duration,
    /// All of them.
    pub total: Duration,
}

/// A question that is being asked.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    longest: Duration,
    /// The next wait.
    pause: Duration,
    /// It is put again then, ...
    again: Instant,
    /// ... but not any more from then on.
    end: Instant,
}

impl Asking {
    /// A question that is due at once.
    #[must_use]
    pub fn new(now: Instant, pace: Pace) -> Self {
        let Pace { first, longest, total } = pace;
        Asking { longest, pause: first, again: now, end: now + total }
    }

    /// Whether the question is to be put now. Who calls this puts it.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.again <= now && !self.is_over(now);
        if is_due {
            self.again = now + self.pause;
            self.pause = (self.pause * 2).min(self.longest);
        }
        is_due
    }

    /// Whether there was enough time for an answer.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.end <= now
    }

    /// When one of the two is so.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.again.min(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_repeated_more_and_more_slowly_until_it_is_over() {
        let ms = Duration::from_millis;
        let start = Instant(1_000_000_000);
        let pace = Pace { first: ms(10), longest: ms(30), total: ms(100) };
        let mut asking = Asking::new(start, pace);
        let mut put = Vec::new();
        for at in (0..200).map(|at| start + ms(at)) {
            assert!(asking.is_over(at) || at <= asking.deadline(), "nobody wakes up for it");
            if asking.is_due(at) {
                assert!(!asking.is_due(at), "once");
                put.push(at.since(start).as_millis());
            }
        }
        assert_eq!(put, [0, 10, 30, 60, 90]);
        assert!(!asking.is_over(start + ms(99)) && asking.is_over(start + ms(100)));
        assert_eq!(asking.deadline(), start + ms(100));
    }
}
