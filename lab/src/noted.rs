//! Figures that were read off a command's output by hand, and are committed as they were noted.

use crate::page::{Grid, PageParts};
use anyhow::{Context, ensure};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Noted {
    /// On which machine, how.
    conditions: String,
    command: String,
    /// The first line is the heading.
    table: Grid,
}

/// The section of a page.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    let noted: Noted = serde_json::from_str(json).context("JSON of noted figures")?;
    let columns = noted.table.first().context("no heading")?.len();
    ensure!(noted.table.iter().all(|line| line.len() == columns), "lines of different lengths");
    let mut page = PageParts::default();
    page.text(format!("{}\nCommand: `{}`.", noted.conditions, noted.command));
    page.table(noted.table);
    Ok(page.markdown())
}

#[cfg(test)]
mod tests {
    use super::page_of;

    #[test]
    fn a_table_states_its_conditions() {
        let page = page_of(
            r#"{"conditions": "Here.", "command": "x", "table": [["a", "b"], ["1", "2"]]}"#,
        );
        let page = page.expect("complete");
        assert!(page.starts_with("Here.\nCommand: `x`.\n\n| a   | b   |\n"), "{page}");
        assert!(
            page_of(r#"{"conditions": "", "command": "", "table": [["a"], ["1", "2"]]}"#).is_err()
        );
    }
}
