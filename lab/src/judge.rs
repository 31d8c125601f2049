//! Bounds and goals: the one place that decides whether a figure is good enough.

use crate::measure::{interval, median};
use crate::metric::Metric;
use crate::runs::{Compare, Index, NamedSide};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The least or the most that a figure may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::AtLeast(bound) | Self::AtMost(bound) => bound,
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::AtLeast(_) => ">=",
            Self::AtMost(_) => "<=",
        }
    }

    /// The factor by which a figure is beyond the bound.
    fn distance(self, value: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => bound / value,
            Self::AtMost(bound) => value / bound,
        }
    }

    /// The best of some values, by the direction of the bound.
    pub(crate) fn best<T>(self, values: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
        match self {
            Self::AtLeast(_) => values.max_by(|a, b| a.1.total_cmp(&b.1)),
            Self::AtMost(_) => values.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.sign(), digits(self.limit()))
    }
}

/// As many digits as mean something.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The result of holding a figure against its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundVerdict {
    Kept,
    /// Beyond its bound, though the rounds do not exclude that it is kept: counts as kept.
    Open,
    Missed,
    /// The other side is not there, or there is no bound.
    Unjudged,
}

impl fmt::Display for BoundVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kept => "kept",
            Self::Open => "open",
            Self::Missed => "missed",
            Self::Unjudged => "not judged",
        })
    }
}

/// Verdicts, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    /// With those that are left open.
    pub(crate) kept: usize,
    pub(crate) open: usize,
    pub(crate) missed: usize,
    pub(crate) unjudged: usize,
}

impl FromIterator<BoundVerdict> for Score {
    fn from_iter<T: IntoIterator<Item = BoundVerdict>>(verdicts: T) -> Self {
        let mut score = Self::default();
        for verdict in verdicts {
            score.kept += usize::from(matches!(verdict, BoundVerdict::Kept | BoundVerdict::Open));
            score.open += usize::from(verdict == BoundVerdict::Open);
            score.missed += usize::from(verdict == BoundVerdict::Missed);
            score.unjudged += usize::from(verdict == BoundVerdict::Unjudged);
        }
        score
    }
}

impl Score {
    /// All that were judged.
    pub(crate) fn all(self) -> usize {
        self.kept + self.missed
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kept, self.all())?;
        if self.open > 0 { write!(f, " (~{})", self.open) } else { Ok(()) }
    }
}

/// A figure with its bound, as a check has measured it: part of the JSON of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Judged {
    pub(crate) case: String,
    pub(crate) what: String,
    pub(crate) unit: String,
    /// `None` where it failed.
    pub(crate) value: Option<f64>,
    /// A figure without a bound is only reported.
    pub(crate) bound: Option<Bound>,
    /// Explanation, or message of a failure.
    pub(crate) note: String,
}

impl Judged {
    pub(crate) fn new(case: &str, what: impl Into<String>, unit: &str, value: f64) -> Self {
        let (case, unit) = (case.to_owned(), unit.to_owned());
        Self { case, what: what.into(), unit, value: Some(value), ..Self::default() }
    }

    pub(crate) fn at_least(self, bound: f64) -> Self {
        Self { bound: Some(Bound::AtLeast(bound)), ..self }
    }

