//! Histograms of latencies: buckets that double, from 4 us to 4 s.

use serde::{Deserialize, Serialize};

/// Number of buckets; the last one has no upper bound.
pub const BUCKETS: usize = 22;
/// Upper bound of the first bucket in nanoseconds.
const FIRST_NS: u64 = 4000;

/// Returns the bucket of a latency.
#[inline]
pub(super) fn bucket(ns: u64) -> usize {
    let doublings = u64::BITS - (ns.saturating_sub(1) / FIRST_NS).leading_zeros();
    (doublings as usize).min(BUCKETS - 1)
}

/// Returns the upper bounds of all buckets but the last, in seconds: 4 us x 2^n.
#[must_use]
#[inline]
pub fn bounds() -> [f64; BUCKETS - 1] {
    std::array::from_fn(|bucket| (FIRST_NS << bucket) as f64 / 1e9)
}

/// Histogram of request latencies. It only grows.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Requests by bucket (see [`bounds`]); empty ones at the end are left out.
    pub buckets: Vec<u64>,
    /// Sum of all latencies in seconds.
    pub sum_seconds: f64,
}

impl Latency {
    /// Number of requests.
    #[must_use]
    #[inline]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the growth since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Latency) -> Latency {
        let before = |at: usize| earlier.buckets.get(at).copied().unwrap_or_default();
        let buckets = self.buckets.iter().enumerate();
        Latency {
            buckets: buckets.map(|(at, count)| count.saturating_sub(before(at))).collect(),
            sum_seconds: (self.sum_seconds - earlier.sum_seconds).max(0.0),
        }
    }

    /// Returns the latency in seconds that a `share` of the requests (0 to 1) did not exceed. It is as exact as the
    /// buckets, and interpolated inside of one. `None` without requests.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let (bounds, count) = (bounds(), self.count());
        let wanted = share.clamp(0.0, 1.0) * count as f64;
        let mut below = 0;
        for (at, &inside) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let lower = if at == 0 { 0.0 } else { bounds[at - 1] };
            let Some(upper) = bounds.get(at) else { return Some(lower) };
            if (below + inside) as f64 >= wanted {
                let part = (wanted - below as f64).max(0.0) / inside as f64;
                return Some(lower + (upper - lower) * part);
            }
            below += inside;
        }
        None
    }
}

impl std::ops::AddAssign<&Latency> for Latency {
    fn add_assign(&mut self, other: &Latency) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
        self.sum_seconds += other.sum_seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::LatencyCells;
    use super::*;

    #[test]
    fn a_latency_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        for (at, bound) in bounds().into_iter().enumerate() {
            let ns = (bound * 1e9).round() as u64;
            assert_eq!((bucket(ns), bucket(ns + 1)), (at, at + 1), "{ns} ns");
        }
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 0, BUCKETS - 1));
        assert_eq!((bounds()[0], bounds()[BUCKETS - 2]), (4e-6, 4.194304));
    }

    #[test]
    fn quantiles_are_between_the_bounds_of_their_bucket() {
        let cells = LatencyCells::default();
        for ns in [3000].repeat(50).into_iter().chain([20_000].repeat(49)).chain([9_000_000]) {
            cells.count(ns);
        }
        let latency = Latency::from(&cells);
        assert_eq!(latency.count(), 100);
        assert_eq!(latency.quantile(0.5), Some(4e-6));
        let p99 = latency.quantile(0.99).unwrap();
        assert!((16e-6..=32e-6).contains(&p99), "{p99}");
        let p999 = latency.quantile(0.999).unwrap();
        assert!((8.192e-3..=16.384e-3).contains(&p999), "{p999}");
        assert_eq!(latency.since(&latency).quantile(0.5), None);
        assert_eq!(Latency::default().quantile(0.5), None);
        let mut sum = Latency::default();
        sum += &latency;
        assert_eq!(sum.since(&Latency::default()), latency);
    }
}
