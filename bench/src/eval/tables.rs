//! Tables of panels, bars and profiles, for the report and for docs/PERFORMANCE.md. A cell that is
//! missed or failed begins with `!`.

use super::judge::{self, BarResult};
use super::metric::Metric;
use super::plan::{Bar, Limit, Panel, Part, Point, XAxis};
use super::result::Data;
use crate::grid::Grid;

/// Every cell of a panel with all that explains it.
pub(crate) fn panel(panel: &Panel, data: &Data) -> Grid {
    let beside = panel.cells.iter().any(|cell| cell.point.load.beside.is_some());
    let mut metrics = Metric::ALWAYS.to_vec();
    if beside {
        metrics.extend(Metric::BESIDE);
    }
    let first = match panel.x {
        XAxis::Ticks(title) => title,
        XAxis::Measured(_) => "of the peak",
    };
    let mut grid = vec![vec![first.to_owned(), "policy".to_owned()]];
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

/// Bars with what was reached.
pub(crate) fn bars(bars: &[Bar], data: &Data) -> Grid {
    let heading = ["load", "figure", "auto", "best other", "who", "reached", "bar", ""];
    let mut grid = vec![crate::grid::strings(&heading)];
    for bar in bars {
        let result = judge::bar(bar, data);
        let show = |value: Option<f64>| value.map_or("-".into(), |v| bar.metric.show(v));
        let mark = if result.pass { "" } else { "!" };
        grid.push(vec![
            bar.text.clone(),
            bar.metric.title().to_owned(),
            show(result.of),
            show(result.to),
            result.best.map_or("-".into(), |point| point.side.to_string()),
            format!("{mark}{}", reached(bar.limit, &result)),
            bar.limit.to_string(),
            if result.pass { "kept" } else { "!MISSED" }.to_owned(),
        ]);
    }
    grid
}

fn reached(limit: Limit, result: &BarResult) -> String {
    match (limit, result.value) {
        (_, None) => "-".into(),
        (Limit::Above(_), Some(value)) => format!("{value:+.1}"),
        (_, Some(value)) => format!("{value:.2}"),
    }
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
