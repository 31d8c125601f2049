//! What a table holds, as written to and read from JSON.

use super::plan::{Goal, Group, Metric};
use crate::machine::Machine;
use crate::measure::{Measure, median};
use serde::{Deserialize, Serialize};

/// A whole table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) machine: Machine,
    /// The command that made it.
    pub(crate) command: String,
    pub(crate) rounds: usize,
    /// Measured time of each run.
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<RowResult>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cores: Vec<CoreRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) connections: Vec<ConnectionRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tls: Vec<TlsRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) waiting: Vec<WaitingRow>,
    pub(crate) checks: Vec<Check>,
}

/// How the ends share two cores: medians over the rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CoreRow {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) product: Option<Measure>,
    pub(crate) floor: Option<Measure>,
    /// Its throughput and its 99th percentile, of those of two pairs with a core each in the same round.
    pub(crate) iops_of_pairs: Option<Least>,
    pub(crate) p99_of_pairs: Option<Most>,
    /// Why the product has no figures.
    pub(crate) error: Option<String>,
}

/// The same number in flight over so many connections: medians over the rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConnectionRow {
    pub(crate) connections: usize,
    /// On each.
    pub(crate) depth: usize,
    pub(crate) product: Option<Measure>,
    /// A bare exchange of the same octets.
    pub(crate) bare: Option<Measure>,
    /// Throughput of that of one connection in the same round, if that is judged.
    pub(crate) of_one: Option<Least>,
    pub(crate) fairness: Option<Least>,
    /// Why the product has no figures.
    pub(crate) error: Option<String>,
}

/// What TLS costs: medians over the rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TlsRow {
    pub(crate) title: String,
    pub(crate) plain: Option<Measure>,
    pub(crate) tls: Option<Measure>,
    /// What the cipher alone takes for a request and its answer, at each end.
    pub(crate) cipher_host_us: Option<f64>,
    pub(crate) cipher_target_us: Option<f64>,
    /// Throughput of that of plain whose CPU time is longer by the cipher's.
    pub(crate) of_limit: Option<Least>,
    /// Mean latency over plain's, in microseconds.
    pub(crate) added_us: Option<Most>,
    /// Why a run has no figures.
    pub(crate) error: Option<String>,
}

/// What the ways of waiting cost: medians over the rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WaitingRow {
    pub(crate) title: String,
    /// By the option that asks for it.
    pub(crate) ways: Vec<(String, Option<Measure>)>,
    /// A bare exchange that never sleeps.
    pub(crate) polled_floor: Option<Measure>,
    /// Mean latency of the default, of the best other way that sleeps.
    pub(crate) latency_of_best: Option<Most>,
    /// CPU time of the default, of always sleeping.
    pub(crate) cpu_of_sleeping: Option<Most>,
    /// Mean latency of the default, of the polled floor's.
    pub(crate) latency_of_polled: Option<Most>,
    /// Why a run has no figures.
    pub(crate) error: Option<String>,
}

impl WaitingRow {
    /// Its bounds, with what is compared.
    pub(super) fn goals(&self) -> impl Iterator<Item = (&'static str, Most)> {
        let goals = [
            ("best mean latency", self.latency_of_best),
            ("CPU of sleeping", self.cpu_of_sleeping),
            ("polled floor's mean latency", self.latency_of_polled),
        ];
        goals.into_iter().filter_map(|(what, most)| Some((what, most?)))
    }

    /// Whether each of its bounds is kept.
    pub(super) fn passes(&self) -> impl Iterator<Item = bool> {
        self.goals().map(|(_, Most { value, bound })| value <= bound)
    }
}

impl TlsRow {
    /// Whether each of its bounds is kept.
    pub(super) fn passes(&self) -> impl Iterator<Item = bool> {
        let of_limit = self.of_limit.map(|Least { value, bound }| value >= bound);
        of_limit.into_iter().chain(self.added_us.map(|Most { value, bound }| value <= bound))
    }
}

impl ConnectionRow {
    /// Whether each of its bounds is kept.
    pub(super) fn passes(&self) -> impl Iterator<Item = bool> {
        [self.of_one, self.fairness].into_iter().flatten().map(|least| least.value >= least.bound)
    }
}

/// A ratio that should not be less.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Least {
    pub(crate) value: f64,
    pub(crate) bound: f64,
}

