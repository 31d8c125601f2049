//! Latencies for the live line: counted by a lane, read concurrently by the main thread, to about 6 %.

use std::sync::atomic::{AtomicU32, Ordering};

/// Buckets of each power of two.
const PARTS: usize = 1 << PARTS_SHIFT;
const PARTS_SHIFT: u32 = 4;
/// Up to 2^40 ns, which is a quarter of an hour.
const BUCKETS: usize = (41 - PARTS_SHIFT as usize) * PARTS;

/// Request counts by latency bucket; one writer.
pub(super) struct LatencyTally([AtomicU32; BUCKETS]);

impl Default for LatencyTally {
    fn default() -> LatencyTally {
        LatencyTally([const { AtomicU32::new(0) }; BUCKETS])
    }
}

impl LatencyTally {
    /// Counts a latency. With one writer no atomic increment is needed.
    #[inline]
    pub(super) fn count(&self, ns: u64) {
        let bucket = &self.0[bucket(ns)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Copies of tallies at one time. Counters wrap; differences are right.
#[derive(Clone, Debug)]
pub(super) struct TallyCounts(Box<[u32]>);

impl Default for TallyCounts {
    fn default() -> TallyCounts {
        TallyCounts(vec![0; BUCKETS].into())
    }
}

impl TallyCounts {
    /// Adds the counts of `tally`.
    pub(super) fn add(&mut self, tally: &LatencyTally) {
        for (sum, bucket) in self.0.iter_mut().zip(&tally.0) {
            *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
        }
    }

    /// Returns the 99th percentile of the latencies counted since `before`, in nanoseconds; 0 if there were none.
    #[must_use]
    pub(super) fn p99_ns(&self, before: &TallyCounts) -> u64 {
        let since: Vec<u32> =
            self.0.iter().zip(&before.0).map(|(now, then)| now.wrapping_sub(*then)).collect();
        let total: u64 = since.iter().map(|&count| u64::from(count)).sum();
        let mut left = (total * 99).div_ceil(100);
        for (bucket, count) in since.into_iter().enumerate() {
            if left > 0 && left <= u64::from(count) {
                return middle(bucket);
            }
            left = left.saturating_sub(count.into());
        }
        0
    }
}

fn bucket(ns: u64) -> usize {
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - PARTS_SHIFT;
    let part = (ns >> shift) as usize - PARTS;
    ((shift as usize + 1) * PARTS + part).min(BUCKETS - 1)
}

/// Returns the middle of a bucket's latencies.
fn middle(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let shift = bucket / PARTS - 1;
    (((PARTS + bucket % PARTS) << shift) + (1 << shift >> 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (0..100).chain((7..40).flat_map(|octave| (1 << octave) - 2..(1 << octave) + 2)) {
            let bucket = bucket(ns);
            assert!(bucket >= last, "{ns}");
            assert!(
                middle(bucket).abs_diff(ns) * 32 <= ns,
                "{ns} is in the bucket of {}",
                middle(bucket)
            );
            last = bucket;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_99th_percentile_is_that_since_the_last_sample() {
        let (tally, mut before, mut now) =
            (LatencyTally::default(), TallyCounts::default(), TallyCounts::default());
        assert_eq!(now.p99_ns(&before), 0);
        (0..1000).for_each(|_| tally.count(5_000_000));
        before.add(&tally);
        (0..99).for_each(|_| tally.count(1000));
        tally.count(1_000_000);
        now.add(&tally);
        assert!(now.p99_ns(&before).abs_diff(1000) < 40);
        tally.count(1_000_000);
        let mut later = TallyCounts::default();
        later.add(&tally);
        assert!(later.p99_ns(&before).abs_diff(1_000_000) < 40_000);
    }
}
