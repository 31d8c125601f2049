//! The table's pages: for each section its columns, as data.

use super::TableResults;
use super::hosts;
use super::plan::{self, TableCase, TableSection};
use crate::judge::{Judged, score};
use crate::machine::Conditions;
use crate::measure::Measure;
use crate::page::{Grid, PageParts, optional, pair};
use crate::runs::Index;
use crate::tables::{checks, short as in_short};

/// A column of a section's table.
#[derive(Clone, Copy)]
enum SectionColumn {
    Title,
    /// A figure of a run.
    Of(&'static str, Show),
    /// IOPS of a run, as a multiple of the first case's.
    OfFirst(&'static str),
    /// A ratio, by its name.
    Ratio(&'static str),
    /// Everything with a bound, or the failure.
    Goals,
}

type Show = fn(&Measure) -> String;
/// Columns with their headings.
type Columns = &'static [(&'static str, SectionColumn)];
use SectionColumn::{Goals, Of, OfFirst, Ratio, Title};

/// Sections with their headings and columns, in the order of the page.
const SECTIONS: [(TableSection, &str, Columns); 11] = [
    (
        TableSection::Default,
        "Without any option: 4 KiB random, one lane; kIOPS / p99 us / CPU-us/IO of both ends",
        &[
            ("load, in flight", Title),
            ("`auto`", Of("auto", iops_p99_cpu)),
            ("`none`", Of("none", iops_p99_cpu)),
            ("floor, polling 50 us", Of("floor", iops_p99_cpu)),
            ("peer", Of("peer", iops_p99_cpu)),
            ("IOPS of the floor", Ratio("IOPS of the floor")),
            ("goal", Goals),
        ],
    ),
    (
        TableSection::Throughput,
        "4 KiB random, depth 128, one lane",
        &comparison("kIOPS", kiops, "IOPS"),
    ),
    (
        TableSection::Bandwidth,
        "128 KiB random, depth 32, one lane",
        &comparison("GB/s", gigabytes, "bandwidth"),
    ),
    (
        TableSection::RoundTrip,
        "4 KiB random reads, depth 1: the round trip",
        &comparison("mean us", mean, "latency"),
    ),
    (
        TableSection::Parts,
        "What each part adds: 4 KiB random reads, 128 in flight",
        &[
            ("step", Title),
            ("kIOPS", Of("product", kiops)),
            ("times the first", OfFirst("product")),
            ("mean us", Of("product", mean)),
            ("p99 us", Of("product", p99)),
            ("CPU-us/IO host + target", Of("product", cpu_sum)),
            ("per caravan host / target", Of("product", carried)),
            ("syscalls/IO", Of("product", syscalls)),
            ("switches/IO", Of("product", switches)),
        ],
    ),
    (
        TableSection::Depths,
        "Latency of 4 KiB random reads by depth",
        &[
            ("depth, policy", Title),
            ("kIOPS", Of("product", kiops_fine)),
            ("mean us", Of("product", mean)),
            ("p50 us", Of("product", |m| format!("{:.1}", m.latency_us_p50))),
            ("p99 us", Of("product", p99)),
            ("CPU-us/IO host + target", Of("product", cpu_sum)),
            ("floor: kIOPS", Of("floor", kiops_fine)),
            ("mean us", Of("floor", mean)),
            ("p99 us", Of("floor", p99)),
        ],
    ),
    (
        TableSection::Cores,
        "Cores: 4 KiB random reads, 128 in flight on each lane",
        &[
            ("set-up", Title),
            ("kIOPS", Of("product", kiops)),
            ("floor", Of("floor", kiops)),
            ("p99 us", Of("product", p99)),
            ("floor", Of("floor", p99)),
            ("CPU-us/IO", Of("product", cpu)),
            ("floor", Of("floor", cpu)),
            ("goal", Goals),
        ],
    ),
    (
        TableSection::Connections,
        "Many connections: 4 KiB random reads, 1,024 in flight in all",
        &[
            ("connections x depth", Title),
            ("kIOPS", Of("product", kiops)),
            ("bare exchange", Of("bare exchange", kiops)),
            ("of one", OfFirst("product")),
            ("bare, of one", OfFirst("bare exchange")),
            ("p99 us", Of("product", |m| format!("{:.0}", m.latency_us_p99))),
            ("CPU-us/IO", Of("product", cpu)),
            ("fairness", Of("product", |m| optional(m.fairness, 3))),
            ("KiB each in the target", Of("product", |m| optional(m.target_kib, 1))),
            ("goal", Goals),
        ],
    ),
    (
        TableSection::Hosts,
        "Several host processes: 4 KiB random reads, one lane each, target on core 1; kIOPS / p99 us",
        &[
            ("processes x in flight", Title),
            ("default", Of("default", iops_and_p99)),
            ("`none`", Of("none", iops_and_p99)),
            ("`none --no-spin`", Of("none --no-spin", iops_and_p99)),
            ("`none --spin-us 50`", Of("none --spin-us 50", iops_and_p99)),
            ("`auto --spin-us 50`", Of("auto --spin-us 50", iops_and_p99)),
            ("goal", Goals),
        ],
    ),
    (
        TableSection::Tls,
        "TLS: with it, without it, and what AES-128-GCM alone takes",
        &[
            ("load", Title),
            ("plain kIOPS", Of("plain", kiops_fine)),
            ("TLS kIOPS", Of("TLS", kiops_fine)),
            ("plain mean us", Of("plain", mean)),
            ("TLS mean us", Of("TLS", mean)),
            ("plain CPU-us/IO host + target", Of("plain", cpu_sum)),
            ("cipher alone", Of("cipher", cpu_ends)),
            ("TLS CPU-us/IO host + target", Of("TLS", cpu_sum)),
            ("goal", Goals),
        ],
    ),
    (
        TableSection::Waiting,
        "Waiting: 4 KiB random reads, mean us and CPU-us/IO of both ends",
        &[
            ("load", Title),
            ("--no-spin", Of("--no-spin", mean_and_cpu)),
            ("--spin-us 20", Of("--spin-us 20", mean_and_cpu)),
            ("--spin-us 50", Of("--spin-us 50", mean_and_cpu)),
            ("default", Of("default", mean_and_cpu)),
            ("--busy-poll", Of("--busy-poll", mean_and_cpu)),
            ("polled floor", Of("polled floor", mean_and_cpu)),
            ("default's goals", Goals),
        ],
    ),
];

/// Columns of a table of the costs of each run.
const INSTRUMENTS: [(&str, Show); 5] = [
    ("CPU-us/IO host / target", cpu_ends),
    ("per send host / target", carried),
    ("bytes/send host / target", |m| pair(m.bytes_per_send, m.target_bytes_per_send, 0)),
    ("syscalls/IO", syscalls),
    ("switches/IO", switches),
];

/// The product compared with the floor.
const fn comparison(
    unit: &'static str,
    show: Show,
    what: &'static str,
) -> [(&'static str, SectionColumn); 10] {
    [
        ("row", Title),
        (unit, Of("product", show)),
        ("floor", Of("floor", show)),
        ("ratio", Ratio(what)),
        ("p99 us", Of("product", p99)),
        ("floor", Of("floor", p99)),
        ("CPU-us/IO", Of("product", cpu)),
        ("floor", Of("floor", cpu)),
        ("ratio", Ratio("CPU")),
        ("goal", Goals),
    ]
}

/// A table's results with their plan.
struct TableView<'a> {
    table: &'a TableResults,
    index: Index<'a>,
    cases: Vec<TableCase>,
}

impl<'a> TableView<'a> {
    fn new(table: &'a TableResults) -> Self {
        let is_there = |case: &TableCase| table.runs.iter().any(|run| run.case == case.id);
        let cases = plan::cases().into_iter().chain(hosts::cases());
        let cases = cases.filter(is_there).collect();
        Self { table, index: Index::new(&table.runs), cases }
    }

