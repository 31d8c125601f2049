//! What an evaluation has measured, as written to and read from JSON.

use super::metric::Metric;
use super::plan::{Pair, Part, Point};
use crate::machine::Machine;
use crate::measure::{Measure, median};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// A whole evaluation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Evaluation {
    pub(crate) machine: Machine,
    /// The command that made it.
    pub(crate) command: String,
    /// Fewer points and rounds.
    pub(crate) quick: bool,
    /// The figures it has.
    pub(crate) figures: Vec<String>,
    pub(crate) rounds: usize,
    /// Measured time of each run.
    pub(crate) seconds: f64,
    /// Load before that.
    pub(crate) ramp_seconds: f64,
    /// How long it all took.
    pub(crate) minutes: f64,
    /// Requests a second that open loops' shares are of, by store.
    pub(crate) peaks: BTreeMap<String, f64>,
    pub(crate) runs: Vec<RunResult>,
    pub(crate) profiles: Vec<ProfileResult>,
    /// Why there are no profiles.
    pub(crate) profiles_skipped: Option<String>,
}

/// A point's measurements.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) load: String,
    pub(crate) side: String,
    #[serde(default)]
    /// How it was run.
    pub(crate) command: String,
    #[serde(default)]
    /// The last failure.
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) median: Option<Measure>,
    #[serde(default)]
    /// Each round's, none where it failed.
    pub(crate) rounds: Vec<Option<Measure>>,
}

/// Where a point's CPU time went: nanoseconds per I/O by part, idle too; medians over the rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProfileResult {
    pub(crate) load: String,
    pub(crate) side: String,
    pub(crate) error: Option<String>,
    pub(crate) ns_per_io: BTreeMap<String, f64>,
    pub(crate) samples: u64,
    /// The commonest symbols that were counted as other.
    pub(crate) other_symbols: Vec<(String, u64)>,
}

impl RunResult {
    /// All failures, no figures.
    pub(crate) fn new(point: &Point, command: String) -> Self {
        Self {
            load: point.load.to_string(),
            side: point.side.to_string(),
            command,
            error: None,
            median: None,
            rounds: Vec::new(),
        }
    }

    /// Adds a round.
    pub(crate) fn add(&mut self, outcome: anyhow::Result<Measure>) {
        match outcome {
            Ok(measure) => self.rounds.push(Some(measure)),
            Err(e) => {
                self.error = Some(format!("{e:#}"));
                self.rounds.push(None);
            }
        }
        let done: Vec<Measure> = self.rounds.iter().flatten().cloned().collect();
        self.median = (!done.is_empty()).then(|| Measure::median(&done));
    }

    /// Whether it failed every time.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.rounds.len() >= 2 && self.median.is_none()
    }
}

/// Finds measurements by their points.
pub(crate) struct Data<'a> {
    pub(crate) evaluation: &'a Evaluation,
    runs: HashMap<(&'a str, &'a str), &'a RunResult>,
    profiles: HashMap<(&'a str, &'a str), &'a ProfileResult>,
}

impl<'a> Data<'a> {
    pub(crate) fn new(evaluation: &'a Evaluation) -> Self {
        let runs = evaluation.runs.iter().map(|r| ((r.load.as_str(), r.side.as_str()), r));
        let profiles = evaluation.profiles.iter().map(|p| ((p.load.as_str(), p.side.as_str()), p));
        Self { evaluation, runs: runs.collect(), profiles: profiles.collect() }
    }

