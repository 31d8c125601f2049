//! Writer for families of metrics in Prometheus' formats.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use roadtrain_reactor::metrics::{Latency, bounds};
use std::collections::HashMap;
use std::fmt;

type NoLabels = [(&'static str, &'static str); 0];
const NO_EXEMPLAR: Option<&Exemplar<NoLabels, u64>> = None;
const NO_EXEMPLARS: Option<&HashMap<usize, Exemplar<NoLabels, f64>>> = None;

/// Writes families of metrics: a name without its suffix, a help text, and a value for each set of labels.
pub(super) struct Out<'a>(pub(super) DescriptorEncoder<'a>);

impl Out<'_> {
    /// Writes counters; their names end in `_total`.
    pub(super) fn counters<V: EncodeCounterValue, L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_counter(&value, NO_EXEMPLAR)?;
        }
        Ok(())
    }

    /// Writes gauges.
    pub(super) fn gauges<V: EncodeGaugeValue, L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes histograms of latencies: all buckets, or every second one from the third on.
    pub(super) fn latencies<'a, L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        buckets: Buckets,
        rows: impl IntoIterator<Item = (L, &'a Latency)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, latency) in rows {
            let buckets = buckets.of(latency);
            let (sum, count) = (latency.sum_seconds, latency.count());
            family.encode_family(&labels)?.encode_histogram(sum, count, &buckets, NO_EXEMPLARS)?;
        }
        Ok(())
    }

    /// Writes a histogram of counts.
    pub(super) fn sizes<L: EncodeLabelSet>(
        &mut self,
        (name, help): (&str, &str),
        rows: impl IntoIterator<Item = (L, (f64, Vec<(f64, u64)>))>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, (sum, buckets)) in rows {
            let count = buckets.iter().map(|(_, count)| count).sum();
            family.encode_family(&labels)?.encode_histogram(sum, count, &buckets, NO_EXEMPLARS)?;
        }
        Ok(())
    }
}

/// Choice of the latency buckets to write.
#[derive(Clone, Copy)]
pub(super) enum Buckets {
    /// 4 us x 2^n.
    Fine,
    /// 16 us x 4^n.
    Coarse,
}

impl Buckets {
    /// Returns upper bounds and counts of the buckets.
    fn of(self, latency: &Latency) -> Vec<(f64, u64)> {
        let bounds = bounds();
        let count = |at: usize| latency.buckets.get(at).copied().unwrap_or_default();
        let last = (f64::INFINITY, count(bounds.len()));
        let all = bounds.iter().enumerate().map(|(at, bound)| (*bound, count(at)));
        match self {
            Buckets::Fine => all.chain([last]).collect(),
            Buckets::Coarse => {
                let mut sum = 0;
                let wide = all.enumerate().filter_map(|(at, (bound, count))| {
                    sum += count;
                    (at >= 2 && at % 2 == 0).then(|| (bound, std::mem::take(&mut sum)))
                });
                wide.chain([last]).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_in_one_bucket_of_either_kind() {
        let latency = Latency { buckets: (1..=22).collect(), sum_seconds: 1.0 };
        let sum = |kind: Buckets| kind.of(&latency).iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!((sum(Buckets::Fine), sum(Buckets::Coarse)), (latency.count(), latency.count()));
        let coarse: Vec<f64> =
            Buckets::Coarse.of(&latency).iter().map(|(bound, _)| *bound).collect();
        assert_eq!(coarse.len(), 11);
        assert_eq!(coarse[..3], [16e-6, 64e-6, 256e-6]);
        assert_eq!(coarse[9..], [4.194304, f64::INFINITY]);
        assert_eq!(Buckets::Coarse.of(&latency)[0].1, 1 + 2 + 3);
    }
}
