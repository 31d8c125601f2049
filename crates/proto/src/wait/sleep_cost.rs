//! CPU time of a sleep and its wake-up: sampled, because reading a thread's CPU time is a system call.

use core::time::Duration;

/// Number of first sleeps that are all measured, and the interval of later ones.
const FIRST: u32 = 4;
const EVERY: u32 = 16;
/// Weight of one sample, and its largest factor from the mean.
const WEIGHT: f64 = 0.125;
const OUTLIER: f64 = 4.0;
/// Assumed cost until the first sample.
const GUESS: Duration = Duration::from_micros(10);

/// CPU time of this thread's sleeps.
#[derive(Clone, Debug, Default)]
pub(super) struct SleepCost {
    sleeps: u32,
    mean_ns: Option<f64>,
}

impl SleepCost {
    /// True if the sleep that begins has to be measured.
    #[inline]
    pub(super) fn samples_next(&mut self) -> bool {
        self.sleeps = self.sleeps.wrapping_add(1);
        self.sleeps <= FIRST || self.sleeps.is_multiple_of(EVERY)
    }

    /// Records a sample of the CPU time.
    #[inline]
    pub(super) fn sampled(&mut self, cpu: Duration) {
        let sample = cpu.as_nanos() as f64;
        let mean = self.mean_ns.unwrap_or(sample);
        let sample = sample.clamp(mean / OUTLIER, mean * OUTLIER);
        self.mean_ns = Some(mean + (sample - mean) * WEIGHT);
    }

    /// Returns the mean of recent samples, if there were any.
    #[must_use]
    #[inline]
    pub(super) fn measured(&self) -> Option<Duration> {
        self.mean_ns.map(|mean| Duration::from_nanos(mean as u64))
    }

    /// Returns the mean, or the assumed cost.
    #[must_use]
    #[inline]
    pub(super) fn mean(&self) -> Duration {
        self.measured().unwrap_or(GUESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sleeps_are_measured_and_then_one_in_sixteen() {
        let mut cost = SleepCost::default();
        let sampled = (0..1600).filter(|_| cost.samples_next()).count();
        assert_eq!((sampled, cost.mean()), (104, GUESS));
    }

    #[test]
    fn the_mean_follows_the_machine_but_not_an_outlier() {
        let mut cost = SleepCost::default();
        cost.sampled(Duration::from_micros(12));
        cost.sampled(Duration::from_millis(50));
        assert!(cost.mean() < Duration::from_micros(17), "{:?}", cost.mean());
        (0..100).for_each(|_| cost.sampled(Duration::from_micros(60)));
        assert!(cost.mean() > Duration::from_micros(59), "{:?}", cost.mean());
    }
}