    pub(crate) fn run(&self, point: &Point) -> Option<&'a RunResult> {
        let (load, side) = (point.load.to_string(), point.side.to_string());
        self.runs.get(&(load.as_str(), side.as_str())).copied()
    }

    pub(crate) fn profile(&self, point: &Point) -> Option<&'a ProfileResult> {
        let (load, side) = (point.load.to_string(), point.side.to_string());
        self.profiles.get(&(load.as_str(), side.as_str())).copied()
    }

    /// The median of a figure.
    pub(crate) fn value(&self, metric: Metric, point: &Point) -> Option<f64> {
        metric.of(self.run(point)?.median.as_ref()?)
    }

    /// The median of what `f` makes of two points' figures in each round that has both.
    pub(crate) fn compare(
        &self,
        metric: Metric,
        pair: &Pair,
        f: impl Fn(f64, f64) -> f64,
    ) -> Option<f64> {
        median(self.compared(metric, pair, f))
    }

    /// What `f` makes of two points' figures in each round that has both.
    pub(crate) fn compared(
        &self,
        metric: Metric,
        pair: &Pair,
        f: impl Fn(f64, f64) -> f64,
    ) -> Vec<f64> {
        let (Some(of), Some(to)) = (self.run(&pair.of), self.run(&pair.to)) else { return vec![] };
        let rounds = of.rounds.iter().zip(&to.rounds);
        let compare = |(of, to): (&Measure, &Measure)| Some(f(metric.of(of)?, metric.of(to)?));
        rounds.filter_map(|(of, to)| compare((of.as_ref()?, to.as_ref()?))).collect()
    }

    /// The median of the rounds' ratios.
    pub(crate) fn ratio(&self, metric: Metric, pair: &Pair) -> Option<f64> {
        self.compare(metric, pair, |of, to| of / to)
    }

    /// CPU time of a part of the profile, per I/O.
    pub(crate) fn part(&self, part: Part, point: &Point) -> Option<f64> {
        self.profile(point)?.ns_per_io.get(part.name()).copied()
    }

    /// The same as a share of all time, idle included.
    pub(crate) fn part_share(&self, part: Part, point: &Point) -> Option<f64> {
        let all: f64 = self.profile(point)?.ns_per_io.values().sum();
        Some(self.part(part, point)? / all)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::eval::plan::{AUTO, NONE};
    use crate::workload::{Load, Setup};

    /// An evaluation with the given points' IOPS in each round; p99 is 1e9/IOPS.
    pub(crate) fn evaluation(points: &[(Load, Setup, &[f64])]) -> Evaluation {
        let run = |&(load, setup, iops): &(Load, Setup, &[f64])| {
            let mut run = RunResult::new(&Point::new(load, setup), "roadtrain bench".into());
            for &iops in iops {
                run.add(match iops > 0.0 {
                    true => Ok(measure(iops)),
                    false => Err(anyhow::anyhow!("exit status: 2: error: no <such> policy")),
                });
            }
            run
        };
        Evaluation {
            machine: Machine {
                processor: "made up".into(),
                cores: 2,
                memory_gib: 1.0,
                hypervisor: true,
                kernel: "6".into(),
                congestion_control: "cubic".into(),
                huge_pages: "always".into(),
            },
            command: "roadtrain-lab eval".into(),
            quick: true,
            figures: vec![],
            rounds: 3,
            seconds: 0.2,
            ramp_seconds: 0.1,
            minutes: 1.0,
            peaks: BTreeMap::from([("mem".to_owned(), 5e5)]),
            runs: points.iter().map(run).collect(),
            profiles: vec![],
            profiles_skipped: Some("perf is not installed".into()),
        }
    }

    fn measure(iops: f64) -> Measure {
        Measure {
            iops,
            bytes_per_second: iops * 4096.0,
            latency_us_mean: 5e8 / iops,
            latency_us_p99: 1e9 / iops,
            host_cpu_us_per_io: Some(1.0),
            target_cpu_us_per_io: Some(1.5),
            target_bytes_per_send: Some(65920.0),
            ..Measure::default()
        }
    }

    #[test]
    fn json_round_trip() {
        let before = evaluation(&[(Load::small(100, 1), AUTO, &[1e5, 0.0, 3e5])]);
        let json = serde_json::to_string(&before).expect("serialisable");
        let after: Evaluation = serde_json::from_str(&json).expect("the same");
        assert_eq!(serde_json::to_string(&after).expect("serialisable"), json);
        assert_eq!(after.runs[0].median.as_ref().expect("two rounds").iops, 2e5);
        assert!(after.runs[0].rounds[1].is_none());
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let load = Load::small(100, 8);
        let data = evaluation(&[
            (load, AUTO, &[100.0, 200.0, 0.0, 990.0]),
            (load, NONE, &[50.0, 100.0, 1.0, 100.0]),
        ]);
        let data = Data::new(&data);
        assert_eq!(data.ratio(Metric::Iops, &Pair::at(load, AUTO, NONE)), Some(2.0));
        assert_eq!(data.ratio(Metric::Iops, &Pair::at(Load::small(1, 1), AUTO, NONE)), None);
    }

    #[test]
    fn what_always_fails_is_given_up() {
        let data = evaluation(&[(Load::small(100, 8), AUTO, &[0.0, 0.0])]);
        assert!(data.runs[0].is_hopeless());
        let data = evaluation(&[(Load::small(100, 8), AUTO, &[0.0, 1.0])]);
        assert!(!data.runs[0].is_hopeless());
    }
}
