//! What was measured and what had to be: JSON and a table.

use super::stamp::{self, Stamp};
use crate::grid::{self, Grid};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a figure has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) check: String,
    pub(super) what: String,
    pub(super) unit: String,
    pub(super) measured: Option<f64>,
    /// Without, it is only told.
    pub(super) bound: Option<Bound>,
    /// Where it comes from, or why there is nothing.
    pub(super) note: String,
}

/// All checks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) machine: Option<Machine>,
    /// When and how each check was measured.
    pub(super) stamps: BTreeMap<String, Stamp>,
    pub(super) rows: Vec<Row>,
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    fn show(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {}", digits(bound)),
            Self::AtMost(bound) => format!("<= {}", digits(bound)),
        }
    }
}

impl Row {
    pub(super) fn new(check: &str, what: impl Into<String>, unit: &str, measured: f64) -> Self {
        Self {
            check: check.to_owned(),
            what: what.into(),
            unit: unit.to_owned(),
            measured: Some(measured),
            bound: None,
            note: String::new(),
        }
    }

    pub(super) fn bound(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// Only told, not asked for.
    pub(super) fn unasked(self) -> Self {
        Self { bound: None, ..self }
    }

    pub(super) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// A check that could not be run: missed.
    pub(super) fn failed(check: &str, about: &str, error: &anyhow::Error) -> Self {
        Self {
            check: check.to_owned(),
            what: about.to_owned(),
            unit: String::new(),
            measured: None,
            bound: Some(Bound::AtLeast(0.0)),
            note: format!("failed: {error:#}"),
        }
    }

    /// Whether it is kept; nothing where nothing is asked.
    pub(super) fn passes(&self) -> Option<bool> {
        self.bound.map(|bound| self.measured.is_some_and(|value| bound.holds(value)))
    }
}

impl Report {
    /// Puts a check's rows in the place of its old ones.
    pub(super) fn replace(&mut self, check: &str, rows: Vec<Row>, stamp: Stamp) {
        self.stamps.insert(check.to_owned(), stamp);
        self.rows.retain(|row| row.check != check);
        self.rows.extend(rows);
    }

    /// Orders rows by their checks.
    pub(super) fn sort<'a>(&mut self, checks: impl Iterator<Item = &'a str>) {
        let order: Vec<&str> = checks.collect();
        self.rows.sort_by_key(|row| order.iter().position(|check| *check == row.check));
    }

    /// The checks in the order of their rows, with their stamps.
    fn measured(&self) -> impl Iterator<Item = (&str, &Stamp)> {
        let mut last = "";
        let firsts = self.rows.iter().map(|row| row.check.as_str()).filter(move |check| {
            let is_first = *check != last;
            last = check;
            is_first
        });
        firsts.filter_map(|check| Some((check, self.stamps.get(check)?)))
    }

    /// The table, its score and how it was measured.
    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        if let Some(machine) = &self.machine {
            out += &format!("{machine}\n");
        }
        out += "\n";
        let mut lines: Grid =
            vec![grid::strings(&["check", "figure", "measured", "unit", "bar", "", "note"])];
        lines.extend(self.rows.iter().map(line));
        grid::write(&mut out, &lines);
        let judged: Vec<bool> = self.rows.iter().filter_map(Row::passes).collect();
        let kept = judged.iter().filter(|&&kept| kept).count();
        out += &format!("\n{kept} of {} bars kept.\n\n", judged.len());
        out + &stamp::told(self.measured())
    }

    /// A line for each check that has bars: how many were kept, and all that were not.
    pub(super) fn short(&self, about: impl Fn(&str) -> &'static str) -> String {
        let mut out = self.machine.as_ref().map_or_else(String::new, |m| format!("{m}\n\n"));
        let heading = ["check", "what it asks", "measured", "bars kept", "missed"];
        let mut lines: Grid = vec![grid::strings(&heading)];
        for (check, _) in self.measured() {
            let asked = |row: &&Row| row.check == check && row.bound.is_some();
            let rows: Vec<&Row> = self.rows.iter().filter(asked).collect();
            let Some(first) = rows.first() else { continue };
            let values = || rows.iter().filter_map(|row| row.measured);
            let least = values().reduce(f64::min).map_or_else(|| "-".into(), digits);
            let most = values().reduce(f64::max).map_or_else(|| "-".into(), digits);
            let missed: Vec<&&Row> = rows.iter().filter(|r| r.passes() == Some(false)).collect();
            let said = missed.iter().map(|row| {
                let measured = row.measured.map_or_else(|| "-".into(), digits);
                let bound = row.bound.map(Bound::show).unwrap_or_default();
                format!("{}: {measured} ({bound})", row.what)
            });
            lines.push(vec![
                check.to_owned(),
                about(check).to_owned(),
                match rows.iter().all(|row| row.unit == first.unit) {
                    false => "-".into(),
                    true if least == most => {
                        format!("{least} {}", first.unit).trim_end().to_owned()
                    }
                    true => format!("{least} to {most} {}", first.unit),
                },
                format!("{} of {}", rows.len() - missed.len(), rows.len()),
                said.collect::<Vec<_>>().join("; "),
            ]);
        }
        grid::write_plain(&mut out, &lines);
        out + "\n" + &stamp::told(self.measured())
    }
}

fn line(row: &Row) -> Vec<String> {
    let verdict = match row.passes() {
        Some(true) => "kept",
        Some(false) => "**MISSED**",
        None => "",
    };
    vec![
        row.check.clone(),
        row.what.clone(),
        row.measured.map_or_else(|| "-".into(), digits),
        row.unit.clone(),
        row.bound.filter(|_| row.measured.is_some()).map(Bound::show).unwrap_or_default(),
        verdict.to_owned(),
        row.note.clone(),
    ]
}

/// As many digits as mean something.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_kept_or_missed_and_failures_are_misses() {
        let row = |value| Row::new("use", "reads", "%", value);
        assert_eq!(row(95.0).bound(Bound::AtLeast(95.0)).passes(), Some(true));
        assert_eq!(row(94.9).bound(Bound::AtLeast(95.0)).passes(), Some(false));
        assert_eq!(row(1.2).bound(Bound::AtMost(1.15)).passes(), Some(false));
        assert_eq!(row(1.0).passes(), None);
        assert_eq!(Row::failed("use", "x", &anyhow::anyhow!("no")).passes(), Some(false));
    }

    #[test]
    fn a_check_that_is_run_again_replaces_its_rows() {
        let mut report = Report::default();
        let stamp = |commit: &str| Stamp {
            date: "2026-11-21 10:00".into(),
            commit: commit.into(),
            rounds: 1,
            seconds: 1.0,
            foreign_cores: 0.0,
        };
        report.replace("links", vec![Row::new("links", "2", "x", 1.9)], stamp("one"));
        report.replace("use", vec![Row::new("use", "reads", "%", 90.0)], stamp("one"));
        let again = Row::new("use", "reads", "%", 96.0).bound(Bound::AtLeast(95.0));
        report.replace("use", vec![again], stamp("two"));
        report.sort(["use", "links"].into_iter());
        let text = report.markdown();
        assert!(text.contains("| use ") && text.contains(">= 95"), "{text}");
        assert!(text.contains("1 of 1 bars kept.\n"), "{text}");
        assert!(text.contains("use: 2026-11-21, commit two, one round"), "{text}");
        assert!(text.contains("links: 2026-11-21, commit one, one round"), "{text}");
        assert_eq!(report.rows.len(), 2);
        assert_eq!(report.rows[0].check, "use");
    }
}
