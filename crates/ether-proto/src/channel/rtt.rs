//! Round-trip time and timeouts (RFC 6298, on numbers that are used once).

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Round-trip time before the first sample.
const INITIAL: Duration = Duration::from_millis(5);
/// Shortest timeout.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Limit to which late peers may raise the shortest timeout.
const FLOOR_MAX: Duration = Duration::from_millis(16);
/// Longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_millis(200);
/// Period of the minimum, which covers the last one to two of these.
const MINIMUM_AGE: Duration = Duration::from_secs(5);

pub(super) struct Rtt {
    smoothed: Option<Duration>,
    deviation: Duration,
    /// Minimum of the present and of the previous period.
    minima: [Duration; 2],
    age_from: Instant,
    floor: Duration,
}

impl Rtt {
    pub(super) fn new(now: Instant) -> Self {
        Rtt {
            smoothed: None,
            deviation: Duration::ZERO,
            minima: [Duration::MAX; 2],
            age_from: now,
            floor: TIMEOUT_MIN,
        }
    }

    pub(super) fn sample(&mut self, now: Instant, sample: Duration) {
        if now.since(self.age_from) >= MINIMUM_AGE {
            self.minima = [Duration::MAX, self.minima[0]];
            self.age_from = now;
        }
        self.minima[0] = self.minima[0].min(sample);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.deviation = sample / 2;
            return;
        };
        self.deviation = (self.deviation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// Shortest round trip of the last seconds.
    pub(super) fn minimum(&self) -> Duration {
        let minimum = self.minima[0].min(self.minima[1]);
        if minimum == Duration::MAX { self.smoothed() } else { minimum }
    }

    /// Returns the timeout after `repetitions` consecutive ones.
    pub(super) fn timeout(&self, repetitions: u32) -> Duration {
        let once = match self.smoothed {
            Some(smoothed) => smoothed + self.deviation * 4,
            None => INITIAL,
        };
        (once.clamp(self.floor, TIMEOUT_MAX) * (1 << repetitions.min(8))).min(TIMEOUT_MAX)
    }

    /// Raises the shortest timeout: one expired although its frame arrived.
    pub(super) fn raise_floor(&mut self) {
        self.floor = (self.floor * 2).min(FLOOR_MAX);
    }

    /// Lowers the shortest timeout: one expired for a lost frame.
    pub(super) fn lower_floor(&mut self) {
        self.floor = (self.floor / 2).max(TIMEOUT_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_follow_the_round_trip_and_double() {
        let mut rtt = Rtt::new(Instant(0));
        let ms = Duration::from_millis;
        (0..100).for_each(|_| rtt.sample(Instant(0), Duration::from_micros(50)));
        assert_eq!((rtt.timeout(0), rtt.timeout(3), rtt.timeout(60)), (ms(1), ms(8), ms(200)));
        rtt.raise_floor();
        assert_eq!(rtt.timeout(0), ms(2));
        rtt.lower_floor();
        assert_eq!(rtt.timeout(0), ms(1));
        (0..100).for_each(|_| rtt.sample(Instant(0), ms(10)));
        assert!((ms(10)..ms(11)).contains(&rtt.timeout(0)));
        assert_eq!(rtt.minimum(), Duration::from_micros(50));
        (1..3).for_each(|age| rtt.sample(Instant(0) + MINIMUM_AGE * age, ms(10)));
        assert_eq!(rtt.minimum(), ms(10));
    }
}
