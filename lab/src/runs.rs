//! Runs of sides in turns: the measurements of every kind are made of them, and so is the JSON of their results.

use crate::interrupt;
use crate::measure::{Measure, median};
use crate::metric::Metric;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Instant;

/// Amount of measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuringExtent {
    Full,
    /// Fewer points and rounds: fits into a CI job.
    Quick,
}

impl MeasuringExtent {
    pub(crate) fn new(is_quick: bool) -> Self {
        if is_quick { Self::Quick } else { Self::Full }
    }

    /// The values of an axis.
    pub(crate) fn pick<T: Copy>(self, full: &[T], quick: &[T]) -> Vec<T> {
        match self {
            Self::Full => full.to_vec(),
            Self::Quick => quick.to_vec(),
        }
    }
}

/// One side of a case: the figures of each round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SideRun {
    pub(crate) case: String,
    pub(crate) side: String,
    /// Command line.
    pub(crate) command: String,
    /// Message of the last failure.
    pub(crate) error: Option<String>,
    pub(crate) median: Option<Measure>,
    /// Figures by round; `None` where it failed.
    pub(crate) rounds: Vec<Option<Measure>>,
}

impl SideRun {
    pub(crate) fn new(of: &impl NamedSide, command: String) -> Self {
        Self { case: of.case(), side: of.side(), command, ..Self::default() }
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

    /// Failed in every round, twice or more.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.rounds.len() >= 2 && self.median.is_none()
    }
}

/// A side of a case, with the names that it has in results.
pub(crate) trait NamedSide {
    fn case(&self) -> String;
    fn side(&self) -> String;
}

impl<C: AsRef<str>, S: AsRef<str>> NamedSide for (C, S) {
    fn case(&self) -> String {
        self.0.as_ref().to_owned()
    }

    fn side(&self) -> String {
        self.1.as_ref().to_owned()
    }
}

/// Cases that are measured one after the other in each round.
pub(crate) struct RunCase<S> {
    pub(crate) title: String,
    pub(crate) rounds: usize,
    pub(crate) turns: Vec<SideTurn<S>>,
}

/// A side and the runs that it makes when it is its turn: one, or several that belong together.
pub(crate) struct SideTurn<S> {
    pub(crate) side: S,
    pub(crate) runs: Vec<SideRun>,
}

/// Measures round by round, all sides of a case one after the other, in the next round the other way round. An
/// interrupt ends it early.
pub(crate) fn measure<S>(
    cases: &mut [RunCase<S>],
    mut once: impl FnMut(&S, usize) -> Vec<anyhow::Result<Measure>>,
) {
    let rounds = cases.iter().map(|case| case.rounds).max().unwrap_or(0);
    let mut progress =
        TurnProgress::new(cases.iter().map(|case| case.rounds * case.turns.len()).sum());
    for round in 0..rounds {
        for case in cases.iter_mut().filter(|case| round < case.rounds) {
            progress.show(&format!("round {}/{}: {}", round + 1, rounds, case.title));
            for index in order(round, case.turns.len()) {
                if interrupt::check().is_err() {
                    return;
                }
                progress.done += 1;
                let turn = &mut case.turns[index];
                if turn.runs.iter().all(SideRun::is_hopeless) {
                    continue;
                }
                let outcomes = once(&turn.side, round);
                let is_whole = outcomes.iter().all(Result::is_ok) || interrupt::check().is_ok();
                for (run, outcome) in turn.runs.iter_mut().zip(outcomes).filter(|_| is_whole) {
                    run.add(outcome.inspect_err(|e| eprintln!("  {}: {e:#}", run.side)));
                }
            }
        }
    }
}

/// The runs of all cases, in their order.
pub(crate) fn finish<S>(cases: Vec<RunCase<S>>) -> Vec<SideRun> {
    let turns = cases.into_iter().flat_map(|case| case.turns);
    turns.flat_map(|turn| turn.runs).collect()
}

/// Measures sides in turns; the figures of each round, in the order of the sides. The first failure ends it.
pub(crate) fn rounds<S, T>(
    count: usize,
    sides: &[S],
    mut once: impl FnMut(&S) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<Vec<T>>> {
    let mut rounds = Vec::new();
    for round in 0..count.max(1) {
        let mut figures: Vec<(usize, T)> = Vec::new();
        for index in order(round, sides.len()) {
            interrupt::check()?;
            figures.push((index, once(&sides[index])?));
        }
        figures.sort_by_key(|(index, _)| *index);
        rounds.push(figures.into_iter().map(|(_, figure)| figure).collect());
    }
    Ok(rounds)
}

fn order(round: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Turns that are done, of all.
struct TurnProgress {
    began: Instant,
    done: usize,
    all: usize,
}

impl TurnProgress {
    fn new(all: usize) -> Self {
        Self { began: Instant::now(), done: 0, all }
    }

    fn show(&self, what: &str) {
        let each = self.began.elapsed().as_secs_f64() / self.done.max(1) as f64;
        let left = each * (self.all - self.done) as f64;
        let left = if self.done == 0 { String::new() } else { format!(", {left:.0} s left") };
        eprintln!("{}/{}{left}: {what}", self.done, self.all);
    }
}

/// How a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// As a ratio to the same figure of another side in the same round.
    Ratio,
    /// As a difference to it.
    Difference,
    /// By itself.
    Value,
}

impl Compare {
    pub(crate) fn apply(self, of: f64, to: f64) -> f64 {
        match self {
            Self::Ratio => of / to,
            Self::Difference => of - to,
            Self::Value => of,
        }
    }
}

/// Runs by their names.
pub(crate) struct Index<'a>(HashMap<(&'a str, &'a str), &'a SideRun>);

