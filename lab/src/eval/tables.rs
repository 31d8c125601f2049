//! Tables of panels, bars and profiles, for the report and for docs/PERFORMANCE.md. A cell that is
//! missed or failed begins with `!`.

use super::judge::{self, BarResult};
use super::metric::Metric;
use super::plan::{Bar, Limit, Panel, Part, Point};
use super::result::Data;
use crate::grid::Grid;

/// Every cell of a panel with all that explains it.
pub(crate) fn panel(panel: &Panel, data: &Data) -> Grid {
    let beside = panel.cells.iter().any(|cell| cell.point.load.beside.is_some());
    let mut metrics = Metric::ALWAYS.to_vec();
    if panel.cells.iter().any(|cell| cell.point.load.steps) {
        metrics.push(Metric::Settle);
    }
    if beside {
        metrics.extend(Metric::BESIDE);
    }
    if panel.cells.iter().any(|cell| cell.point.load.wire.is_some_and(|w| w.is_gigabit)) {
        metrics.push(Metric::LinkUse);
    }
    if panel.cells.iter().any(|cell| cell.point.load.wire.is_some()) {
        metrics.push(Metric::BusiestCore);
    }
    if panel.cells.iter().any(|cell| cell.point.load.threads.is_some()) {
        metrics.push(Metric::HostWakeUps);
    }
    let mut grid = vec![vec![panel.x_title().to_owned(), "policy".to_owned()]];
    grid[0].extend(metrics.iter().map(|metric| metric.title().to_owned()));
    for cell in &panel.cells {
        let mut line = vec![cell.tick.clone(), cell.series.clone()];
        let run = data.run(&cell.point);
        match run.and_then(|run| run.median.as_ref()) {
            Some(m) => {
                line.extend(metrics.iter().map(|metric| {
                    metric.of(m).map_or_else(|| "-".into(), |value| metric.show(value))
                }))
            }
            None => {
                let error = run.and_then(|run| run.error.as_deref()).unwrap_or("not run");
                line.push(format!("!failed: {error}"));
                line.resize(metrics.len() + 2, String::new());
            }
        }
        grid.push(line);
    }
    grid
}

/// A panel's series side by side: some figures of each, a line for each tick.
pub(crate) fn side_by_side(panel: &Panel, metrics: &[Metric], data: &Data) -> Grid {
    let ticks = distinct(panel.cells.iter().map(|cell| cell.tick.clone()));
    let series = distinct(panel.cells.iter().map(|cell| cell.series.clone()));
    let columns = || series.iter().flat_map(|one| metrics.iter().map(move |metric| (one, *metric)));
    let mut grid = vec![vec![panel.x_title().to_owned()]];
    grid[0].extend(columns().map(|(one, metric)| format!("{one}: {}", metric.title())));
    for tick in ticks {
        let value = |(one, metric): (&String, Metric)| {
            let cell = panel.cells.iter().find(|c| c.tick == tick && c.series == *one)?;
            metric.of(data.run(&cell.point)?.median.as_ref()?).map(|value| metric.show(value))
        };
        let values = columns().map(|column| value(column).unwrap_or_else(|| "-".into()));
        grid.push(std::iter::once(tick.clone()).chain(values).collect());
    }
    grid
}

/// Bars with what was reached.
pub(crate) fn bars(bars: &[Bar], data: &Data) -> Grid {
    let heading = ["", "", "figure", "auto", "best other", "who", "reached", "bar", ""];
    let mut grid = vec![crate::grid::strings(&heading)];
    for bar in bars {
        let result = judge::bar(bar, data);
        let show = |value: Option<f64>| value.map_or("-".into(), |v| bar.metric.show(v));
        let mark = mark(&result);
        grid.push(vec![
            bar.row.clone(),
            bar.column.clone(),
            bar.metric.title().to_owned(),
            show(result.of),
            show(result.to),
            result.best.map_or("-".into(), |point| point.side.to_string()),
            format!("{mark}{}{}", reached(bar.limit, &result), between(bar.limit, &result)),
            bar.limit.to_string(),
            match (result.pass, result.open) {
                (_, true) => "open",
                (true, _) => "kept",
                (false, _) => "!MISSED",
            }
            .to_owned(),
        ]);
    }
    grid
}

/// A missed bar in a line.
pub(crate) fn missed(bar: &Bar, data: &Data) -> String {
    let result = judge::bar(bar, data);
    let (reached, between) = (reached(bar.limit, &result), between(bar.limit, &result));
    let (column, row, figure) = (&bar.column, &bar.row, bar.metric.title());
    format!("{column}, {row}: {figure} {reached}{between} ({})", bar.limit)
}

/// Missed, or left open by the rounds.
fn mark(result: &BarResult) -> &'static str {
    match (result.pass, result.open) {
        (_, true) => "~",
        (true, _) => "",
        (false, _) => "!",
    }
}

