//! docs/PERFORMANCE.md: what stands between its markers comes from committed results, the text around is by hand.

use crate::{apps, ether, eval, table};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Puts committed results into the page again, without measuring.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the results are
    #[arg(long, default_value = "lab/results")]
    results: PathBuf,
    /// The page
    #[arg(long, default_value = "docs/PERFORMANCE.md")]
    page: PathBuf,
    /// Say whether the page is up to date instead of writing it
    #[arg(long)]
    check: bool,
}

/// A section of the page, the file of its results, and how they are told.
type Section = (&'static str, &'static str, fn(&str) -> anyhow::Result<String>);

const SECTIONS: [Section; 7] = [
    ("eval", "reference-eval.json", eval::page_of),
    ("later", "reference-later.json", eval::page_of),
    ("modes", "reference-modes.json", eval::page_of),
    ("apps", "reference-apps.json", apps::page_of),
    ("ether", "reference-ether.json", ether::page_of),
    ("ether-eval", "reference-ether-eval.json", eval::page_of),
    ("measured", "reference.json", table::page_of),
];

/// Updates all sections, or checks them.
pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    for (section, file, render) in SECTIONS {
        let path = args.results.join(file);
        let json = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let measured = render(&json).with_context(|| format!("read {}", path.display()))?;
        update(&args.page, section, &measured, args.check)?;
    }
    Ok(())
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
        ensure!(
            page == updated,
            "{}, section {section}, differs from what was measured: `roadtrain-lab report` writes it",
            path.display()
        );
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

    fn checkout() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
    }

    #[test]
    fn the_page_says_what_was_measured() {
        let page = checkout().join("docs/PERFORMANCE.md");
        let args = Args { results: checkout().join("lab/results"), page, check: true };
        main(&args).expect("they agree");
    }

    #[test]
    fn every_marked_section_is_generated() {
        let page = fs::read_to_string(checkout().join("docs/PERFORMANCE.md")).expect("the page");
        let marked = page.lines().filter_map(|line| line.strip_prefix("<!-- begin "));
        let marked: Vec<&str> = marked.filter_map(|rest| rest.strip_suffix(" -->")).collect();
        assert_eq!(marked, SECTIONS.map(|(section, ..)| section));
    }

    #[test]
    fn only_the_marked_part_changes() {
        let page = "top\n<!-- begin eval -->\nold\n<!-- end eval -->\nbottom\n";
        let new = replace(page, "eval", "new\n").expect("marked");
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(replace(&new, "eval", "new\n").expect("marked"), new);
        assert!(replace(page, "modes", "new").is_err());
    }
}
