//! One measurement, of the floor or of the product, and statistics over rounds of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Figures of a run. Those that a program does not report are absent.
/// So are, in committed results, those that no page quotes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Voluntary context switches of the host.
    pub(crate) host_wake_ups_per_io: Option<f64>,
    /// Time that the server of a file was ready to run while others had its core, in microseconds.
    pub(crate) ready_us_per_io: Option<f64>,
    /// Time from a change of the depth until the IOPS have followed, in milliseconds.
    pub(crate) settle_ms: Option<f64>,
    /// Jain's index over the lanes' throughput: 1 when all have the same.
    pub(crate) fairness: Option<f64>,
    /// Resident memory of the target under load, above that before it, in KiB for each connection.
    pub(crate) target_kib: Option<f64>,
    /// The load that runs together with the measured one.
    pub(crate) beside: Option<SecondLoadMeasure>,
    /// Data over what Ethernet can carry on shaped links, as a share.
    pub(crate) link_use: Option<f64>,
    /// Share of the kernel in the CPU time.
    pub(crate) kernel_share: Option<f64>,
    /// Share of the time that each core of the machine was busy, with anything.
    pub(crate) cores_busy: Vec<f64>,
    /// CPU time on this machine that was neither the run's nor idle, in cores: disturbance.
    pub(crate) foreign_cores: f64,
    /// Usage of the machine by the parties of an application.
    pub(crate) usage: Option<MachineUsage>,
}

/// CPU time and context switches of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cpu {
    pub(crate) cores: f64,
    pub(crate) switches_per_second: f64,
}

/// Usage of the whole machine, and of the known processes on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MachineUsage {
    /// All processes and the threads of the kernel.
    pub(crate) machine: Cpu,
    /// The application, and its own server if it has one.
    pub(crate) application: Cpu,
    /// The processes that show the file.
    pub(crate) client: Cpu,
    /// The far end.
    pub(crate) server: Cpu,
}

impl MachineUsage {
    /// Cores used by unknown processes: the loop device's threads, and the kernel's others.
    pub(crate) fn rest_cores(&self) -> f64 {
        let known = self.application.cores + self.client.cores + self.server.cores;
        (self.machine.cores - known).max(0.0)
    }
}

/// Figures of the load that runs together with the measured one; CPU, calls and caravans of a run cover both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SecondLoadMeasure {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) latency_us_mean: f64,
    pub(crate) latency_us_p99: f64,
}

impl Measure {
    /// Data of both loads.
    pub(crate) fn bytes_per_second_total(&self) -> f64 {
        self.bytes_per_second + self.beside.as_ref().map_or(0.0, |b| b.bytes_per_second)
    }

    /// Operations for each second of a busy core.
    pub(crate) fn per_cpu_second(&self) -> Option<f64> {
        Some(self.iops / self.usage?.machine.cores.max(1e-3))
    }

    /// CPU time of both ends per I/O, in microseconds.
    pub(crate) fn cpu_us_per_io(&self) -> Option<f64> {
        Some(self.host_cpu_us_per_io? + self.target_cpu_us_per_io?)
    }

    /// Several that ran at the same time: their throughput together, latencies by their shares of it.
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

    /// The median of each figure over the runs that have it.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let values = runs.iter().map(|run| serde_json::to_value(run).expect("figures"));
        let middle = middle(&values.collect::<Vec<_>>());
        middle.map_or_else(Self::default, |all| serde_json::from_value(all).expect("figures"))
    }
}

/// Medians of numbers, place by place where these lie in arrays and objects.
fn middle(values: &[Value]) -> Option<Value> {
    let at = |get: &dyn Fn(&Value) -> Option<Value>| {
        middle(&values.iter().filter_map(get).collect::<Vec<_>>())
    };
    match values.iter().find(|value| !value.is_null())? {
        Value::Object(names) => {
            let members = names
                .keys()
                .filter_map(|name| Some((name.clone(), at(&|value| value.get(name).cloned())?)));
            Some(Value::Object(members.collect()))
        }
        Value::Array(_) => {
            let count = values.iter().filter_map(Value::as_array).map(Vec::len).max().unwrap_or(0);
            Some((0..count).filter_map(|n| at(&|value| value.get(n).cloned())).collect())
        }
        _ => median(values.iter().filter_map(Value::as_f64)).map(Value::from),
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
    fn usage_is_of_all_cores() {
        let machine = Cpu { cores: 2.0, switches_per_second: 0.0 };
        let application = Cpu { cores: 0.5, ..machine };
        let usage = MachineUsage { machine, application, ..MachineUsage::default() };
        let measure = Measure { iops: 1e5, usage: Some(usage), ..Measure::default() };
        assert_eq!((measure.per_cpu_second(), usage.rest_cores()), (Some(5e4), 1.5));
        assert_eq!(Measure::median(&[measure.clone(), measure.clone()]), measure);
    }

    #[test]
    fn absent_figures_stay_absent() {
        let runs = [Measure { iops: 2.0, ..Measure::default() }, Measure::default()];
        let m = Measure::median(&runs);
        assert_eq!(m.iops, 1.0);
        assert_eq!(m.cpu_us_per_io(), None);
    }
}
