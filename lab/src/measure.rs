//! One measurement, of the floor or of the product, and statistics over rounds of them.

use crate::floor::FloorResult;
use serde::{Deserialize, Serialize};

/// What a run measured. Figures that a program does not report are absent.
/// So are, in committed results, those that no page quotes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measure {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) latency_us_mean: f64,
    pub(crate) latency_us_p50: f64,
    pub(crate) latency_us_p99: f64,
    pub(crate) host_cpu_us_per_io: Option<f64>,
    pub(crate) target_cpu_us_per_io: Option<f64>,
    pub(crate) requests_per_caravan: Option<f64>,
    pub(crate) target_requests_per_caravan: Option<f64>,
    pub(crate) bytes_per_send: Option<f64>,
    pub(crate) target_bytes_per_send: Option<f64>,
    pub(crate) syscalls_per_io: Option<f64>,
    pub(crate) context_switches_per_io: Option<f64>,
    /// The host's voluntary ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_wake_ups_per_io: Option<f64>,
    /// After the depth has changed, until the IOPS have followed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settle_ms: Option<f64>,
    /// Jain's index over the lanes' throughput: 1 when all have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fairness: Option<f64>,
    /// Resident memory that the target has more of under load than before, in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target_kib: Option<f64>,
    /// The load beside the measured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<Beside>,
    /// Data over what Ethernet can carry on shaped links, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_use: Option<f64>,
    /// Of the CPU time, the kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_share: Option<f64>,
    /// The share of the time that each core of the machine was busy, with whatever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cores_busy: Vec<f64>,
    /// CPU time on this machine that was neither the run's nor idle, in cores: disturbance.
    pub(crate) foreign_cores: f64,
}

/// What the load beside the measured one had; CPU, calls and caravans of a run cover both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) latency_us_mean: f64,
    pub(crate) latency_us_p99: f64,
}

impl Measure {
    /// Of both loads.
    pub(crate) fn bytes_per_second_total(&self) -> f64 {
        self.bytes_per_second + self.beside.as_ref().map_or(0.0, |b| b.bytes_per_second)
    }

    /// CPU time of both ends per I/O, in microseconds.
    pub(crate) fn cpu_us_per_io(&self) -> Option<f64> {
        Some(self.host_cpu_us_per_io? + self.target_cpu_us_per_io?)
    }

    /// Of several that ran at the same time: their throughput together, latencies by their shares of it.
    pub(crate) fn together(parts: &[Self]) -> Self {
        if let [one] = parts {
            return one.clone();
        }
        let iops: f64 = parts.iter().map(|part| part.iops).sum();
        let mean = |f: fn(&Self) -> f64| {
            parts.iter().map(|part| f(part) * part.iops).sum::<f64>() / iops.max(f64::MIN_POSITIVE)
        };
        let cost = |f: fn(&Self) -> Option<f64>| {
            let each: Option<f64> = parts.iter().map(|part| Some(f(part)? * part.iops)).sum();
            each.map(|sum| sum / iops.max(f64::MIN_POSITIVE))
        };
        let most = |f: fn(&Self) -> f64| parts.iter().map(f).fold(0.0, f64::max);
        Self {
            iops,
            bytes_per_second: parts.iter().map(|part| part.bytes_per_second).sum(),
            latency_us_mean: mean(|part| part.latency_us_mean),
            latency_us_p50: mean(|part| part.latency_us_p50),
            latency_us_p99: most(|part| part.latency_us_p99),
            host_cpu_us_per_io: cost(|part| part.host_cpu_us_per_io),
            target_cpu_us_per_io: cost(|part| part.target_cpu_us_per_io),
            ..Self::default()
        }
    }

    /// The median of each figure over `runs`.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let of = |f: fn(&Self) -> f64| median(runs.iter().map(f)).unwrap_or_default();
        let opt = |f: fn(&Self) -> Option<f64>| median(runs.iter().filter_map(f));
        Self {
            iops: of(|m| m.iops),
            bytes_per_second: of(|m| m.bytes_per_second),
            latency_us_mean: of(|m| m.latency_us_mean),
            latency_us_p50: of(|m| m.latency_us_p50),
            latency_us_p99: of(|m| m.latency_us_p99),
            host_cpu_us_per_io: opt(|m| m.host_cpu_us_per_io),
            target_cpu_us_per_io: opt(|m| m.target_cpu_us_per_io),
            requests_per_caravan: opt(|m| m.requests_per_caravan),
            target_requests_per_caravan: opt(|m| m.target_requests_per_caravan),
            bytes_per_send: opt(|m| m.bytes_per_send),
            target_bytes_per_send: opt(|m| m.target_bytes_per_send),
            syscalls_per_io: opt(|m| m.syscalls_per_io),
            context_switches_per_io: opt(|m| m.context_switches_per_io),
            host_wake_ups_per_io: opt(|m| m.host_wake_ups_per_io),
            settle_ms: opt(|m| m.settle_ms),
            fairness: opt(|m| m.fairness),
            target_kib: opt(|m| m.target_kib),
            beside: Beside::median(runs.iter().filter_map(|m| m.beside.as_ref())),
            link_use: opt(|m| m.link_use),
            kernel_share: opt(|m| m.kernel_share),
            cores_busy: cores(runs),
            foreign_cores: of(|m| m.foreign_cores),
        }
    }
}