/// A ratio that should not be more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Most {
    pub(crate) value: f64,
    pub(crate) bound: f64,
}

impl CoreRow {
    /// Whether each of its bounds is kept.
    pub(super) fn passes(&self) -> impl Iterator<Item = bool> {
        let iops = self.iops_of_pairs.map(|Least { value, bound }| value >= bound);
        iops.into_iter().chain(self.p99_of_pairs.map(|Most { value, bound }| value <= bound))
    }
}

/// One row: medians over the rounds, and the bounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RowResult {
    pub(crate) id: String,
    pub(crate) group: Group,
    pub(crate) title: String,
    /// How the product was run.
    pub(crate) command: String,
    pub(crate) product: Option<Measure>,
    pub(crate) floor: Option<Measure>,
    pub(crate) floor_gather: Option<usize>,
    pub(crate) ratios: Ratios,
    pub(crate) goals: Vec<GoalResult>,
    /// Why the product has no figures.
    pub(crate) error: Option<String>,
    /// Each round's IOPS, for the spread.
    pub(crate) product_iops: Vec<f64>,
    pub(crate) floor_iops: Vec<f64>,
}

/// Medians of the product to floor ratios of adjacent runs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ratios {
    pub(crate) iops: Option<f64>,
    pub(crate) bandwidth: Option<f64>,
    pub(crate) cpu: Option<f64>,
    pub(crate) latency: Option<f64>,
}

/// A bound and what was reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct GoalResult {
    #[serde(flatten)]
    pub(crate) goal: Goal,
    pub(crate) value: Option<f64>,
    pub(crate) pass: bool,
}

/// A figure of its own with an upper bound.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) value: Option<f64>,
    pub(crate) bound: f64,
    pub(crate) unit: String,
    pub(crate) pass: bool,
    pub(crate) error: Option<String>,
}

impl Ratios {
    /// Of pairs of adjacent runs, product first.
    pub(super) fn of(pairs: &[(Measure, Measure)]) -> Self {
        let ratio = |f: fn(&Measure) -> Option<f64>| {
            median(pairs.iter().filter_map(|(p, fl)| Some(f(p)? / f(fl)?)))
        };
        Self {
            iops: ratio(|m| Some(m.iops)),
            bandwidth: ratio(|m| Some(m.bytes_per_second)),
            cpu: ratio(Measure::cpu_us_per_io),
            latency: ratio(|m| Some(m.latency_us_mean)),
        }
    }

    fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Iops => self.iops,
            Metric::Bandwidth => self.bandwidth,
            Metric::Cpu => self.cpu,
            Metric::Latency => self.latency,
        }
    }
}

impl GoalResult {
    /// Compares; without a value it is missed.
    pub(super) fn new(goal: Goal, ratios: &Ratios) -> Self {
        let value = ratios.get(goal.metric);
        Self { goal, value, pass: value.is_some_and(|v| goal.holds(v)) }
    }
}

impl Check {
    pub(super) fn at_most(id: &str, title: &str, value: f64, bound: f64, unit: &str) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            value: Some(value),
            bound,
            unit: unit.into(),
            pass: value <= bound,
            error: None,
        }
    }

    pub(super) fn failed(id: &str, title: &str, error: &anyhow::Error) -> Self {
        let error = Some(format!("{error:#}"));
        let (id, title) = (id.into(), title.into());
        Self { id, title, value: None, bound: 0.0, unit: String::new(), pass: false, error }
    }
}

impl Table {
    /// Bounds kept and bounds in all.
    pub(crate) fn score(&self) -> (usize, usize) {
        let goals = self.rows.iter().flat_map(|row| &row.goals).map(|goal| goal.pass);
        let cores = self.cores.iter().flat_map(CoreRow::passes);
        let connections = self.connections.iter().flat_map(ConnectionRow::passes);
        let tls = self.tls.iter().flat_map(TlsRow::passes);
        let waiting = self.waiting.iter().flat_map(WaitingRow::passes);
        let checks = self.checks.iter().map(|check| check.pass);
        let parts = goals.chain(cores).chain(connections).chain(tls).chain(waiting);
        let passes: Vec<bool> = parts.chain(checks).collect();
        (passes.iter().filter(|&&pass| pass).count(), passes.len())
    }
}
