//! How long requests took.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time told apart from longer ones.
const NS_MAX: u64 = 600_000_000_000;

/// Latencies, to three digits.
#[derive(Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet. Allocates all it will ever need.
    #[must_use]
    pub(super) fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, NS_MAX, 3);
        Latencies(histogram.expect("constant bounds that the histogram accepts"))
    }

    /// Adds one.
    #[inline]
    pub(super) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all of `other`.
    pub(super) fn add(&mut self, other: &Latencies) {
        // Equal bounds: cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// How many.
    #[must_use]
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds.
    #[must_use]
    pub(super) fn summary(&self) -> LatencyUs {
        let us = |ns: u64| ns as f64 / 1e3;
        if self.0.is_empty() {
            return LatencyUs::default();
        }
        let at = |quantile: f64| us(self.0.value_at_quantile(quantile));
        LatencyUs {
            min: us(self.0.min()),
            mean: self.0.mean() / 1e3,
            stddev: self.0.stdev() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: us(self.0.max()),
        }
    }
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct LatencyUs {
    pub min: f64,
    pub mean: f64,
    pub stddev: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
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
        assert!(near(s.p50, 5000.0) && near(s.p99, 9900.0) && near(s.p999, 9990.0), "{s:?}");
        assert!(near(s.mean, 5000.5) && near(s.max, 10_000.0) && near(s.min, 1.0), "{s:?}");
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
        assert_eq!(Latencies::new().summary().p99, 0.0);
    }
}
