//! The documents: links lead somewhere, paths named in them exist, lines and pages are no longer than agreed.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of prose, in characters. Tables, code and links may be longer.
const LINE_CHARS: usize = 110;
/// Pages outside of `docs`.
const PAGES: &[&str] = &["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
/// Pages that must stay short, and their lines.
const SHORT: &[(&str, usize)] = &[("README.md", 150)];
/// Crates whose public types and functions must have a comment each. The compiler's lint would also require one for
/// fields, whose names come from the specifications.
const DOCUMENTED: &[&str] = &[
    "crates/wire/src",
    "crates/proto/src",
    "crates/host-proto/src",
    "crates/target-proto/src",
    "crates/ether-proto/src",
];
/// Changelog, whose entries have two lines at most.
const CHANGELOG: &str = "CHANGELOG.md";
/// Page whose rows name functions with their files.
const ONE_READ: &str = "docs/internals/one-read.md";
/// Page that explains each external dependency.
const DEPENDENCIES: &str = "docs/internals/dependencies.md";
/// First folders of backticked paths of this repository.
const ROOTS: &[&str] = &[
    "crates/",
    "csi/",
    "docs/",
    "examples/",
    "fuzz/",
    "lab/",
    "scripts/",
    "systemd/",
    "tests/",
    "xtask/",
];

/// Fails, naming every fault of every page.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    collect(&root.join("docs"), &mut pages)?;
    let mut faults = Vec::new();
    for page in &pages {
        let text = read(page)?;
        let name = page.strip_prefix(root)?.display().to_string();
        let fault = |line: usize, what: String| format!("{name}:{}: {what}", line + 1);
        for (number, line) in prose(&text) {
            let is_table = line.starts_with('|');
            if line.chars().count() > LINE_CHARS && !is_table {
                faults.push(fault(number, format!("more than {LINE_CHARS} characters")));
            }
            let broken = links(line).filter(|link| !leads_somewhere(page, link));
            faults.extend(broken.map(|link| fault(number, format!("no such place: {link}"))));
            let missing = paths(line).filter(|path| !root.join(path).exists());
            faults.extend(missing.map(|path| fault(number, format!("no such file: {path}"))));
        }
        let lines = text.lines().count();
        if let Some((_, most)) = SHORT.iter().find(|(short, most)| *short == name && lines > *most)
        {
            faults.push(format!("{name}: {lines} lines, more than {most}"));
        }
    }
    faults.extend(misnamed(root, &read(&root.join(ONE_READ))?));
    faults.extend(unexplained(root)?);
    faults.extend(own_versions(root)?);
    faults.extend(long_entries(&read(&root.join(CHANGELOG))?));
    for folder in DOCUMENTED {
        faults.extend(undocumented(root, folder)?);
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    println!("docs: {} pages, all links and paths lead somewhere", pages.len());
    Ok(())
}

/// Returns the functions that the tables of `page` name and the file of the same row does not define, and the
/// sections that do not state how many functions and files their tables have.
fn misnamed(root: &Path, page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for section in page.split("\n## ") {
        let rows: BTreeSet<_> = section.lines().filter_map(function_row).collect();
        let absent = rows.iter().filter(|(function, path)| !defines(&root.join(path), function));
        faults
            .extend(absent.map(|(function, path)| format!("{ONE_READ}: no {function} in {path}")));
        let files: BTreeSet<_> = rows.iter().map(|(_, path)| path).collect();
        let count = format!("{} functions in {} files", rows.len(), files.len());
        if !rows.is_empty() && !section.contains(&count) {
            faults.push(format!("{ONE_READ}: does not state: {count}"));
        }
    }
    faults
}

/// Returns function and file of a table row that begins with both.
fn function_row(line: &str) -> Option<(&str, &str)> {
    let (function, rest) = line.strip_prefix("| `")?.split_once("` | `")?;
    let (path, _) = rest.split_once("` |")?;
    path.ends_with(".rs").then_some((function, path))
}

/// True if the file at `path` has a function of that name; types in front of the name do not count.
fn defines(path: &Path, function: &str) -> bool {
    let name = function.rsplit("::").next().unwrap_or(function);
    let heads = [format!("fn {name}("), format!("fn {name}<")];
    fs::read_to_string(path).is_ok_and(|text| heads.iter().any(|head| text.contains(head)))
}

/// Returns the crates that the workspace depends on and [`DEPENDENCIES`] does not name.
fn unexplained(root: &Path) -> Result<Vec<String>> {
    let (manifest, page) = (read(&root.join("Cargo.toml"))?, read(&root.join(DEPENDENCIES))?);
    let (_, rest) = manifest.split_once("[workspace.dependencies]").unwrap_or_default();
    let ours = rest.split("\n[").next().unwrap_or_default();
    let entries = ours.lines().filter_map(|line| line.split_once(" = "));
    let foreign = entries.filter(|(_, what)| !what.contains("path = ")).map(|(name, _)| name);
    let words: BTreeSet<&str> =
        page.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).collect();
    let unexplained = foreign.filter(|name| !words.contains(name));
    Ok(unexplained.map(|name| format!("{DEPENDENCIES}: does not say what {name} is for")).collect())
}

