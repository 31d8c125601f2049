//! Checks: each measures some figures and holds them against their bounds. A report keeps the figures of checks that
//! were run at different times.

mod stamp;

use crate::judge::{Judged, score};
use crate::machine::LabMachine;
use crate::output::write_json;
use crate::page::PageParts;
use crate::{interrupt, links, noise, tables};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use stamp::CheckStamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Options of a set of checks.
#[derive(Debug, clap::Args)]
pub(crate) struct ChecksArgs {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// Only checks whose name contains one of these (comma-separated)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Name the checks and stop
    #[arg(long)]
    list: bool,
    /// Runs of each side, alternately; medians count [default: 5, ether: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Measured seconds of each run [default: 2, ether: 1]
    #[arg(long)]
    seconds: Option<f64>,
    /// Where the JSON goes, check by check; those that are not run keep what is there
    /// [default: lab/results/COMMAND.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Measure nothing: read what is in the output file
    #[arg(long)]
    render: bool,
}

/// The program and the manner of measuring that checks are given.
pub(crate) struct CheckBench {
    pub(crate) program: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

/// A check: its name, its subject, and the function that measures.
pub(crate) type CheckEntry<'a> =
    (&'static str, &'static str, &'a dyn Fn(&CheckBench) -> anyhow::Result<Vec<Judged>>);

/// The checks of a command, with their usual rounds and seconds.
pub(crate) struct Set<'a> {
    pub(crate) name: &'static str,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) needs_links: bool,
    pub(crate) checks: &'a [CheckEntry<'a>],
}

/// Results, as written to and read from JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ChecksReport {
    machine: Option<LabMachine>,
    /// Time and source of each check's run.
    stamps: BTreeMap<String, CheckStamp>,
    judged: Vec<Judged>,
}

/// Longest wait for a quiet machine.
const QUIET_MAX: Duration = Duration::from_secs(20);

/// Measures or reads what was measured; prints.
pub(crate) fn main(args: &ChecksArgs, set: &Set<'_>) -> anyhow::Result<()> {
    if args.list {
        set.checks.iter().for_each(|(name, about, _)| println!("{name:<9} {about}"));
        return Ok(());
    }
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| format!("lab/results/{}.json", set.name).into());
    let report = if args.render { read(&output)? } else { measure(args, set, &output)? };
    print!("{}", report.page().markdown());
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<ChecksReport> {
    let json = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    ChecksReport::parse(&json)
}

fn measure(args: &ChecksArgs, set: &Set<'_>, output: &Path) -> anyhow::Result<ChecksReport> {
    if let Some(why) = links::unavailable().filter(|_| set.needs_links) {
        bail!("no links: {why}");
    }
    ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| name.contains(o));
    let checks: Vec<&CheckEntry<'_>> = set.checks.iter().filter(|check| wanted(check.0)).collect();
    ensure!(!checks.is_empty(), "no check is called that: see --list");
    interrupt::watch();
    let bench = CheckBench {
        program: args.program.canonicalize()?,
        rounds: args.rounds.unwrap_or(set.rounds).max(1),
        seconds: args.seconds.unwrap_or(set.seconds).max(0.5),
    };
    // An interrupted run, too, leaves what other runs had.
    let mut report = if output.exists() { read(output)? } else { ChecksReport::default() };
    report.machine = Some(LabMachine::read());
    for (name, about, run) in checks {
        let began = Instant::now();
        let foreign_cores = noise::settle(QUIET_MAX);
        let judged = run(&bench).unwrap_or_else(|e| vec![Judged::failed(name, about, &e)]);
        interrupt::check()?;
        eprintln!("{name}: {:.0} s", began.elapsed().as_secs_f64());
        report.replace(name, judged, CheckStamp::now(bench.rounds, bench.seconds, foreign_cores));
        report.sort(set.checks.iter().map(|check| check.0));
        write_json(output, &report)?;
    }
    Ok(report)
}

impl ChecksReport {
    pub(crate) fn parse(json: &str) -> anyhow::Result<Self> {
        serde_json::from_str(json).context("JSON of checks")
    }

    /// Puts the figures of a check in the place of its old ones.
    fn replace(&mut self, check: &str, judged: Vec<Judged>, stamp: CheckStamp) {
        self.stamps.insert(check.to_owned(), stamp);
        self.judged.retain(|one| one.case != check);
        self.judged.extend(judged);
    }

    /// Orders figures by their checks.
    fn sort<'a>(&mut self, checks: impl Iterator<Item = &'a str>) {
        let order: Vec<&str> = checks.collect();
        self.judged.sort_by_key(|one| order.iter().position(|check| *check == one.case));
    }

    /// The checks in the order of their figures.
    fn checks(&self) -> Vec<&str> {
        tables::distinct(self.judged.iter().map(|one| one.case.as_str()))
    }

    fn stamps(&self) -> String {
        let checks = self.checks().into_iter();
        let stamps = checks.filter_map(|check| Some((check, self.stamps.get(check)?)));
        stamp::lines(stamps).join("\n")
    }

    /// All figures.
    pub(crate) fn page(&self) -> PageParts {
        let mut page = PageParts::default();
        page.text(self.machine.as_ref().map_or_else(String::new, LabMachine::to_string));
        page.table(tables::checks(&self.judged));
        page.text(format!("{} bars kept.", score(&self.judged)));
        page.text(self.stamps());
        page
    }

    /// A line for each check; `about` is its subject.
    pub(crate) fn short(&self, about: impl Fn(&str) -> &'static str) -> PageParts {
        let mut page = PageParts::default();
        page.text(self.machine.as_ref().map_or_else(String::new, LabMachine::to_string));
        page.wide(tables::by_case(self.checks().into_iter(), &self.judged, about));
        page.text(self.stamps());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_run_again_replaces_its_figures() {
        let mut report = ChecksReport::default();
        let stamp = |commit: &str| CheckStamp {
            date: "2026-11-21 10:00".into(),
            commit: commit.into(),
            rounds: 1,
            seconds: 1.0,
            foreign_cores: 0.0,
        };
        report.replace("links", vec![Judged::new("links", "2", "x", 1.9)], stamp("one"));
        report.replace("use", vec![Judged::new("use", "reads", "%", 90.0)], stamp("one"));
        let again = Judged::new("use", "reads", "%", 96.0).at_least(95.0);
        report.replace("use", vec![again], stamp("two"));
        report.sort(["use", "links"].into_iter());
        let text = report.page().markdown();
        assert!(text.contains("| use ") && text.contains(">= 95"), "{text}");
        assert!(text.contains("1 of 1 bars kept.\n"), "{text}");
        assert!(text.contains("use: 2026-11-21, commit two, one round"), "{text}");
        assert!(text.contains("links: 2026-11-21, commit one, one round"), "{text}");
        assert_eq!(report.judged.len(), 2);
        assert_eq!(report.judged[0].case, "use");
    }
}