fn reached(limit: Limit, result: &BarResult) -> String {
    result.value.map_or("-".into(), |value| show(limit, value))
}

/// The interval of what was reached, if the rounds give one.
fn between(limit: Limit, result: &BarResult) -> String {
    let show = |(least, most)| format!(" [{} {}]", show(limit, least), show(limit, most));
    result.interval.map_or_else(String::new, show)
}

fn show(limit: Limit, value: f64) -> String {
    match limit {
        Limit::Above(_) => format!("{value:+.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The same, short: what was reached by row and column, each column a condition and a figure.
pub(crate) fn matrix(bars: &[Bar], data: &Data) -> Grid {
    let rows = distinct(bars.iter().map(|bar| bar.row.clone()));
    let column = |bar: &Bar| format!("{}: {} {}", bar.column, bar.metric.title(), bar.limit);
    let columns = distinct(bars.iter().map(column));
    let mut grid = vec![vec![String::new()]];
    grid[0].extend(columns.iter().cloned());
    for row in rows {
        let cells = columns.iter().map(|wanted| {
            let bar = bars.iter().find(|bar| bar.row == row && column(bar) == *wanted);
            bar.map_or_else(String::new, |bar| {
                let result = judge::bar(bar, data);
                let mark = mark(&result);
                let who = result.best.filter(|_| bar.among.len() > 1);
                let who = who.map_or_else(String::new, |best| format!(" {}", best.side));
                let between = match mark {
                    "" => String::new(),
                    _ => between(bar.limit, &result),
                };
                format!("{mark}{}{between}{who}", reached(bar.limit, &result))
            })
        });
        grid.push(std::iter::once(row.clone()).chain(cells).collect());
    }
    grid
}

fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// Parts of the CPU time.
pub(crate) fn profile(points: &[Point], data: &Data) -> Grid {
    let mut heading = vec!["policy".to_owned()];
    heading.extend(Part::ALL.map(|part| format!("{}, ns per I/O", part.name())));
    heading.extend(["samples".to_owned(), "commonest others".to_owned()]);
    let mut grid = vec![heading];
    for point in points {
        let mut line = vec![point.side.to_string()];
        let Some(profile) = data.profile(point) else { continue };
        if let (true, Some(error)) = (profile.ns_per_io.is_empty(), &profile.error) {
            line.push(format!("!failed: {error}"));
        } else {
            line.extend(Part::ALL.map(|part| {
                data.part(part, point).map_or_else(|| "-".into(), |ns| format!("{ns:.0}"))
            }));
            line.push(profile.samples.to_string());
            let others = profile.other_symbols.iter().take(4).map(|(name, _)| name.as_str());
            line.push(others.collect::<Vec<_>>().join(", "));
        }
        line.resize(grid[0].len(), String::new());
        grid.push(line);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::plan::{AUTO, NONE, XAxis};
    use crate::eval::result::tests::evaluation;
    use crate::workload::Load;

    #[test]
    fn series_stand_side_by_side() {
        let (one, two) = (Load::small(100, 1), Load::small(100, 2));
        let evaluation = evaluation(&[(one, AUTO, &[1e5]), (one, NONE, &[5e4])]);
        let panel = Panel::new("", XAxis::Ticks("depth")).loads(1, one, &[AUTO, NONE]).loads(
            2,
            two,
            &[AUTO],
        );
        let grid = side_by_side(&panel, &[Metric::Iops], &Data::new(&evaluation));
        assert_eq!(grid[0], ["depth", "auto: kIOPS", "none: kIOPS"]);
        assert_eq!(grid[1..], [["1", "100", "50.0"], ["2", "-", "-"]]);
    }

    #[test]
    fn a_matrix_marks_what_is_missed() {
        let (one, two) = (Load::small(100, 1), Load::small(100, 2));
        let evaluation = evaluation(&[
            (one, AUTO, &[100.0]),
            (one, NONE, &[100.0]),
            (two, AUTO, &[50.0]),
            (two, NONE, &[100.0]),
        ]);
        let bar = |row: &str, load| Bar {
            row: row.into(),
            column: "mem".into(),
            metric: Metric::Iops,
            of: Point::new(load, AUTO),
            among: vec![Point::new(load, NONE)],
            limit: Limit::Min(0.97),
        };
        let bars = [bar("depth 1", one), bar("depth 2", two), bar("depth 4", Load::small(1, 4))];
        let matrix = matrix(&bars, &Data::new(&evaluation));
        assert_eq!(matrix[0], ["", "mem: kIOPS >= 0.97"]);
        assert_eq!(matrix[1], ["depth 1", "1.00"]);
        assert_eq!(matrix[2], ["depth 2", "!0.50"]);
        assert_eq!(matrix[3], ["depth 4", "!-"]);
    }
}
