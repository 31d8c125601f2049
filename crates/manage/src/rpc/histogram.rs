//! Latencies in the format of SPDK's histograms: ranges that double, each with `2^granularity` buckets.

use super::error::{Rpc, RpcError};
use base64ct::{Base64, Encoding};
use roadtrain_reactor::metrics::{Latency, bounds};
use serde_json::{Value, json};

/// Most buckets of a range, as a power of two: 1 MiB for all ranges.
const GRANULARITY_MAX: u8 = 11;
/// SPDK's default granularity.
const GRANULARITY: u8 = 7;
const MIN_NS: u64 = 1000;
const MAX_NS: u64 = 120_000_000_000;

/// Operations that a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistogramOperations {
    Reads,
    Writes,
    Both,
}

/// Content and bucket layout of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistogramShape {
    operations: HistogramOperations,
    granularity: u8,
    min_range: u32,
    max_range: u32,
}

impl HistogramShape {
    /// Checks the parameters of `bdev_enable_histogram`; `None` is SPDK's default.
    pub(super) fn new(
        operations: HistogramOperations,
        granularity: Option<u8>,
        (min_ns, max_ns): (Option<u64>, Option<u64>),
    ) -> Rpc<HistogramShape> {
        let granularity = granularity.unwrap_or(GRANULARITY);
        if granularity > GRANULARITY_MAX {
            return Err(RpcError::invalid(format!("granularity is at most {GRANULARITY_MAX}")));
        }
        let (min_ns, max_ns) = (min_ns.unwrap_or(MIN_NS), max_ns.unwrap_or(MAX_NS));
        if min_ns >= max_ns {
            return Err(RpcError::invalid("min_nsec is below max_nsec"));
        }
        let [min_range, max_range] = [min_ns, max_ns].map(|ns| range(ns, granularity));
        Ok(HistogramShape { operations, granularity, min_range, max_range })
    }

    /// Returns the latencies of reads and writes in SPDK's form, each at the upper bound of the bucket in which it was
    /// counted.
    pub(super) fn show(&self, [reads, writes]: &[Latency; 2], tick_rate: u64) -> Value {
        let per_range = 1_usize << self.granularity;
        let ranges = (self.max_range - self.min_range + 1) as usize;
        let mut counts = vec![0_u64; ranges * per_range];
        let wanted: &[&Latency] = match self.operations {
            HistogramOperations::Reads => &[reads],
            HistogramOperations::Writes => &[writes],
            HistogramOperations::Both => &[reads, writes],
        };
        for latency in wanted {
            for (bucket, count) in latency.buckets.iter().enumerate() {
                counts[self.place(upper_ns(bucket))] += count;
            }
        }
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        json!({
            "histogram": Base64::encode_string(&bytes), "granularity": self.granularity,
            "min_range": self.min_range, "max_range": self.max_range, "tsc_rate": tick_rate,
        })
    }

    /// Returns the bucket of a time in nanoseconds, which are ticks.
    fn place(&self, ns: u64) -> usize {
        let (range, per_range) = (range(ns, self.granularity), 1_usize << self.granularity);
        let of_range = match range {
            range if range < self.min_range => return 0,
            range if range > self.max_range => {
                return (self.max_range - self.min_range + 1) as usize * per_range - 1;
            }
            range => (range - self.min_range) as usize * per_range,
        };
        of_range + ((ns >> range.saturating_sub(1)) as usize & (per_range - 1))
    }
}

/// Returns the range of a time.
fn range(ns: u64, granularity: u8) -> u32 {
    (u64::BITS - ns.leading_zeros()).saturating_sub(granularity.into())
}

/// Returns the longest latency that a bucket counts; the last bucket has no bound.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4 us to 4 s")]
fn upper_ns(bucket: usize) -> u64 {
    bounds().get(bucket).map_or(u64::MAX, |seconds| (seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a histogram as SPDK's script does: counts with the bounds of their buckets in ticks.
    fn read(shown: &Value) -> Vec<(u64, u64, u64)> {
        let number = |name: &str| shown[name].as_u64().unwrap();
        let bytes = Base64::decode_vec(shown["histogram"].as_str().unwrap()).unwrap();
        let (granularity, min) = (number("granularity"), number("min_range"));
        let counts = bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()));
        let (mut lower, mut found) = (0, Vec::new());
        for (at, count) in counts.enumerate() {
            let (range, index) = (at as u64 >> granularity, at as u64 & ((1 << granularity) - 1));
            let upper = match range + min {
                0 => index + 1,
                range => (1 << (range + granularity - 1)) + ((index + 1) << (range - 1)),
            };
            found.extend((count > 0).then_some((lower, upper, count)));
            lower = upper;
        }
        assert_eq!(bytes.len() as u64, (number("max_range") - min + 1) << (granularity + 3));
        found
    }

    #[test]
    fn latencies_are_in_the_buckets_that_spdks_clients_expect() {
        let reads = Latency { buckets: vec![3, 0, 5], sum_seconds: 1.0 };
        let writes = Latency { buckets: vec![0, 7], sum_seconds: 1.0 };
        let both = [reads, writes];
        let shown = |operations, granularity| {
            let shape = HistogramShape::new(operations, granularity, (None, None)).unwrap();
            read(&shape.show(&both, 1_000_000_000))
        };
        for (lower, upper, count) in shown(HistogramOperations::Both, None) {
            let ns = [(4000, 3), (8000, 7), (16000, 5)];
            let (ns, _) = ns.into_iter().find(|(_, of)| *of == count).unwrap();
            assert!((lower..upper).contains(&ns), "{lower} {upper} {count}");
        }
        assert_eq!(shown(HistogramOperations::Both, Some(0)).len(), 3);
        assert_eq!(shown(HistogramOperations::Reads, None).iter().map(|one| one.2).sum::<u64>(), 8);
        assert_eq!(
            shown(HistogramOperations::Writes, Some(11)).iter().map(|one| one.2).sum::<u64>(),
            7
        );
    }

    #[test]
    fn what_is_outside_counts_at_the_ends() {
        let mut buckets = vec![1; roadtrain_reactor::metrics::BUCKETS];
        buckets[0] = 2;
        let latency = Latency { buckets: buckets.clone(), sum_seconds: 1.0 };
        let shape =
            HistogramShape::new(HistogramOperations::Reads, Some(3), (Some(10_000), Some(100_000)))
                .unwrap();
        let found = read(&shape.show(&[latency, Latency::default()], 1_000_000_000));
        let all: u64 = found.iter().map(|(.., count)| count).sum();
        assert_eq!(all, buckets.iter().sum::<u64>());
        assert!(found[0].2 >= 2 && found.last().unwrap().2 > 10, "{found:?}");
        assert!(HistogramShape::new(HistogramOperations::Both, Some(12), (None, None)).is_err());
        assert!(HistogramShape::new(HistogramOperations::Both, None, (Some(5), Some(5))).is_err());
    }
}
