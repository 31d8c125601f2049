//! Tables of panels and profiles. A cell that failed begins with `!`.

use super::plan::{CpuPart, EvalPoint, Panel};
use super::result::EvalData;
use crate::metric::Metric;
use crate::page::Grid;
use crate::tables::distinct;

/// Every cell of a panel with all that explains it.
pub(crate) fn panel(panel: &Panel, data: &EvalData) -> Grid {
    let has_second_load = panel.cells.iter().any(|cell| cell.point.load.second_load.is_some());
    let mut metrics = Metric::ALWAYS.to_vec();
    if panel.cells.iter().any(|cell| cell.point.load.steps) {
        metrics.push(Metric::Settle);
    }
    if has_second_load {
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
pub(crate) fn side_by_side(panel: &Panel, metrics: &[Metric], data: &EvalData) -> Grid {
    let ticks = distinct(panel.cells.iter().map(|cell| cell.tick.clone()));
    let series = distinct(panel.cells.iter().map(|cell| cell.series.clone()));
    let columns = || series.iter().flat_map(|one| metrics.iter().map(move |metric| (one, *metric)));
    let mut grid = vec![vec![panel.x_title().to_owned()]];
    grid[0].extend(columns().map(|(one, metric)| format!("{one}: {}", metric.title())));
    for tick in ticks {
        let value = |(one, metric): (&String, Metric)| {
            let cell = panel.cells.iter().find(|c| c.tick == tick && c.series == *one)?;
            data.value(metric, &cell.point).map(|value| metric.show(value))
        };
        let values = columns().map(|column| value(column).unwrap_or_else(|| "-".into()));
        grid.push(std::iter::once(tick.clone()).chain(values).collect());
    }
    grid
}

/// Parts of the CPU time.
pub(crate) fn profile(points: &[EvalPoint], data: &EvalData) -> Grid {
    let mut heading = vec!["policy".to_owned()];
    heading.extend(CpuPart::ALL.map(|part| format!("{}, ns per I/O", part.name())));
    heading.extend(["samples".to_owned(), "commonest others".to_owned()]);
    let mut grid = vec![heading];
    for point in points {
        let mut line = vec![point.side.to_string()];
        let Some(profile) = data.profile(point) else { continue };
        if let (true, Some(error)) = (profile.ns_per_io.is_empty(), &profile.error) {
            line.push(format!("!failed: {error}"));
        } else {
            line.extend(CpuPart::ALL.map(|part| {
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
    use crate::workload::LabLoad;

    #[test]
    fn series_stand_side_by_side() {
        let (one, two) = (LabLoad::small(100, 1), LabLoad::small(100, 2));
        let evaluation = evaluation(&[(one, AUTO, &[1e5]), (one, NONE, &[5e4])]);
        let panel = Panel::new("", XAxis::Ticks("depth")).loads(1, one, &[AUTO, NONE]).loads(
            2,
            two,
            &[AUTO],
        );
        let grid = side_by_side(&panel, &[Metric::Iops], &EvalData::new(&evaluation));
        assert_eq!(grid[0], ["depth", "auto: kIOPS", "none: kIOPS"]);
        assert_eq!(grid[1..], [["1", "100", "50.0"], ["2", "-", "-"]]);
    }
}