impl<'a> Index<'a> {
    pub(crate) fn new(runs: &'a [SideRun]) -> Self {
        Self(runs.iter().map(|run| ((run.case.as_str(), run.side.as_str()), run)).collect())
    }

    pub(crate) fn run(&self, of: &impl NamedSide) -> Option<&'a SideRun> {
        self.0.get(&(of.case().as_str(), of.side().as_str())).copied()
    }

    pub(crate) fn median(&self, of: &impl NamedSide) -> Option<&'a Measure> {
        self.run(of)?.median.as_ref()
    }

    /// The median of a figure.
    pub(crate) fn value(&self, metric: Metric, of: &impl NamedSide) -> Option<f64> {
        metric.of(self.median(of)?)
    }

    /// Comparisons of the rounds that have both.
    pub(crate) fn compared(
        &self,
        metric: Metric,
        compare: Compare,
        of: &impl NamedSide,
        to: &impl NamedSide,
    ) -> Vec<f64> {
        let (Some(of), Some(to)) = (self.run(of), self.run(to)) else { return vec![] };
        let rounds = of.rounds.iter().zip(&to.rounds);
        let each =
            |(of, to): (&Measure, &Measure)| Some(compare.apply(metric.of(of)?, metric.of(to)?));
        rounds.filter_map(|(of, to)| each((of.as_ref()?, to.as_ref()?))).collect()
    }

    /// The median of the comparisons of the rounds.
    pub(crate) fn comparison(
        &self,
        metric: Metric,
        compare: Compare,
        of: &impl NamedSide,
        to: &impl NamedSide,
    ) -> Option<f64> {
        median(self.compared(metric, compare, of, to))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with these IOPS by round, 0 for a failure; latencies and other figures follow from them.
    pub(crate) fn run(of: &impl NamedSide, iops: &[f64]) -> SideRun {
        let mut run = SideRun::new(of, "roadtrain bench".into());
        for &iops in iops {
            run.add(match iops > 0.0 {
                true => Ok(measure(iops)),
                false => Err(anyhow::anyhow!("exit status: 2: error: no <such> | policy")),
            });
        }
        run
    }

    /// p99 is 1e9/IOPS.
    pub(crate) fn measure(iops: f64) -> Measure {
        Measure {
            iops,
            bytes_per_second: iops * 4096.0,
            latency_us_mean: 5e8 / iops,
            latency_us_p50: 5e8 / iops,
            latency_us_p99: 1e9 / iops,
            host_cpu_us_per_io: Some(1.0),
            target_cpu_us_per_io: Some(1.5),
            target_bytes_per_send: Some(65920.0),
            ..Measure::default()
        }
    }

    #[test]
    fn json_round_trip() {
        let before = run(&("one", "auto"), &[1e5, 0.0, 3e5]);
        let json = serde_json::to_string(&before).expect("serialisable");
        let after: SideRun = serde_json::from_str(&json).expect("the same");
        assert_eq!(serde_json::to_string(&after).expect("serialisable"), json);
        assert_eq!(after.median.as_ref().expect("two rounds").iops, 2e5);
        assert!(after.rounds[1].is_none() && after.error.is_some());
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let (auto, none) = (("one", "auto"), ("one", "none"));
        let runs =
            [run(&auto, &[100.0, 200.0, 0.0, 990.0]), run(&none, &[50.0, 100.0, 1.0, 100.0])];
        let index = Index::new(&runs);
        let ratio = |of, to| index.comparison(Metric::Iops, Compare::Ratio, &of, &to);
        assert_eq!(ratio(auto, none), Some(2.0));
        assert_eq!(ratio(auto, ("two", "none")), None);
    }

    #[test]
    fn sides_that_always_fail_are_given_up() {
        assert!(run(&("one", "auto"), &[0.0, 0.0]).is_hopeless());
        assert!(!run(&("one", "auto"), &[0.0, 1.0]).is_hopeless());
        assert!(!run(&("one", "auto"), &[0.0]).is_hopeless());
    }

    #[test]
    fn every_other_round_goes_the_other_way_round() {
        let turn = |side: &'static str| SideTurn {
            side,
            runs: vec![SideRun::new(&("one", side), "".into())],
        };
        let case =
            |rounds| RunCase { title: "one".into(), rounds, turns: vec![turn("a"), turn("b")] };
        let mut cases = vec![case(2), case(1)];
        let mut order = String::new();
        super::measure(&mut cases, |side, round| {
            order += side;
            vec![Ok(Measure { iops: round as f64, ..Measure::default() })]
        });
        assert_eq!(order, "ababba");
        assert_eq!(
            finish(cases).iter().map(|run| run.rounds.len()).collect::<Vec<_>>(),
            [2, 2, 1, 1]
        );
        let figures = rounds(2, &[1, 2], |side| Ok(*side)).expect("no failure");
        assert_eq!(figures, [[1, 2], [1, 2]]);
    }
}