    fn of(&self, section: TableSection) -> impl Iterator<Item = &TableCase> {
        self.cases.iter().filter(move |case| case.section == section)
    }

    fn figure(&self, case: &TableCase, side: &str, show: Show) -> String {
        self.index.median(&(case.id.as_str(), side)).map_or_else(|| "-".into(), show)
    }

    fn cell(&self, case: &TableCase, column: SectionColumn) -> String {
        match column {
            Title => case.title.clone(),
            Of(side, show) => self.figure(case, side, show),
            OfFirst(side) => {
                let iops =
                    |case: &TableCase| Some(self.index.median(&(case.id.as_str(), side))?.iops);
                let first = self.of(case.section).next().and_then(iops);
                optional(iops(case).zip(first).map(|(iops, first)| iops / first), 2)
            }
            Ratio(what) => {
                let is_it = |one: &&Judged| one.case == case.id && one.what == what;
                optional(self.table.judged.iter().find(is_it).and_then(|one| one.value), 2)
            }
            Goals => self.goals(case),
        }
    }

    fn goals(&self, case: &TableCase) -> String {
        let runs = self.table.runs.iter().filter(|run| run.case == case.id);
        if let Some(error) = runs.filter_map(|run| run.error.as_ref()).next() {
            return format!("!failed: {error}");
        }
        let judged = self.table.judged.iter();
        let goals = judged.filter(|one| one.case == case.id && one.bound.is_some()).map(in_short);
        goals.collect::<Vec<_>>().join(", ")
    }

    fn grid(&self, section: TableSection, columns: &[(&str, SectionColumn)]) -> Grid {
        let heading = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        let line =
            |case| columns.iter().map(|(_, column)| self.cell(case, *column)).collect::<Vec<_>>();
        [heading].into_iter().chain(self.of(section).map(line)).collect()
    }

