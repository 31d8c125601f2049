//! Pages of applications: tables of what was measured, and the goals.

use super::Applications;
use super::plan::{AppRow, Filesystem};
use super::side::{AppSide, OURS};
use crate::eval::chart;
use crate::judge::{Goal, Score, score_goals};
use crate::machine::Conditions;
use crate::measure::Measure;
use crate::page::{Grid, PageParts, cells};
use crate::runs::{Index, SideRun};
use crate::tables::{BoundIn, matrix};

/// Characters of a failure that tables show; the JSON has it all.
const FAILURE_CHARACTERS: usize = 80;
/// Users of CPU time.
const PARTS: [&str; 4] = ["application", "client", "server", "rest"];

/// Results with their index.
struct AppsView<'a> {
    applications: &'a Applications,
    index: Index<'a>,
    /// Rows that were run, in the order of the plan.
    rows: Vec<AppRow>,
}

impl<'a> AppsView<'a> {
    fn new(applications: &'a Applications) -> Self {
        let is_run = |row: &AppRow| applications.runs.iter().any(|run| run.case == row.to_string());
        let rows = applications.extent().rows().into_iter().filter(is_run).collect();
        Self { applications, index: Index::new(&applications.runs), rows }
    }

    fn goals(&self) -> Vec<Goal<(String, String)>> {
        self.rows.iter().copied().flat_map(AppRow::goals).collect()
    }

    /// Runs of a row on all sides.
    fn of(&self, row: AppRow) -> impl Iterator<Item = &'a SideRun> {
        let row = row.to_string();
        self.applications.runs.iter().filter(move |run| run.case == row)
    }

    fn introduction(&self) -> [String; 2] {
        let Applications { conditions, device_bytes, minutes, .. } = self.applications;
        let Conditions { machine, command, rounds, seconds } = conditions;
        let mib = device_bytes >> 20;
        [
            format!("{machine}."),
            format!(
                "Medians of {rounds} alternating rounds of {seconds} s each; all sides are up all the time, with \
                 {mib} MiB each. It took {minutes:.0} minutes. Command: `{command}`."
            ),
        ]
    }

    fn tally(&self) -> String {
        tally(score_goals(&self.goals(), &self.index))
    }

    fn matrix(&self, goals: &[Goal<(String, String)>]) -> Grid {
        matrix(&format!("{OURS} against"), goals, &self.index, BoundIn::Column)
    }

    /// A row on all sides; a cell that failed begins with `!`.
    fn grid(&self, row: AppRow) -> Grid {
        let unit = row.workload.unit().split(',').next().unwrap_or_default();
        let heading = cells(&format!(
            " | per second | MB/s | p50 us | p99 us | per CPU-second | CPU-us per {unit} | of that application \
             | client | server | rest | switches | client's | server's"
        ));
        let line = |run: &SideRun| {
            let mut line = vec![run.side.clone()];
            match &run.median {
                Some(m) => line.extend(figures(m)),
                None => line.push(failure(run)),
            }
            line.resize(heading.len(), String::new());
            line
        };
        [heading.clone()].into_iter().chain(self.of(row).map(line)).collect()
    }

    /// CPU time of an operation on each side, by its user.
    fn chart(&self, row: AppRow) -> Option<String> {
        let measured =
            self.of(row).filter_map(|run| Some((run.side.as_str(), run.median.as_ref()?)));
        let bars: Vec<(&str, &Measure)> = measured.collect();
        let name =
            |side: &str| AppSide::ALL.iter().find(|one| one.to_string() == side).map(|s| s.id());
        let names: Vec<String> =
            bars.iter().map(|(side, _)| name(side).unwrap_or(side).to_owned()).collect();
        let values = |part: usize| bars.iter().map(|(_, m)| cpu_us(m, used(m)[part])).collect();
        let parts: Vec<(&str, Vec<f64>)> =
            PARTS.iter().enumerate().map(|(at, name)| (*name, values(at))).collect();
        let unit = row.workload.unit().split(',').next().unwrap_or_default();
        let y = format!("CPU-us per {unit}");
        chart::stacked((&row.to_string(), "side", &y), &names, &parts)
    }
}

fn tally(score: Score) -> String {
    let text = format!("{score} goals kept");
    match score.unjudged {
        0 => text,
        unjudged => format!("{text}, {unjudged} not measured"),
    }
}

