//! Open loop: requests are due at fixed times, independent of earlier completions.

use roadtrain_proto::time::Instant;

/// Arrivals at even distances.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    start_ns: f64,
    step_ns: f64,
    sent: u64,
    next: Instant,
}

impl Schedule {
    /// Creates one lane's part of `rate` requests a second; the lanes take turns.
    #[must_use]
    pub(super) fn new(rate: f64, lane: u32, lanes: u32) -> Schedule {
        let step_ns = 1e9 * f64::from(lanes) / rate;
        let start_ns = step_ns * f64::from(lane) / f64::from(lanes);
        Schedule { start_ns, step_ns, sent: 0, next: Instant(u64::MAX) }
    }

    /// Starts the schedule at `now`.
    pub(super) fn start(&mut self, now: Instant) {
        self.start_ns += now.0 as f64;
        self.set_next();
    }

    /// Returns the due time of the next request.
    #[inline]
    #[must_use]
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Records that the next request was sent.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.sent += 1;
        self.set_next();
    }

    /// Returns the number of requests that are due and were not sent.
    #[must_use]
    pub(super) fn due(&self, now: Instant) -> u64 {
        if self.next > now {
            return 0;
        }
        1 + (now.since(self.next).as_nanos() as f64 / self.step_ns) as u64
    }

    fn set_next(&mut self) {
        // Multiplied, not summed up: no drift.
        self.next = Instant((self.start_ns + self.step_ns * self.sent as f64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_take_turns() {
        let next = |lane| {
            let mut schedule = Schedule::new(1e6, lane, 2);
            schedule.start(Instant(10_000));
            let first = schedule.next().0;
            schedule.advance();
            (first, schedule.next().0)
        };
        assert_eq!(next(0), (10_000, 12_000));
        assert_eq!(next(1), (11_000, 13_000));
    }

    #[test]
    fn does_not_drift() {
        let mut schedule = Schedule::new(3.0, 0, 1);
        schedule.start(Instant(0));
        (0..3_000_000).for_each(|_| schedule.advance());
        assert_eq!(schedule.next(), Instant(1_000_000_000_000_000));
    }

    #[test]
    fn late_requests_are_counted() {
        let mut schedule = Schedule::new(1000.0, 0, 1);
        schedule.start(Instant(0));
        assert_eq!(schedule.due(Instant(0)), 1);
        assert_eq!(schedule.due(Instant(3_500_000)), 4);
        (0..4).for_each(|_| schedule.advance());
        assert_eq!(schedule.due(Instant(3_500_000)), 0);
    }
}
