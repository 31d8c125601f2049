//! Puts a measured table into docs/PERFORMANCE.md, between its markers; the text around is by hand.

use crate::table::{Table, markdown};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the page.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A table's JSON
    #[arg(default_value = "bench/results/reference.json")]
    input: PathBuf,
    /// The page
    #[arg(long, default_value = "docs/PERFORMANCE.md")]
    page: PathBuf,
    /// Say whether the page is up to date instead of writing it
    #[arg(long)]
    check: bool,
}

/// Updates the page, or checks it.
pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    let json = fs::read_to_string(&args.input)
        .with_context(|| format!("read {}", args.input.display()))?;
    let table: Table = serde_json::from_str(&json).context("a table's JSON")?;
    update(&args.page, "measured", &markdown(&table), args.check)
}

/// Replaces what is between the two markers of a section of a page, or checks that it is the same.
pub(crate) fn update(
    path: &Path,
    section: &str,
    measured: &str,
    check: bool,
) -> anyhow::Result<()> {
    let page = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let updated = replace(&page, section, measured)?;
    if check {
        ensure!(page == updated, "{} differs from what was measured", path.display());
        return Ok(());
    }
    fs::write(path, updated).with_context(|| format!("write {}", path.display()))
}

/// `page` with what is between the markers replaced.
fn replace(page: &str, section: &str, measured: &str) -> anyhow::Result<String> {
    let [begin, end] = ["begin", "end"].map(|edge| format!("<!-- {edge} {section} -->"));
    let missing = |marker: &str| format!("no {marker} in the page");
    let (before, rest) = page.split_once(&begin).with_context(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| missing(&end))?;
    Ok(format!("{before}{begin}\n{measured}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_part_changes() {
        let page = "top\n<!-- begin eval -->\nold\n<!-- end eval -->\nbottom\n";
        let new = replace(page, "eval", "new\n").expect("marked");
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(replace(&new, "eval", "new\n").expect("marked"), new);
        assert!(replace(page, "modes", "new").is_err());
    }
}