/// The section of the journal, and with charts the report.
pub(super) fn page(applications: &Applications) -> PageParts {
    let view = AppsView::new(applications);
    let mut page = PageParts::default();
    for text in view.introduction() {
        page.text(text);
    }
    let sides = applications.sides.iter().map(|one| match &one.skipped {
        None => format!("{}: {}.", one.side, one.how),
        Some(why) => format!("{}: SKIPPED: {why}. It would be {}.", one.side, one.how),
    });
    let skipped = applications.skipped.iter().map(|s| format!("{}: SKIPPED: {}.", s.what, s.why));
    page.list(sides.chain(skipped).collect());
    let goals = view.goals();
    if !goals.is_empty() {
        page.heading(3, "Goals");
        page.text(format!("{}.", view.tally()));
        page.wide(view.matrix(&goals));
    }
    for &row in &view.rows {
        page.heading(3, capital(&row.to_string()));
        page.charts(view.chart(row));
        page.wide(view.grid(row));
    }
    page
}

/// The goals without file systems and on one.
pub(super) fn short(applications: &Applications) -> PageParts {
    let view = AppsView::new(applications);
    let [machine, how] = view.introduction();
    let mut page = PageParts::default();
    page.text(format!("{machine}\n{how}\n{}, on all file systems.", view.tally()));
    let rows = view.rows.iter().filter(|row| row.filesystem != Some(Filesystem::Xfs));
    page.wide(view.matrix(&rows.copied().flat_map(AppRow::goals).collect::<Vec<_>>()));
    page
}

/// Charts with the names of their files.
pub(super) fn charts(applications: &Applications) -> Vec<(String, String)> {
    let view = AppsView::new(applications);
    let rows = view.rows.iter().enumerate();
    let chart = |(number, row): (usize, &AppRow)| {
        let name = format!("{}-{}.svg", row.workload.group().id(), number + 1);
        Some((name, view.chart(*row)?))
    };
    rows.filter_map(chart).collect()
}

/// CPU time of an operation, of so many cores.
fn cpu_us(m: &Measure, cores: f64) -> f64 {
    1e6 * cores / m.iops.max(1e-9)
}

/// Cores in the order of [`PARTS`].
fn used(m: &Measure) -> [f64; 4] {
    let usage = m.usage.unwrap_or_default();
    [usage.application.cores, usage.client.cores, usage.server.cores, usage.rest_cores()]
}

fn figures(m: &Measure) -> Vec<String> {
    let usage = m.usage.unwrap_or_default();
    let megabytes = match m.bytes_per_second {
        0.0 => "-".into(),
        bytes => number(bytes / 1e6),
    };
    let per_cpu = m.per_cpu_second().map_or_else(|| "-".into(), number);
    let [p50, p99] = [m.latency_us_p50, m.latency_us_p99].map(number);
    let mut figures = vec![number(m.iops), megabytes, p50, p99, per_cpu];
    let cores = [usage.machine.cores].into_iter().chain(used(m));
    figures.extend(cores.map(|cores| number(cpu_us(m, cores))));
    let switches = [usage.machine, usage.client, usage.server];
    figures
        .extend(switches.map(|cpu| format!("{:.2}", cpu.switches_per_second / m.iops.max(1e-9))));
    figures
}

fn failure(run: &SideRun) -> String {
    let error = run.error.as_deref().unwrap_or("not run");
    format!("!failed: {}", error.chars().take(FAILURE_CHARACTERS).collect::<String>())
}

/// With the digits that mean something.
fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn capital(text: &str) -> String {
    // Not of a program's name.
    match text.strip_prefix("scan") {
        Some(rest) => format!("Scan{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::tests::applications;
    use crate::runs::MeasuringExtent;
    use crate::xml;

    fn example() -> Applications {
        let row = MeasuringExtent::Quick.rows()[0];
        applications(&[
            (row, OURS, &[140.0]),
            (row, AppSide::Nbdfuse, &[100.0]),
            (row, AppSide::Qemu, &[0.0]),
        ])
    }

    #[test]
    fn the_section_says_what_was_missed_failed_and_left_out() {
        let page = page(&example()).markdown();
        assert!(page.contains("**1.40**"), "{page}");
        assert!(page.contains("**failed: exit status: 2: error: no <such> \\| policy**"), "{page}");
        assert!(page.contains("tgt: SKIPPED: tgtd is not installed"), "{page}");
        assert!(page.contains("rocksdb: SKIPPED: no db_bench"), "{page}");
        assert!(page.contains("0 of 1 goals kept, 2 not measured"), "{page}");
        assert!(page.contains("| roadtrain auto | 140 |"), "{page}");
    }

    #[test]
    fn the_report_is_well_formed() {
        for applications in [example(), applications(&[])] {
            let page = page(&applications).html("Applications");
            xml::check(&page).unwrap_or_else(|e| panic!("{e}\n{page}"));
        }
        assert!(page(&example()).html("x").contains("<svg"));
    }
}