/// Each core's median.
fn cores(runs: &[Measure]) -> Vec<f64> {
    let count = runs.iter().map(|m| m.cores_busy.len()).max().unwrap_or(0);
    let of = |core: usize| median(runs.iter().filter_map(|m| m.cores_busy.get(core).copied()));
    (0..count).filter_map(of).collect()
}

impl Beside {
    fn median<'a>(runs: impl Iterator<Item = &'a Self> + Clone) -> Option<Self> {
        let of = |f: fn(&Self) -> f64| median(runs.clone().map(f));
        Some(Self {
            iops: of(|b| b.iops)?,
            bytes_per_second: of(|b| b.bytes_per_second)?,
            latency_us_mean: of(|b| b.latency_us_mean)?,
            latency_us_p99: of(|b| b.latency_us_p99)?,
        })
    }
}

impl From<&FloorResult> for Measure {
    fn from(r: &FloorResult) -> Self {
        let per_io = |seconds: f64| Some(seconds * 1e6 / (r.iops * r.seconds).max(1.0));
        Self {
            iops: r.iops,
            bytes_per_second: r.bytes_per_second,
            latency_us_mean: r.latency_us.mean,
            latency_us_p50: r.latency_us.p50,
            latency_us_p99: r.latency_us.p99,
            host_cpu_us_per_io: per_io(r.host_cpu_seconds),
            target_cpu_us_per_io: per_io(r.target_cpu_seconds),
            requests_per_caravan: Some(r.requests_per_send),
            target_requests_per_caravan: Some(r.answers_per_send),
            bytes_per_send: Some(r.bytes_per_send),
            target_bytes_per_send: Some(r.target_bytes_per_send),
            syscalls_per_io: Some(r.syscalls_per_io),
            context_switches_per_io: Some(r.context_switches_per_io),
            host_wake_ups_per_io: None,
            settle_ms: None,
            fairness: None,
            target_kib: None,
            beside: None,
            link_use: None,
            kernel_share: None,
            cores_busy: Vec::new(),
            foreign_cores: 0.0,
        }
    }
}

/// Jain's index: 1 when all are the same, 1/n when one has everything. `None` of nothing.
pub(crate) fn fairness(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        (count, sum, squares) = (count + 1.0, sum + value, squares + value * value);
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

/// The median; the mean of the middle two for an even count, `None` of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// How often an interval for a median may miss it.
const DOUBT: f64 = 0.1;

/// Between which of these values the median of what they are a sample of lies, whatever its distribution: nine times in
/// ten or more. `None` when there are too few to say so (fewer than five).
pub(crate) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // Each value is below the median as often as above it: the chance that at most `left` are.
    let mut ways = 1.0;
    let mut chance = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut left = None;
    for below in 0..count / 2 {
        if 2.0 * chance > DOUBT {
            break;
        }
        left = Some(below);
        ways *= (count - below) as f64 / (below + 1) as f64;
        chance += ways * 0.5_f64.powi(i32::try_from(count).ok()?);
    }
    left.map(|left| (values[left], values[count - 1 - left]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let of = |count: u32| interval(&(1..=count).map(f64::from).collect::<Vec<_>>());
        assert_eq!(of(4), None, "all four are on one side once in eight times");
        assert_eq!(of(5), Some((1.0, 5.0)));
        assert_eq!(of(7), Some((1.0, 7.0)));
        assert_eq!(of(8), Some((2.0, 7.0)));
        assert_eq!(of(20), Some((6.0, 15.0)));
        assert_eq!(interval(&[f64::NAN, 1.0, 2.0, 3.0, 4.0]), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([f64::NAN, 1.0]), Some(1.0));
    }

    #[test]
    fn what_runs_together_adds_up() {
        let part = |iops, latency_us_mean, latency_us_p99, cpu| Measure {
            iops,
            latency_us_mean,
            latency_us_p99,
            host_cpu_us_per_io: Some(cpu),
            ..Measure::default()
        };
        let both = Measure::together(&[part(1.0, 10.0, 5.0, 8.0), part(3.0, 2.0, 3.0, 4.0)]);
        assert_eq!((both.iops, both.latency_us_mean, both.latency_us_p99), (4.0, 4.0, 5.0));
        assert_eq!((both.host_cpu_us_per_io, both.target_cpu_us_per_io), (Some(5.0), None));
    }

    #[test]
    fn fairness_is_from_one_of_all_to_all_alike() {
        assert_eq!(fairness([]), None);
        assert_eq!(fairness([0.0, 0.0]), None);
        assert_eq!(fairness([3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(fairness([5.0, 0.0, 0.0, 0.0]), Some(0.25));
    }

    #[test]
    fn absent_figures_stay_absent() {
        let runs = [Measure { iops: 2.0, ..Measure::default() }, Measure::default()];
        let m = Measure::median(&runs);
        assert_eq!(m.iops, 1.0);
        assert_eq!(m.cpu_us_per_io(), None);
    }
}
