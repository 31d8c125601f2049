//! Puts a measured table into docs/PERFORMANCE.md, between its markers; the text around is by hand.

use crate::table::{Table, markdown};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- begin measured -->";
const END: &str = "<!-- end measured -->";

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
    update(&args.page, [BEGIN, END], &markdown(&table), args.check)
}

/// Replaces what is between two markers of a page, or checks that it is the same.
pub(crate) fn update(
    path: &Path,
    markers: [&str; 2],
    measured: &str,
    check: bool,
) -> anyhow::Result<()> {
    let page = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let updated = replace(&page, markers, measured)?;
    if check {
        ensure!(page == updated, "{} differs from what was measured", path.display());
        return Ok(());
    }
    fs::write(path, updated).with_context(|| format!("write {}", path.display()))
}

/// `page` with what is between the markers replaced.
fn replace(page: &str, [begin, end]: [&str; 2], measured: &str) -> anyhow::Result<String> {
    let (before, rest) = page.split_once(begin).context("no begin marker in the page")?;
    let (_, after) = rest.split_once(end).context("no end marker in the page")?;
    Ok(format!("{before}{begin}\n{measured}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_part_changes() {
        let page = format!("top\n{BEGIN}\nold\n{END}\nbottom\n");
        let new = replace(&page, [BEGIN, END], "new\n").expect("marked");
        assert_eq!(new, format!("top\n{BEGIN}\nnew\n{END}\nbottom\n"));
        assert_eq!(replace(&new, [BEGIN, END], "new\n").expect("marked"), new);
        assert!(replace("no markers", [BEGIN, END], "new").is_err());
    }
}