/// Returns the dependencies of members that are not in the workspace's table, which [`unexplained`] reads.
fn own_versions(root: &Path) -> Result<Vec<String>> {
    let mut members = vec![root.join("tests/exercise"), root.join("xtask")];
    for entry in fs::read_dir(root.join("crates"))? {
        members.push(entry?.path());
    }
    let mut faults = Vec::new();
    for member in members {
        let (place, text) = (member.display(), read(&member.join("Cargo.toml"))?);
        let own = own_dependencies(&text);
        faults.extend(own.map(|line| format!("{place}: not in the workspace's table: {line}")));
    }
    Ok(faults)
}

/// Returns the lines of a manifest's dependency tables that name a version or a path themselves.
fn own_dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut is_table = false;
    manifest.lines().filter(move |line| {
        let is_heading = line.starts_with('[');
        if is_heading {
            is_table = line.contains("dependencies");
        }
        let is_entry = line.contains('=') && !line.starts_with(['#', ' ']);
        is_table && !is_heading && is_entry && !line.contains("workspace = true")
    })
}

/// Returns the entries of the changelog with more than two lines.
fn long_entries(text: &str) -> Vec<String> {
    let (mut faults, mut begin) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        if !line.starts_with("  ") {
            begin = number;
        } else if number == begin + 2 {
            faults.push(format!("{CHANGELOG}:{}: an entry of more than two lines", begin + 1));
        }
    }
    faults
}

/// Returns the public types and functions without a comment in the sources of `folder`.
fn undocumented(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for source in crate::source::files(root, folder)? {
        let text = read(&root.join(&source.path))?;
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        let code = source.without_tests().lines().map(str::trim_start).enumerate();
        for (at, line) in code.filter(|(_, line)| is_public_item(line)) {
            if !is_documented(&lines[..at]) {
                faults.push(format!("{}:{}: no comment: {line}", source.path, at + 1));
            }
        }
    }
    Ok(faults)
}

fn is_public_item(line: &str) -> bool {
    let Some(item) = line.strip_prefix("pub ") else { return false };
    let item = item.trim_start_matches("const ").trim_start_matches("async ");
    // Items of macros ($name) get their comments where the macro is used.
    !item.contains('$')
        && ["fn ", "struct ", "enum ", "trait ", "type "].iter().any(|word| item.starts_with(word))
}

