//! What a sleep costs: sampled, because asking for a thread's CPU time is a system call.

use core::time::Duration;

/// The first sleeps are all measured, later ones this seldom.
const FIRST: u32 = 4;
const EVERY: u32 = 16;
/// One sample's weight, and how far it can be from what was known.
const WEIGHT: f64 = 0.125;
const OUTLIER: f64 = 4.0;
/// Whatever is measured, nobody spins for longer.
const BOUND_MAX: Duration = Duration::from_micros(100);

/// What sleeps have cost this thread.
#[derive(Debug, Default)]
pub struct SleepCost {
    sleeps: u32,
    mean_ns: Option<f64>,
}

impl SleepCost {
    /// Whether the sleep that begins is to be measured.
    #[inline]
    pub fn samples_next(&mut self) -> bool {
        self.sleeps = self.sleeps.wrapping_add(1);
        self.sleeps <= FIRST || self.sleeps.is_multiple_of(EVERY)
    }

    /// So much CPU time went into going to sleep and coming back.
    #[inline]
    pub fn sampled(&mut self, cpu: Duration) {
        let sample = cpu.as_nanos() as f64;
        let mean = self.mean_ns.unwrap_or(sample);
        let sample = sample.clamp(mean / OUTLIER, mean * OUTLIER);
        self.mean_ns = Some(mean + (sample - mean) * WEIGHT);
    }

    /// Zero while nothing is known.
    #[must_use]
    #[inline]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_ns.unwrap_or_default() as u64)
    }

    /// The ski-rental bound: who gives up after as long as a sleep costs has at worst paid twice.
    #[must_use]
    #[inline]
    pub fn bound(&self) -> Duration {
        self.mean().min(BOUND_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_at_first_and_then_now_and_then() {
        let mut cost = SleepCost::default();
        let sampled = (0..1600).filter(|_| cost.samples_next()).count();
        assert_eq!(sampled, 104);
        assert_eq!(cost.bound(), Duration::ZERO, "nobody spins before a sleep's cost is known");
    }

    #[test]
    fn it_follows_the_machine_but_not_an_outlier() {
        let mut cost = SleepCost::default();
        cost.sampled(Duration::from_micros(10));
        cost.sampled(Duration::from_millis(50));
        assert!(cost.mean() < Duration::from_micros(14), "{:?}", cost.mean());
        (0..100).for_each(|_| cost.sampled(Duration::from_micros(60)));
        assert!(cost.mean() > Duration::from_micros(59), "{:?}", cost.mean());
        assert_eq!(cost.bound(), cost.mean());
        (0..100).for_each(|_| cost.sampled(Duration::from_secs(1)));
        assert_eq!(cost.bound(), BOUND_MAX);
    }
}
