//! The results of an evaluation, as written to and read from JSON.

use super::plan::{CpuPart, EvalPoint};
use crate::machine::Conditions;
use crate::runs::{Index, SideRun};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;

/// A whole evaluation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Evaluation {
    #[serde(flatten)]
    pub(crate) conditions: Conditions,
    /// Fewer points and rounds.
    pub(crate) quick: bool,
    /// The figures it has.
    pub(crate) figures: Vec<String>,
    /// Load before that.
    pub(crate) ramp_seconds: f64,
    /// How long it all took.
    pub(crate) minutes: f64,
    /// Requests a second that open loops' shares are of, by store.
    pub(crate) peaks: BTreeMap<String, f64>,
    pub(crate) runs: Vec<SideRun>,
    pub(crate) profiles: Vec<ProfileResult>,
    /// Why there are no profiles.
    pub(crate) profiles_skipped: Option<String>,
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

/// Finds measurements by their points.
pub(crate) struct EvalData<'a> {
    pub(crate) evaluation: &'a Evaluation,
    runs: Index<'a>,
    profiles: HashMap<(&'a str, &'a str), &'a ProfileResult>,
}

impl<'a> EvalData<'a> {
    pub(crate) fn new(evaluation: &'a Evaluation) -> Self {
        let profiles = evaluation.profiles.iter().map(|p| ((p.load.as_str(), p.side.as_str()), p));
        Self { evaluation, runs: Index::new(&evaluation.runs), profiles: profiles.collect() }
    }

    pub(crate) fn profile(&self, point: &EvalPoint) -> Option<&'a ProfileResult> {
        let (load, side) = (point.load.to_string(), point.side.to_string());
        self.profiles.get(&(load.as_str(), side.as_str())).copied()
    }

    /// CPU time of a part of the profile, per I/O.
    pub(crate) fn part(&self, part: CpuPart, point: &EvalPoint) -> Option<f64> {
        self.profile(point)?.ns_per_io.get(part.name()).copied()
    }

    /// The same as a share of all time, idle included.
    pub(crate) fn part_share(&self, part: CpuPart, point: &EvalPoint) -> Option<f64> {
        let all: f64 = self.profile(point)?.ns_per_io.values().sum();
        Some(self.part(part, point)? / all)
    }
}

impl<'a> Deref for EvalData<'a> {
    type Target = Index<'a>;

    fn deref(&self) -> &Index<'a> {
        &self.runs
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::runs::tests::run;
    use crate::workload::{LabLoad, ProductSetup};

    /// An evaluation with the given points' IOPS in each round; p99 is 1e9/IOPS.
    pub(crate) fn evaluation(points: &[(LabLoad, ProductSetup, &[f64])]) -> Evaluation {
        Evaluation {
            conditions: Conditions::made_up(),
            quick: true,
            figures: vec![],
            ramp_seconds: 0.1,
            minutes: 1.0,
            peaks: BTreeMap::from([("mem".to_owned(), 5e5)]),
            runs: points
                .iter()
                .map(|(load, setup, iops)| run(&EvalPoint::new(*load, *setup), iops))
                .collect(),
            profiles: vec![],
            profiles_skipped: Some("perf is not installed".into()),
        }
    }
}
