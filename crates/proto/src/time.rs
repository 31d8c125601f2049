//! Time as the core sees it: nanoseconds since an arbitrary origin, always handed in.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment, in nanoseconds since an arbitrary origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// Time since `earlier`, zero if that is later.
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

/// How long somebody is waited for, all in all. What passes while nobody waits does not count: the time in which we
/// compute what the other end needs is not the other end's.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    left: Duration,
    waits_since: Option<Instant>,
}

impl TimeLimit {
    /// So long; nobody waits yet.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        TimeLimit { left: limit, waits_since: None }
    }

    /// From now on somebody waits, if nobody has before.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// Nobody waits any more: something has come.
    #[inline]
    pub fn end(&mut self, now: Instant) {
        self.left = self.left(now);
        self.waits_since = None;
    }

    /// What is left of it.
    #[must_use]
    #[inline]
    pub fn left(&self, now: Instant) -> Duration {
        let waited = self.waits_since.map_or(Duration::ZERO, |since| now.since(since));
        self.left.saturating_sub(waited)
    }

    /// When it is over if nothing comes; `None` while nobody waits.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.waits_since? + self.left)
    }

    /// Whether it was waited for so long.
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
        limit.begin(at(5)); // it waits already
        limit.end(at(6));
        assert!(limit.deadline().is_none() && !limit.is_over(at(1000)), "nobody waits");
        limit.begin(at(1000));
        assert_eq!((limit.deadline(), limit.left(at(1001))), (Some(at(1004)), at(3) - at(0)));
        assert!(!limit.is_over(at(1003)) && limit.is_over(at(1004)));
        limit.end(at(1005));
        assert!(limit.is_over(at(1005)), "it stays over");
    }
}
