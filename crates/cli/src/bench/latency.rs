//! Latency histogram of requests.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Largest latency that is distinguished.
const NS_MAX: u64 = 600_000_000_000;

/// Latencies, to three digits.
#[derive(Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// Creates an empty histogram with all the memory that it needs.
    #[must_use]
    pub(super) fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, NS_MAX, 3);
        Latencies(histogram.expect("constant bounds that the histogram accepts"))
    }

    /// Adds a latency.
    #[inline]
    pub(super) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all of `other`.
    pub(super) fn add(&mut self, other: &Latencies) {
        // Equal bounds: cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Returns the number of latencies.
    #[must_use]
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Summarises in microseconds.
    #[must_use]
    pub(super) fn summary(&self) -> LatencySummary {
        let us = |ns: u64| ns as f64 / 1e3;
        if self.0.is_empty() {
            return LatencySummary::default();
        }
        let at = |quantile: f64| us(self.0.value_at_quantile(quantile));
        LatencySummary {
            min_us: us(self.0.min()),
            mean_us: self.0.mean() / 1e3,
            stddev_us: self.0.stdev() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: us(self.0.max()),
        }
    }
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct LatencySummary {
    pub min_us: f64,
    pub mean_us: f64,
    pub stddev_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut latencies = Latencies::new();
        (1..=10_000).for_each(|us| latencies.record(us * 1000));
        let s = latencies.summary();
        let near = |a: f64, b: f64| (a - b).abs() / b < 2e-3;
        assert!(
            near(s.p50_us, 5000.0) && near(s.p99_us, 9900.0) && near(s.p999_us, 9990.0),
            "{s:?}"
        );
        assert!(
            near(s.mean_us, 5000.5) && near(s.max_us, 10_000.0) && near(s.min_us, 1.0),
            "{s:?}"
        );
    }

    #[test]
    fn extremes_do_not_fail() {
        let mut latencies = Latencies::new();
        latencies.record(0);
        latencies.record(u64::MAX);
        assert_eq!(latencies.count(), 2);
        let mut sum = Latencies::new();
        sum.add(&latencies);
        assert_eq!(sum.count(), 2);
        assert_eq!(Latencies::new().summary().p99_us, 0.0);
    }
}
