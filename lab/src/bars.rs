//! Figures beside the bars that they have to keep.

use crate::grid::{self, Grid};

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
pub(crate) fn print(rows: &[Row]) {
    let mut table: Grid = vec![grid::strings(&["check", "figure", "measured", "unit", "bar", ""])];
    table.extend(rows.iter().map(Row::line));
    let mut out = String::new();
    grid::write(&mut out, &table);
    print!("{out}");
}
