//! Figures beside the bars that they have to keep.

use crate::grid::{self, Grid};
use crate::interrupt;
use anyhow::ensure;
use std::path::PathBuf;

/// How it is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Runs {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    pub(crate) program: PathBuf,
    /// Runs of each side, alternately; medians count
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
}

/// What gives some rows.
pub(crate) type Check = fn(&Runs) -> anyhow::Result<Vec<Row>>;

/// Makes those of `checks` that are named in `only`, all if none is, and prints a table.
pub(crate) fn check(runs: &Runs, only: &[String], checks: &[(&str, Check)]) -> anyhow::Result<()> {
    ensure!(runs.program.exists(), "no {}: build it first", runs.program.display());
    for name in only {
        let is_there = checks.iter().any(|(there, _)| there == name);
        ensure!(is_there, "there is no check {name}: --help names them");
    }
    interrupt::watch();
    let mut rows = Vec::new();
    for (name, check) in checks {
        if only.is_empty() || only.iter().any(|only| only == name) {
            rows.extend(check(runs)?);
        }
    }
    print(&rows);
    Ok(())
}

/// A figure and its bar.
pub(crate) struct Row {
    pub(crate) check: &'static str,
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
    pub(crate) bar: Bar,
}

#[derive(Clone, Copy)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Row {
    fn line(&self) -> Vec<String> {
        let (bar, is_kept) = match self.bar {
            Bar::AtLeast(bar) => (format!(">= {bar}"), self.measured >= bar),
            Bar::AtMost(bar) => (format!("<= {bar}"), self.measured <= bar),
        };
        let verdict = if is_kept { "kept" } else { "**MISSED**" };
        let (what, measured) = (self.what.clone(), format!("{:.3}", self.measured));
        let [check, unit, verdict] = [self.check, self.unit, verdict].map(str::to_owned);
        vec![check, what, measured, unit, bar, verdict]
    }
}

/// Prints them as a table.
fn print(rows: &[Row]) {
    let mut table: Grid = vec![grid::strings(&["check", "figure", "measured", "unit", "bar", ""])];
    table.extend(rows.iter().map(Row::line));
    let mut out = String::new();
    grid::write(&mut out, &table);
    print!("{out}");
}
