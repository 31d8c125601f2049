//! Tables of goals and of checks, whatever has measured them. A cell that is missed begins with `!`.

use crate::judge::{BoundVerdict, Goal, GoalOutcome, Judged, Rule, digits};
use crate::page::{Grid, cells};
use crate::runs::{Index, NamedSide};

/// The place of a bound in a table of goals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoundIn {
    /// The heading of a column, with the figure.
    Heading,
    /// A column of its own.
    Column,
}

/// The comparison that was reached in each row and column.
pub(crate) fn matrix<P: NamedSide + Clone>(
    corner: &str,
    goals: &[Goal<P>],
    index: &Index,
    bounds: BoundIn,
) -> Grid {
    let row = |goal: &Goal<P>| match bounds {
        BoundIn::Heading => vec![goal.row.clone()],
        BoundIn::Column => vec![goal.row.clone(), goal.limit()],
    };
    let column = |goal: &Goal<P>| match bounds {
        BoundIn::Heading => format!("{}: {} {}", goal.column, goal.metric.title(), goal.limit()),
        BoundIn::Column => goal.column.clone(),
    };
    let columns = distinct(goals.iter().map(column));
    let mut heading = vec![corner.to_owned()];
    if bounds == BoundIn::Column {
        heading.push("bar".into());
    }
    heading.extend(columns.iter().cloned());
    let mut grid = vec![heading];
    for wanted in distinct(goals.iter().map(row)) {
        let cell = |name: &String| {
            let goal = goals.iter().find(|goal| row(goal) == wanted && column(goal) == *name);
            goal.map_or_else(String::new, |goal| cell(goal, &goal.judge(index)))
        };
        grid.push(wanted.iter().cloned().chain(columns.iter().map(cell)).collect());
    }
    grid
}

fn cell<P: NamedSide + Clone>(goal: &Goal<P>, outcome: &GoalOutcome<P>) -> String {
    let mark = mark(outcome.verdict);
    let best = outcome.best.as_ref().filter(|_| goal.among.len() > 1);
    let best = best.map_or_else(String::new, |best| format!(" {}", best.side()));
    let between = if mark.is_empty() { String::new() } else { between(goal, outcome) };
    format!("{mark}{}{between}{best}", reached(goal, outcome))
}

/// A line for each goal, with all that it compares.
pub(crate) fn goals<P: NamedSide + Clone>(goals: &[Goal<P>], index: &Index) -> Grid {
    let mut grid =
        vec![cells(" |  | figure | reached | best other | its side | compared | bar | ")];
    for goal in goals {
        let outcome = goal.judge(index);
        let show = |value: Option<f64>| value.map_or("-".into(), |v| goal.metric.show(v));
        let mark = mark(outcome.verdict);
        grid.push(vec![
            goal.row.clone(),
            goal.column.clone(),
            goal.metric.title().to_owned(),
            show(outcome.of),
            show(outcome.to),
            outcome.best.as_ref().map_or("-".into(), NamedSide::side),
            format!("{mark}{}{}", reached(goal, &outcome), between(goal, &outcome)),
            goal.limit(),
            format!("{}{}", mark.trim_start_matches('~'), outcome.verdict),
        ]);
    }
    grid
}

/// A missed goal in a line.
pub(crate) fn missed<P: NamedSide + Clone>(goal: &Goal<P>, index: &Index) -> String {
    let outcome = goal.judge(index);
    let (reached, between) = (reached(goal, &outcome), between(goal, &outcome));
    let (column, row, figure) = (&goal.column, &goal.row, goal.metric.title());
    format!("{column}, {row}: {figure} {reached}{between} ({})", goal.limit())
}

fn mark(verdict: BoundVerdict) -> &'static str {
    match verdict {
        BoundVerdict::Kept | BoundVerdict::Unjudged => "",
        BoundVerdict::Open => "~",
        BoundVerdict::Missed => "!",
    }
}

fn reached<P: NamedSide + Clone>(goal: &Goal<P>, outcome: &GoalOutcome<P>) -> String {
    outcome.value.map_or("-".into(), |value| goal.show(value))
}

/// The interval, where it decides and the rounds give one.
fn between<P: NamedSide + Clone>(goal: &Goal<P>, outcome: &GoalOutcome<P>) -> String {
    let interval = outcome.interval.filter(|_| goal.rule == Rule::Interval);
    let show = |(least, most)| format!(" [{} {}]", goal.show(least), goal.show(most));
    interval.map_or_else(String::new, show)
}

/// A line for each figure of checks.
pub(crate) fn checks<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> Grid {
    let mut grid = vec![cells("check | figure | measured | unit | bar |  | note")];
    grid.extend(judged.into_iter().map(|judged| {
        vec![
            judged.case.clone(),
            judged.what.clone(),
            value(judged),
            judged.unit.clone(),
            judged
                .bound
                .filter(|_| judged.value.is_some())
                .map_or_else(String::new, |b| b.to_string()),
            judged.verdict().map_or("", verdict).to_owned(),
            judged.note.clone(),
        ]
    }));
    let columns = grid[0].len();
    if grid[1..].iter().all(|line| line[columns - 1].is_empty()) {
        grid.iter_mut().for_each(|line| line.truncate(columns - 1));
    }
    grid
}

