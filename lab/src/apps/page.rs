//! The section of docs/PERFORMANCE.md, and the report: tables of what was measured, and the goals.

use super::chart;
use super::judge::{self, Judged, Verdict};
use super::plan::{Extent, Filesystem, Row};
use super::result::{Applications, Measure, RunResult};
use super::side::{ALTERNATIVES, OURS};
use crate::eval::html;
use crate::grid::{self, Grid, strings};
use std::fmt::Write;

/// Of a failure so much is told in tables; the JSON has it all.
const FAILURE_CHARACTERS: usize = 80;

/// What stands between the markers.
pub(super) fn markdown(applications: &Applications) -> String {
    let mut out = String::new();
    writeln!(out, "{}", introduction(applications).join("\n\n")).expect("a string takes all");
    for line in sides(applications).into_iter().chain(skipped(applications)) {
        write!(out, "\n- {line}").expect("a string takes all");
    }
    out.push('\n');
    let judged = judge::all(applications);
    if !judged.is_empty() {
        writeln!(out, "\n### Goals\n\n{}.\n", judge::tally(&judged)).expect("a string takes all");
        grid::write_plain(&mut out, &goals(&judged));
    }
    for row in rows(applications) {
        writeln!(out, "\n### {}\n", capital(&row.to_string())).expect("a string takes all");
        grid::write_plain(&mut out, &grid(row, applications));
    }
    out
}

/// The goals without file systems and on one, and how they were measured.
pub(super) fn short(applications: &Applications) -> String {
    let mut judged = judge::all(applications);
    let mut out = introduction(applications).join("\n");
    write!(out, "\n{}, on all file systems.\n\n", judge::tally(&judged))
        .expect("a string takes all");
    judged.retain(|goal| goal.bar.row.filesystem != Some(Filesystem::Xfs));
    grid::write_plain(&mut out, &goals(&judged));
    out
}

/// One page that needs nothing else.
pub(super) fn html(applications: &Applications) -> String {
    let mut body = String::new();
    for text in introduction(applications) {
        html::paragraph(&mut body, "", &text);
    }
    for line in sides(applications) {
        html::paragraph(&mut body, "", &line);
    }
    for line in skipped(applications) {
        html::paragraph(&mut body, "note", &line);
    }
    let judged = judge::all(applications);
    if !judged.is_empty() {
        writeln!(body, "<section>\n<h2>Goals</h2>").expect("a string takes all");
        html::paragraph(&mut body, "lead", &format!("{}.", judge::tally(&judged)));
        html::grid(&mut body, &goals(&judged));
        body.push_str("</section>\n");
    }
    for row in rows(applications) {
        let title = html::escape(&capital(&row.to_string()));
        writeln!(body, "<section>\n<h2>{title}</h2>").expect("a string takes all");
        if let Some(svg) = chart::svg(row, applications) {
            writeln!(body, "<div class=\"charts\"><figure>{svg}</figure></div>")
                .expect("a string takes all");
        }
        html::grid(&mut body, &grid(row, applications));
        body.push_str("</section>\n");
    }
    html::document("Roadtrain: real applications", &body)
}

/// The rows that were run, in the order of the plan.
pub(super) fn rows(applications: &Applications) -> Vec<Row> {
    let extent = if applications.quick { Extent::Quick } else { Extent::Full };
    let run = |row: &Row| applications.runs.iter().any(|run| run.row == row.to_string());
    extent.rows().into_iter().filter(run).collect()
}

fn introduction(applications: &Applications) -> Vec<String> {
    let a = applications;
    vec![
        format!("{}.", a.machine),
        format!(
            "Medians of {} alternating rounds of {} s each; all sides are up all the time, with \
             {} MiB each. It took {:.0} minutes. Command: `{}`.",
            a.rounds,
            a.seconds,
            a.device_bytes >> 20,
            a.minutes,
            a.command
        ),
    ]
}

fn sides(applications: &Applications) -> Vec<String> {
    let line = |side: &super::result::SideResult| match &side.skipped {
        None => format!("{}: {}.", side.side, side.how),
        Some(why) => format!("{}: SKIPPED: {why}. It would be {}.", side.side, side.how),
    };
    applications.sides.iter().map(line).collect()
}

fn skipped(applications: &Applications) -> Vec<String> {
    let line = |s: &super::result::Skipped| format!("{}: SKIPPED: {}.", s.what, s.why);
    applications.skipped.iter().map(line).collect()
}