/// True if the item after these lines has a comment before its attributes.
fn is_documented(before: &[&str]) -> bool {
    let ends_something = |line: &&&str| line.is_empty() || line.ends_with(['}', ';', '{']);
    let own = before.iter().rev().take_while(|line| !ends_something(line));
    own.into_iter().any(|line| line.starts_with("///"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns the lines outside of code and generated parts, with their numbers from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut is_code, mut is_generated) = (false, false);
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        is_generated |= line.starts_with("<!-- begin");
        is_generated &= !line.starts_with("<!-- end");
        !is_code && !is_generated && !fence && !line.starts_with("    ")
    })
}

/// Returns the targets of `[text](link)`, without those on other sites.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(link, _)| link).filter(|link| !link.contains("://"))
}

/// Returns the backticked paths from the workspace's folder, without patterns and line numbers.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |word: &&str| ROOTS.iter().any(|root| word.starts_with(root));
    let is_result = |word: &&str| word.starts_with("lab/results/"); // made by a run
    quoted.filter(is_path).filter(move |w| !is_result(w) && !w.contains(['*', '<', ' ', '{']))
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().unwrap_or(Path::new("."));
    let target = if file.is_empty() { page.to_owned() } else { folder.join(file) };
    if anchor.is_empty() {
        return target.exists();
    }
    read(&target).is_ok_and(|text| anchors(&text).contains(anchor))
}

/// Returns the anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_found() {
        let line = "see [a](b.md#c), [d](https://e.org), `crates/wire` and `crates/*/src`, `x`";
        assert_eq!(links(line).collect::<Vec<_>>(), ["b.md#c"]);
        assert_eq!(paths(line).collect::<Vec<_>>(), ["crates/wire"]);
    }

    #[test]
    fn functions_that_are_not_in_their_file_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let row = |function| format!("| `{function}` | `src/docs.rs` | what it does |\n");
        let check =
            |count, function| misnamed(root, &format!("\n## A\n{count}\n{}", row(function)));
        assert_eq!(check("1 functions in 1 files", "Docs::misnamed"), [""; 0]);
        assert_eq!(check("1 functions in 1 files", "mis").len(), 1, "the beginning of a name");
        assert_eq!(check("2 functions in 1 files", "misnamed").len(), 1, "another count");
        assert_eq!(function_row("| `docs/a.rs` | `Jobs::jobs` | a field |"), None);
    }

    #[test]
    fn the_functions_of_one_read_are_where_the_page_names_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = read(&root.join(ONE_READ)).unwrap();
        assert!(page.lines().filter_map(function_row).count() > 100, "the page has its tables");
        assert_eq!(misnamed(&root, &page), [""; 0]);
    }

    #[test]
    fn long_entries_are_found() {
        assert!(long_entries("# Title\n\n- a\n  b\n- c\n").is_empty());
        assert_eq!(long_entries("- a\n- b\n  c\n  d\n  e\n").len(), 1);
    }

    #[test]
    fn dependencies_outside_of_the_table_are_found() {
        let manifest = "[dependencies]\na.workspace = true\nb = { workspace = true }\nc = \"1\"\n\n\
                        [features]\nd = []\n[dev-dependencies]\ne = { path = \"e\" }\n";
        let own: Vec<_> = own_dependencies(manifest).collect();
        assert_eq!(own, ["c = \"1\"", "e = { path = \"e\" }"]);
    }

    #[test]
    fn items_without_a_comment_are_found() {
        assert!(is_public_item("pub const fn of(kind: Kind) -> Self {"));
        assert!(!is_public_item("pub const FLUSH: u8 = 0;") && !is_public_item("pub mod sqe;"));
        assert!(is_documented(&["}", "", "/// What.", "#[must_use]"]));
        assert!(!is_documented(&["/// Of another.", "pub fn a() {}", "#[must_use]"]));
    }

    #[test]
    fn headings_have_anchors() {
        let page = "# One: two\n```\n# no heading\n```\n## `a` and B, c\n";
        let expected = ["one-two", "a-and-b-c"].map(str::to_owned).into();
        assert_eq!(anchors(page), expected);
    }
}
