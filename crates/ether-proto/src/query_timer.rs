//! Retransmission times of a query until its reply arrives: frames get lost.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Retransmission intervals of a query.
#[derive(Clone, Copy, Debug)]
pub struct QueryIntervals {
    /// First wait for a reply; each later wait is twice as long.
    pub first: Duration,
    /// Longest wait before a retransmission.
    pub longest: Duration,
    /// Time until the query is abandoned.
    pub total: Duration,
}

/// A query in progress.
#[derive(Clone, Copy, Debug)]
pub struct QueryTimer {
    longest: Duration,
    /// Wait after the next transmission.
    pause: Duration,
    /// Time of the next transmission.
    again: Instant,
    /// Time from which on the query is not sent again.
    end: Instant,
}

impl QueryTimer {
    /// Creates a query that is due immediately.
    #[must_use]
    pub fn new(now: Instant, pace: QueryIntervals) -> Self {
        let QueryIntervals { first, longest, total } = pace;
        QueryTimer { longest, pause: first, again: now, end: now + total }
    }

    /// True if the query is due now; the caller then sends it.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.again <= now && !self.is_over(now);
        if is_due {
            self.again = now + self.pause;
            self.pause = (self.pause * 2).min(self.longest);
        }
        is_due
    }

    /// True once the time for a reply has passed.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        self.end <= now
    }

    /// Time of the next transmission, or of the end.
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
        let pace = QueryIntervals { first: ms(10), longest: ms(30), total: ms(100) };
        let mut asking = QueryTimer::new(start, pace);
        let mut put = Vec::new();
        for at in (0..200).map(|at| start + ms(at)) {
            assert!(
                asking.is_over(at) || at <= asking.deadline(),
                "no deadline wakes the caller for it"
            );
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