/// A row on all sides; a cell that is missed or failed begins with `!`.
fn grid(row: Row, applications: &Applications) -> Grid {
    let each = format!("CPU-us per {}", row.workload.unit().split(',').next().unwrap_or_default());
    let heading = [
        "",
        "per second",
        "MB/s",
        "p50 us",
        "p99 us",
        "per CPU-second",
        each.as_str(),
        "of that application",
        "client",
        "server",
        "rest",
        "switches",
        "client's",
        "server's",
    ];
    let mut grid = vec![strings(&heading)];
    for run in applications.of(row) {
        let mut line = vec![run.side.clone()];
        match &run.median {
            Some(m) => line.extend(figures(m)),
            None => line.push(failure(run)),
        }
        line.resize(heading.len(), String::new());
        grid.push(line);
    }
    grid
}

fn figures(m: &Measure) -> [String; 13] {
    let loads = &m.loads;
    let cpu = |cores| number(m.cpu_us(cores));
    let switches = |load| format!("{:.2}", m.switches(load));
    [
        number(m.operations_per_second),
        m.bytes_per_second.map_or_else(|| "-".into(), |bytes| number(bytes / 1e6)),
        number(m.latency_us_p50),
        number(m.latency_us_p99),
        number(m.per_cpu_second()),
        cpu(loads.machine.cores),
        cpu(loads.application.cores),
        cpu(loads.client.cores),
        cpu(loads.server.cores),
        cpu(loads.rest_cores()),
        switches(loads.machine),
        switches(loads.client),
        switches(loads.server),
    ]
}

fn failure(run: &RunResult) -> String {
    let error = run.error.as_deref().unwrap_or("not run");
    format!("!failed: {}", error.chars().take(FAILURE_CHARACTERS).collect::<String>())
}

/// With the digits that mean something.
fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Ratios by row and alternative.
fn goals(judged: &[Judged]) -> Grid {
    let mut grid = vec![vec![format!("{OURS} against"), "bar".to_owned()]];
    grid[0].extend(ALTERNATIVES.map(|side| side.to_string()));
    let mut done = Vec::new();
    for Judged { bar, .. } in judged {
        let key = (bar.row, bar.figure);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let mut line = vec![format!("{}: {}", bar.row, bar.figure.title()), bar.bound()];
        line.extend(ALTERNATIVES.map(|to| {
            let same = |j: &&Judged| (j.bar.row, j.bar.figure) == key && j.bar.to == to;
            judged.iter().find(same).map_or_else(String::new, cell)
        }));
        grid.push(line);
    }
    grid
}

fn cell(judged: &Judged) -> String {
    let ratio = judged.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
    if judged.verdict == Verdict::Missed { format!("!{ratio}") } else { ratio }
}

fn capital(text: &str) -> String {
    // Not of a program's name.
    match text.strip_prefix("scan") {
        Some(rest) => format!("Scan{rest}"),
        None => text.to_owned(),
    }
}

/// How it went, for a terminal.
pub(super) fn summary(applications: &Applications) -> String {
    let mut out = String::new();
    for row in rows(applications) {
        writeln!(out, "{row}").expect("a string takes all");
        grid::write(&mut out, &grid(row, applications));
    }
    let judged = judge::all(applications);
    for Judged { bar, ratio, verdict } in &judged {
        let (row, figure, to, bound) = (bar.row, bar.figure.title(), bar.to, bar.bound());
        let ratio = ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        writeln!(out, "{verdict:<10} {ratio:>5} ({bound}): {row}: {figure} against {to}")
            .expect("a string takes all");
    }
    if !judged.is_empty() {
        writeln!(out, "{}", judge::tally(&judged)).expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::result::tests::applications;
    use crate::apps::side::Side;
    use crate::eval::xml;

    fn example() -> Applications {
        let row = Extent::Quick.rows()[0];
        applications(&[
            (row, OURS, &[140.0]),
            (row, Side::Nbdfuse, &[100.0]),
            (row, Side::Qemu, &[0.0]),
        ])
    }

    #[test]
    fn the_section_says_what_was_missed_failed_and_left_out() {
        let page = markdown(&example());
        assert!(page.contains("**1.40**"), "{page}");
        assert!(page.contains("**failed: fio: exit status: 1: <no> \\| device**"), "{page}");
        assert!(page.contains("tgt: SKIPPED: tgtd is not installed"), "{page}");
        assert!(page.contains("rocksdb: SKIPPED: no db_bench"), "{page}");
        assert!(page.contains("0 of 1 goals kept, 2 not measured"), "{page}");
        assert!(page.contains("| roadtrain auto | 140 |"), "{page}");
    }

    #[test]
    fn the_report_is_well_formed() {
        for applications in [example(), applications(&[])] {
            let page = html(&applications);
            xml::check(&page).unwrap_or_else(|e| panic!("{e}\n{page}"));
        }
    }

    #[test]
    fn the_summary_has_all_goals() {
        let text = summary(&example());
        assert!(text.contains("missed      1.40 (>= 1.50)"), "{text}");
        assert!(text.contains("not there      - (>= 1.50)"), "{text}");
    }
}