/// A figure with its bound in a few words.
pub(crate) fn short(judged: &Judged) -> String {
    let Some((bound, held)) = judged.bound.zip(judged.verdict()) else { return String::new() };
    let unit = if judged.unit.is_empty() { String::new() } else { format!(" {}", judged.unit) };
    let held = if held == BoundVerdict::Missed { "MISSED" } else { "kept" };
    format!("{} {}{unit} ({bound}) {held}", judged.what, value(judged))
}

/// A line for each case that has bounds: how many were kept, and all that were not.
pub(crate) fn by_case<'a>(
    cases: impl Iterator<Item = &'a str>,
    judged: &[Judged],
    about: impl Fn(&str) -> &'static str,
) -> Grid {
    let mut grid = vec![cells("check | what it asks | measured | bars kept | missed")];
    for case in cases {
        let bound = |one: &&Judged| one.case == case && one.bound.is_some();
        let of_case: Vec<&Judged> = judged.iter().filter(bound).collect();
        let Some(first) = of_case.first() else { continue };
        let values = || of_case.iter().filter_map(|one| one.value);
        let least = values().reduce(f64::min).map_or_else(|| "-".into(), digits);
        let most = values().reduce(f64::max).map_or_else(|| "-".into(), digits);
        let is_missed = |one: &&&Judged| one.verdict() == Some(BoundVerdict::Missed);
        let missed = of_case.iter().filter(is_missed).map(|one| {
            let bound = one.bound.map_or_else(String::new, |bound| bound.to_string());
            format!("{}: {} ({bound})", one.what, value(one))
        });
        grid.push(vec![
            case.to_owned(),
            about(case).to_owned(),
            match of_case.iter().all(|one| one.unit == first.unit) {
                false => "-".into(),
                true if least == most => format!("{least} {}", first.unit).trim_end().to_owned(),
                true => format!("{least} to {most} {}", first.unit),
            },
            crate::judge::score(of_case.iter().copied()).to_string(),
            missed.collect::<Vec<_>>().join("; "),
        ]);
    }
    grid
}

fn value(judged: &Judged) -> String {
    judged.value.map_or_else(|| "-".into(), digits)
}

fn verdict(verdict: BoundVerdict) -> &'static str {
    if verdict == BoundVerdict::Missed { "!MISSED" } else { "kept" }
}

/// Each once, in the order in which they first appear.
pub(crate) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Bound;
    use crate::metric::Metric;
    use crate::runs::Compare;
    use crate::runs::tests::run;

    #[test]
    fn a_matrix_marks_what_is_missed() {
        let runs = [
            run(&("one", "auto"), &[100.0]),
            run(&("one", "none"), &[100.0]),
            run(&("two", "auto"), &[50.0]),
            run(&("two", "none"), &[100.0]),
        ];
        let goal = |row: &str, load: &'static str| Goal {
            row: row.into(),
            column: "mem".into(),
            metric: Metric::Iops,
            compare: Compare::Ratio,
            of: (load, "auto"),
            among: vec![(load, "none")],
            bound: Some(Bound::AtLeast(0.97)),
            rule: Rule::Interval,
        };
        let goals = [goal("depth 1", "one"), goal("depth 2", "two"), goal("depth 4", "three")];
        let index = Index::new(&runs);
        let grid = matrix("", &goals, &index, BoundIn::Heading);
        assert_eq!(grid[0], ["", "mem: kIOPS >= 0.97"]);
        assert_eq!(grid[1], ["depth 1", "1.00"]);
        assert_eq!(grid[2], ["depth 2", "!0.50"]);
        assert_eq!(grid[3], ["depth 4", "!-"]);
        let grid = matrix("load", &goals, &index, BoundIn::Column);
        assert_eq!(grid[0], ["load", "bar", "mem"]);
        assert_eq!(grid[2], ["depth 2", ">= 0.97", "!0.50"]);
        assert_eq!(super::goals(&goals, &index)[3][6..], ["!-", ">= 0.97", "!missed"]);
    }

    #[test]
    fn checks_have_a_line_each_and_a_summary() {
        let judged = [
            Judged::new("use", "reads", "%", 90.0).at_least(95.0),
            Judged::new("use", "writes", "%", 96.5).at_least(95.0),
            Judged::new("links", "two", "x", 1.9),
        ];
        let grid = checks(&judged);
        assert_eq!(grid[1], ["use", "reads", "90", "%", ">= 95", "!MISSED"]);
        assert_eq!(grid[3], ["links", "two", "1.90", "x", "", ""]);
        assert_eq!(short(&judged[0]), "reads 90 % (>= 95) MISSED");
        let grid = by_case(["use", "links"].into_iter(), &judged, |_| "about");
        assert_eq!(grid.len(), 2);
        assert_eq!(grid[1], ["use", "about", "90 to 96.5 %", "1 of 2", "reads: 90 (>= 95)"]);
    }
}
