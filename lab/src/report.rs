//! docs/PERFORMANCE.md and lab/JOURNAL.md: what stands between their markers comes from committed results, the text
//! around is by hand.

mod prune;

use crate::{apps, ether, eval, noted, table};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Puts committed results into the pages again, without measuring.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Where the results are
    #[arg(long, default_value = "lab/results")]
    results: PathBuf,
    /// The page
    #[arg(long, default_value = "docs/PERFORMANCE.md")]
    page: PathBuf,
    /// The journal
    #[arg(long, default_value = "lab/JOURNAL.md")]
    journal: PathBuf,
    /// Say whether the pages are up to date instead of writing it
    #[arg(long)]
    check: bool,
    /// Leave out of the results what the pages do not quote, instead of writing them
    #[arg(long, conflicts_with = "check")]
    prune: bool,
}

/// A part of a page that comes from committed results.
struct ReportSection {
    page: ReportPage,
    name: &'static str,
    /// The results' files.
    files: &'static [&'static str],
    write: SectionWriter,
}

/// The pages that quote results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportPage {
    /// The page for users.
    Performance,
    /// The journal: everything, with what was tried.
    Journal,
}

/// The text of a section, from its results.
type SectionWriter = fn(&[String]) -> anyhow::Result<String>;

const TABLE: &str = "reference.json";
const DEFAULT: &str = "reference-default.json";
const EVAL: &str = "reference-eval.json";
const GOALS: &str = "reference-goals.json";
const LATER: &str = "reference-later.json";
const MODES: &str = "reference-modes.json";
const APPS: &str = "reference-apps.json";
const ETHER: &str = "reference-ether.json";
const ETHER_EVAL: &str = "reference-ether-eval.json";
const TLS: &str = "reference-tls.json";
const FUSE: &str = "reference-fuse.json";
const HOSTS: &str = "reference-hosts.json";
const CONNECTIONS: &str = "reference-connections.json";

const fn section(
    page: ReportPage,
    name: &'static str,
    files: &'static [&'static str],
    write: SectionWriter,
) -> ReportSection {
    ReportSection { page, name, files, write }
}

const SECTIONS: [ReportSection; 17] = [
    section(ReportPage::Performance, "tcp", &[TABLE], |all| table::short_of(&all[0])),
    section(ReportPage::Performance, "default", &[DEFAULT], |all| table::page_of(&all[0])),
    section(
        ReportPage::Performance,
        "policies",
        &[EVAL, GOALS, LATER, MODES, ETHER_EVAL],
        eval::short_of,
    ),
    section(ReportPage::Performance, "apps", &[APPS], |all| apps::short_of(&all[0])),
    section(ReportPage::Performance, "ether", &[ETHER], |all| ether::short_of(&all[0])),
    section(ReportPage::Journal, "measured", &[TABLE], |all| table::page_of(&all[0])),
    section(ReportPage::Journal, "connections", &[CONNECTIONS], |all| table::page_of(&all[0])),
    section(ReportPage::Journal, "tls", &[TLS], |all| table::page_of(&all[0])),
    section(ReportPage::Journal, "eval", &[EVAL], |all| eval::page_of(&all[0])),
    section(ReportPage::Journal, "goals", &[GOALS], |all| eval::page_of(&all[0])),
    section(ReportPage::Journal, "later", &[LATER], |all| eval::page_of(&all[0])),
    section(ReportPage::Journal, "hosts", &[HOSTS], |all| table::page_of(&all[0])),
    section(ReportPage::Journal, "modes", &[MODES], |all| eval::page_of(&all[0])),
    section(ReportPage::Journal, "fuse", &[FUSE], |all| noted::page_of(&all[0])),
    section(ReportPage::Journal, "apps", &[APPS], |all| apps::page_of(&all[0])),
    section(ReportPage::Journal, "ether", &[ETHER], |all| ether::page_of(&all[0])),
    section(ReportPage::Journal, "ether-eval", &[ETHER_EVAL], |all| eval::page_of(&all[0])),
];

/// Updates all sections, or checks them.
pub(crate) fn main(args: &ReportArgs) -> anyhow::Result<()> {
    let read = |file: &&str| {
        let path = args.results.join(file);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    if args.prune {
        return prune_all(args);
    }
    for section in &SECTIONS {
        let results = section.files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let text = section.text(&results)?;
        let page = match section.page {
            ReportPage::Performance => &args.page,
            ReportPage::Journal => &args.journal,
        };
        update(page, section.name, &text, args.check)?;
    }
    Ok(())
}

impl ReportSection {
    fn text(&self, results: &[String]) -> anyhow::Result<String> {
        (self.write)(results).with_context(|| self.files.join(", "))
    }
}

/// Leaves out of each file of runs what none of its sections quotes.
fn prune_all(args: &ReportArgs) -> anyhow::Result<()> {
    for file in
        [TABLE, DEFAULT, HOSTS, CONNECTIONS, TLS, MODES, APPS, ETHER_EVAL, LATER, GOALS, EVAL]
    {
        let read = |file: &str| Ok(fs::read_to_string(args.results.join(file))?);
        let sections: Vec<&ReportSection> =
            SECTIONS.iter().filter(|section| section.files.contains(&file)).collect();
        let quoted = |json: &str| -> anyhow::Result<Vec<String>> {
            let text = |section: &&ReportSection| {
                let of = |one: &&str| if *one == file { Ok(json.to_owned()) } else { read(one) };
                let results: anyhow::Result<Vec<String>> = section.files.iter().map(of).collect();
                section.text(&results?)
            };
            sections.iter().map(text).collect()
        };
        let json = read(file)?;
        let before = quoted(&json)?;
        let is_same = |results: &Value| quoted(&results.to_string()).is_ok_and(|q| q == before);
        let pruned = prune::prune(serde_json::from_str(&json)?, &is_same).to_string() + "\n";
        println!("{file}: {} of {} bytes", pruned.len(), json.len());
        fs::write(args.results.join(file), pruned)?;
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

    fn page_of(page: ReportPage) -> PathBuf {
        checkout().join(match page {
            ReportPage::Performance => "docs/PERFORMANCE.md",
            ReportPage::Journal => "lab/JOURNAL.md",
        })
    }

    #[test]
    fn the_pages_say_what_was_measured() {
        let (page, journal) = (page_of(ReportPage::Performance), page_of(ReportPage::Journal));
        let args = ReportArgs {
            results: checkout().join("lab/results"),
            page,
            journal,
            check: true,
            prune: false,
        };
        main(&args).expect("they agree");
    }

    #[test]
    fn every_marked_section_is_generated() {
        for page in [ReportPage::Performance, ReportPage::Journal] {
            let text = fs::read_to_string(page_of(page)).expect("the page");
            let marked = text.lines().filter_map(|line| line.strip_prefix("<!-- begin "));
            let marked: Vec<&str> = marked.filter_map(|rest| rest.strip_suffix(" -->")).collect();
            let text = SECTIONS.iter().filter(|section| section.page == page);
            assert_eq!(marked, text.map(|section| section.name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_page_for_users_is_short() {
        let text = fs::read_to_string(page_of(ReportPage::Performance)).expect("the page");
        assert!(text.lines().count() <= 200, "{} lines", text.lines().count());
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