    pub(crate) fn at_most(self, bound: f64) -> Self {
        Self { bound: Some(Bound::AtMost(bound)), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// A check that could not be run: missed.
    pub(crate) fn failed(case: &str, what: &str, error: &anyhow::Error) -> Self {
        let (case, what, note) = (case.to_owned(), what.to_owned(), format!("failed: {error:#}"));
        Self { case, what, note, bound: Some(Bound::AtLeast(0.0)), ..Self::default() }
    }

    /// `None` where there is no bound.
    pub(crate) fn verdict(&self) -> Option<BoundVerdict> {
        let holds = |bound: Bound| self.value.is_some_and(|value| bound.holds(value));
        self.bound.map(|bound| if holds(bound) { BoundVerdict::Kept } else { BoundVerdict::Missed })
    }
}

/// The verdicts of all that have a bound.
pub(crate) fn score<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> Score {
    judged.into_iter().filter_map(Judged::verdict).collect()
}

/// The rule by which a goal is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The median of the rounds; no figures are a miss.
    Median,
    /// A figure beyond its bound is missed only if all of the interval of the median is; no figures are a miss.
    Interval,
    /// The median of the rounds alone; without figures of the other side nothing is judged.
    IfThere,
}

/// A figure of a side that is held against the best of other sides, or against a value.
#[derive(Clone, Debug)]
pub(crate) struct Goal<P> {
    /// The row of the goal in a table: what is varied,
    pub(crate) row: String,
    /// and its column: the condition.
    pub(crate) column: String,
    pub(crate) metric: Metric,
    pub(crate) compare: Compare,
    pub(crate) of: P,
    pub(crate) among: Vec<P>,
    /// Without one the comparison is only reported.
    pub(crate) bound: Option<Bound>,
    pub(crate) rule: Rule,
}

/// A goal with what was reached.
#[derive(Clone, Debug)]
pub(crate) struct GoalOutcome<P> {
    /// The best of the others.
    pub(crate) best: Option<P>,
    pub(crate) of: Option<f64>,
    pub(crate) to: Option<f64>,
    /// The comparison, or the figure itself.
    pub(crate) value: Option<f64>,
    /// Limits of the median of the rounds, nine times in ten.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) verdict: BoundVerdict,
}

impl<P: NamedSide + Clone> Goal<P> {
    pub(crate) fn judge(&self, index: &Index) -> GoalOutcome<P> {
        let of = index.value(self.metric, &self.of);
        let mut known = self.among.iter().filter_map(|p| Some((p, index.value(self.metric, p)?)));
        let best = match self.bound {
            Some(bound) => bound.best(known),
            None => known.next(),
        };
        let rounds = best.map(|(to, _)| index.compared(self.metric, self.compare, &self.of, to));
        let value = match self.compare {
            Compare::Value => of,
            _ => median(rounds.iter().flatten().copied()),
        };
        let interval = rounds.and_then(|rounds| interval(&rounds));
        let holds = |value| self.bound.is_some_and(|bound| bound.holds(value));
        let verdict = match self.rule {
            _ if self.bound.is_none() => BoundVerdict::Unjudged,
            _ if value.is_some_and(holds) => BoundVerdict::Kept,
            Rule::IfThere if best.is_none() => BoundVerdict::Unjudged,
            Rule::Interval if interval.is_some_and(|(a, b)| holds(a) || holds(b)) => {
                BoundVerdict::Open
            }
            _ => BoundVerdict::Missed,
        };
        let (best, to) = best.map(|(point, value)| (point.clone(), value)).unzip();
        GoalOutcome { best, of, to, value, interval, verdict }
    }

    /// The figure for results that are kept, with row and column for names.
    pub(crate) fn judged(&self, index: &Index) -> Judged {
        let (case, what) = (self.row.clone(), self.column.clone());
        let value = self.judge(index).value;
        Judged { case, what, value, bound: self.bound, ..Judged::default() }
    }

    /// The bound, as tables show it.
    pub(crate) fn limit(&self) -> String {
        let Some(bound) = self.bound else { return String::new() };
        let (sign, limit) = (bound.sign(), bound.limit());
        match self.compare {
            Compare::Ratio => format!("{sign} {limit:.2}"),
            Compare::Difference => format!("{sign} +{limit:.0}"),
            Compare::Value => format!("at most {limit}"),
        }
    }