    /// Messages that each send carried and the cost of each I/O, of the product and of the floor.
    fn instruments(&self, section: TableSection) -> Grid {
        let heading = ["row"].into_iter().chain(INSTRUMENTS.iter().map(|(title, _)| *title));
        let mut grid: Grid = vec![heading.map(str::to_owned).collect()];
        for case in self.of(section) {
            let floor = case.sides.iter().find_map(|side| match side {
                plan::TableSide::Floor(_, _, gather) => Some(format!("  floor, {gather}")),
                _ => None,
            });
            let lines = [(Some(case.title.clone()), "product"), (floor, "floor")];
            for (label, side) in lines.into_iter().filter_map(|(label, side)| Some((label?, side)))
            {
                let figures = INSTRUMENTS.iter().map(|(_, show)| self.figure(case, side, *show));
                grid.push([label].into_iter().chain(figures).collect());
            }
        }
        grid
    }

    /// Checks that are of no case.
    fn at_rest(&self) -> Vec<&'a Judged> {
        let is_case = |one: &&Judged| !self.cases.iter().any(|case| case.id == one.case);
        self.table.judged.iter().filter(is_case).collect()
    }

    fn introduction(&self) -> String {
        let medians = self.table.runs.iter().filter_map(|run| run.median.as_ref());
        let foreign = medians.map(|m| m.foreign_cores).fold(0.0, f64::max);
        let Conditions { machine, command, rounds, seconds } = &self.table.conditions;
        format!(
            "{machine}.\n\
             Medians of {rounds} alternating rounds of {seconds} s; others used up to {foreign:.2} cores meanwhile.\n\
             Command: `{command}`."
        )
    }
}

/// Everything.
pub(super) fn page(table: &TableResults) -> PageParts {
    let view = TableView::new(table);
    let mut page = PageParts::default();
    page.text(view.introduction());
    for (section, heading, columns) in SECTIONS {
        if view.of(section).next().is_none() {
            continue;
        }
        page.heading(3, heading);
        page.table(view.grid(section, columns));
        if matches!(
            section,
            TableSection::Throughput | TableSection::Bandwidth | TableSection::RoundTrip
        ) {
            page.text("Where it comes from:");
            page.table(view.instruments(section));
        }
    }
    let at_rest = view.at_rest();
    if !at_rest.is_empty() {
        page.heading(3, "At rest");
        page.table(checks(at_rest));
    }
    page.text(format!("{} goals kept.", score(&table.judged)));
    page
}

/// The comparisons with the floor in one table, and the usage at rest.
pub(super) fn short(table: &TableResults) -> PageParts {
    let view = TableView::new(table);

    let mut lines = vec![crate::page::cells(
        " | unit | reached | floor | ratio | p99 us | floor | CPU-us/IO | ratio",
    )];
    for (section, _, columns) in SECTIONS {
        let prefix = match section {
            TableSection::Throughput => "4 KiB ",
            TableSection::RoundTrip => "4 KiB reads, depth 1, ",
            TableSection::Bandwidth => "",
            _ => continue,
        };
        for case in view.of(section) {
            let mut line = vec![format!("{prefix}{}", case.title), columns[1].0.to_owned()];
            let shown = [1, 2, 3, 4, 5, 6, 8].map(|at: usize| columns[at].1);
            line.extend(shown.map(|column| view.cell(case, column)));
            lines.push(line);
        }
    }
    let mut page = PageParts::default();
    page.text(view.introduction());
    page.table(lines);
    page.table(checks(view.at_rest()));
    page.text(format!("{} goals kept.", score(&table.judged)));
    page
}

fn kiops(m: &Measure) -> String {
    format!("{:.0}", m.iops / 1e3)
}

fn kiops_fine(m: &Measure) -> String {
    format!("{:.1}", m.iops / 1e3)
}

fn gigabytes(m: &Measure) -> String {
    format!("{:.2}", m.bytes_per_second / 1e9)
}

fn mean(m: &Measure) -> String {
    format!("{:.1}", m.latency_us_mean)
}

fn p99(m: &Measure) -> String {
    format!("{:.1}", m.latency_us_p99)
}

fn cpu(m: &Measure) -> String {
    optional(m.cpu_us_per_io(), 2)
}

fn cpu_ends(m: &Measure) -> String {
    pair(m.host_cpu_us_per_io, m.target_cpu_us_per_io, 2)
}

fn cpu_sum(m: &Measure) -> String {
    match m.host_cpu_us_per_io.zip(m.target_cpu_us_per_io) {
        Some((host, target)) => format!("{:.2} = {host:.2} + {target:.2}", host + target),
        None => cpu_ends(m),
    }
}

fn mean_and_cpu(m: &Measure) -> String {
    format!("{} / {}", mean(m), cpu(m))
}

fn iops_and_p99(m: &Measure) -> String {
    format!("{} / {:.0}", kiops(m), m.latency_us_p99)
}

fn iops_p99_cpu(m: &Measure) -> String {
    format!("{} / {:.0} / {}", kiops(m), m.latency_us_p99, optional(m.cpu_us_per_io(), 1))
}

fn carried(m: &Measure) -> String {
    pair(m.requests_per_caravan, m.target_requests_per_caravan, 1)
}

fn syscalls(m: &Measure) -> String {
    optional(m.syscalls_per_io, 3)
}

fn switches(m: &Measure) -> String {
    optional(m.context_switches_per_io, 4)
}
