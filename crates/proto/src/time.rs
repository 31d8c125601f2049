//! Time of the protocol logic: nanoseconds since an arbitrary origin, always passed in by the caller.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since an arbitrary origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// Returns the time since `earlier`, zero if that is later.
    #[must_use]
    #[inline]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    #[inline]
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// Limit of the total time spent waiting for the peer. Time in which this end computes a reply does not count.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    left: Duration,
    waits_since: Option<Instant>,
}

impl TimeLimit {
    /// A limit whose clock is stopped.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        TimeLimit { left: limit, waits_since: None }
    }

    /// Starts the clock, unless it runs.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// Stops the clock: the peer has sent something.
    #[inline]
    pub fn end(&mut self, now: Instant) {
        self.left = self.left(now);
        self.waits_since = None;
    }

    /// Returns the remaining time.
    #[must_use]
    #[inline]
    pub fn left(&self, now: Instant) -> Duration {
        let waited = self.waits_since.map_or(Duration::ZERO, |since| now.since(since));
        self.left.saturating_sub(waited)
    }

    /// Returns the time at which the limit is reached; `None` while the clock is stopped.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.waits_since? + self.left)
    }

    /// True if the limit is reached.
    #[must_use]
    #[inline]
    pub fn is_over(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn only_the_time_of_waiting_is_limited() {
        let mut limit = TimeLimit::new(Duration::from_secs(10));
        assert_eq!(limit.deadline(), None);
        limit.begin(at(0));
        assert_eq!(limit.deadline(), Some(at(10)));
        limit.begin(at(5)); // the clock runs already
        limit.end(at(6));
        assert!(limit.deadline().is_none() && !limit.is_over(at(1000)), "the clock is stopped");
        limit.begin(at(1000));
        assert_eq!((limit.deadline(), limit.left(at(1001))), (Some(at(1004)), at(3) - at(0)));
        assert!(!limit.is_over(at(1003)) && limit.is_over(at(1004)));
        limit.end(at(1005));
        assert!(limit.is_over(at(1005)), "it stays over");
    }
}