    /// A comparison, as tables show it.
    pub(crate) fn show(&self, value: f64) -> String {
        match self.compare {
            Compare::Difference => format!("{value:+.1}"),
            _ => format!("{value:.2}"),
        }
    }
}

/// The verdicts of goals.
pub(crate) fn score_goals<P: NamedSide + Clone>(goals: &[Goal<P>], index: &Index) -> Score {
    goals.iter().map(|goal| goal.judge(index).verdict).collect()
}

/// The missed goal whose figure is farthest from its bound, as a share of the bound.
pub(crate) fn farthest<'a, P: NamedSide + Clone>(
    goals: &'a [Goal<P>],
    index: &Index,
) -> Option<&'a Goal<P>> {
    let distance = |goal: &Goal<P>| {
        let outcome = goal.judge(index);
        let far = goal.bound.zip(outcome.value).map_or(f64::INFINITY, |(b, v)| b.distance(v));
        (outcome.verdict == BoundVerdict::Missed).then_some(far)
    };
    let missed = goals.iter().filter_map(|goal| Some((goal, distance(goal)?)));
    missed.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(goal, _)| goal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::SideRun;
    use crate::runs::tests::run;

    type Side = (&'static str, &'static str);
    const AUTO: Side = ("load", "auto");
    const NONE: Side = ("load", "none");
    const I10: Side = ("load", "i10");

    fn goal(metric: Metric, compare: Compare, bound: Bound, among: &[Side]) -> Goal<Side> {
        let (row, column, rule) = (String::new(), String::new(), Rule::Interval);
        Goal {
            row,
            column,
            metric,
            compare,
            of: AUTO,
            among: among.to_vec(),
            bound: Some(bound),
            rule,
        }
    }

    #[test]
    fn figures_are_kept_or_missed_and_failures_are_misses() {
        let judged = |value| Judged::new("use", "reads", "%", value);
        assert_eq!(judged(95.0).at_least(95.0).verdict(), Some(BoundVerdict::Kept));
        assert_eq!(judged(94.9).at_least(95.0).verdict(), Some(BoundVerdict::Missed));
        assert_eq!(judged(1.2).at_most(1.15).verdict(), Some(BoundVerdict::Missed));
        assert_eq!(judged(1.0).verdict(), None);
        let failed = Judged::failed("use", "x", &anyhow::anyhow!("no"));
        assert_eq!(failed.verdict(), Some(BoundVerdict::Missed));
        assert_eq!(score([&judged(1.0), &judged(1.0).at_most(2.0), &failed]).to_string(), "1 of 2");
    }

    #[test]
    fn a_goal_is_missed_when_the_rounds_exclude_it() {
        let result = |auto: &[f64]| {
            let runs = [run(&AUTO, auto), run(&NONE, &vec![100.0; auto.len()])];
            let goals = [goal(Metric::Iops, Compare::Ratio, Bound::AtLeast(0.97), &[NONE])];
            let index = Index::new(&runs);
            (goals[0].judge(&index).verdict, score_goals(&goals, &index).to_string())
        };
        assert_eq!(result(&[99.0; 5]), (BoundVerdict::Kept, "1 of 1".into()));
        assert_eq!(
            result(&[90.0, 91.0, 92.0, 93.0, 94.0]),
            (BoundVerdict::Missed, "0 of 1".into())
        );
        assert_eq!(
            result(&[90.0, 91.0, 92.0, 93.0, 98.0]),
            (BoundVerdict::Open, "1 of 1 (~1)".into())
        );
        assert_eq!(result(&[90.0, 91.0, 98.0, 90.0]).0, BoundVerdict::Missed, "too few rounds");
        let eight = [90.0, 91.0, 92.0, 93.0, 93.0, 93.0, 93.0, 98.0];
        assert_eq!(result(&eight).0, BoundVerdict::Missed, "one in eight is chance");
    }

    #[test]
    fn goals_compare_with_the_best() {
        let runs = [run(&AUTO, &[96.0; 2]), run(&NONE, &[90.0; 2]), run(&I10, &[100.0; 2])];
        let result = |metric, compare, bound| {
            goal(metric, compare, bound, &[NONE, I10, ("load", "pinof")]).judge(&Index::new(&runs))
        };
        let verdict = |metric, compare, bound| result(metric, compare, bound).verdict;
        use Bound::{AtLeast, AtMost};
        use Compare::{Difference, Ratio, Value};
        let iops = result(Metric::Iops, Ratio, AtLeast(0.97));
        assert_eq!((iops.best, iops.verdict), (Some(I10), BoundVerdict::Missed));
        assert_eq!(verdict(Metric::LatencyP99, Ratio, AtMost(1.05)), BoundVerdict::Kept);
        assert_eq!(verdict(Metric::LatencyP99, Ratio, AtMost(1.01)), BoundVerdict::Missed);
        assert_eq!(
            verdict(Metric::Syscalls, Ratio, AtMost(9.0)),
            BoundVerdict::Missed,
            "no figures"
        );
        // p99 is 1e9/IOPS.
        assert_eq!(verdict(Metric::Settle, Value, AtMost(10.0)), BoundVerdict::Missed);
        assert_eq!(verdict(Metric::Iops, Value, AtMost(0.095)), BoundVerdict::Missed);
        assert_eq!(verdict(Metric::Iops, Value, AtMost(0.097)), BoundVerdict::Kept);
        let above = result(Metric::LatencyP99, Difference, AtMost(500_000.0));
        assert!(above.verdict == BoundVerdict::Kept && above.value.is_some_and(|v| v > 400_000.0));
    }

    #[test]
    fn without_the_other_side_nothing_is_judged_where_the_rule_says_so() {
        let verdict = |runs: &[SideRun], rule| {
            let goal = goal(Metric::Iops, Compare::Ratio, Bound::AtLeast(1.0), &[NONE]);
            Goal { rule, ..goal }.judge(&Index::new(runs)).verdict
        };
        let alone = [run(&AUTO, &[1.0])];
        assert_eq!(verdict(&alone, Rule::IfThere), BoundVerdict::Unjudged);
        assert_eq!(verdict(&alone, Rule::Median), BoundVerdict::Missed);
        let failing = [run(&AUTO, &[0.0]), run(&NONE, &[1.0])];
        assert_eq!(verdict(&failing, Rule::IfThere), BoundVerdict::Missed);
    }

    #[test]
    fn a_comparison_without_a_bound_is_only_reported() {
        let goal = goal(Metric::Iops, Compare::Ratio, Bound::AtLeast(1.0), &[NONE]);
        let runs = [run(&AUTO, &[50.0]), run(&NONE, &[100.0])];
        let judged = Goal { bound: None, ..goal }.judged(&Index::new(&runs));
        assert_eq!((judged.value, judged.verdict()), (Some(0.5), None));
    }

    #[test]
    fn the_farthest_miss_is_found() {
        let runs = [run(&AUTO, &[50.0]), run(&NONE, &[100.0]), run(&I10, &[60.0])];
        let against = |side| goal(Metric::Iops, Compare::Ratio, Bound::AtLeast(0.97), &[side]);
        let goals = [against(I10), against(NONE)];
        let found = farthest(&goals, &Index::new(&runs)).expect("two are missed");
        assert_eq!(found.among, [NONE]);
    }
}
