//! docs/reference/conformance.md names code and tests: all of them must exist.

use crate::source;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/reference/conformance.md";

/// Fails, naming every file and test in the page that the sources do not have.
pub(crate) fn check(root: &Path) -> Result<()> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let functions = functions(root)?;
    let mut missing = Vec::new();
    let mut found = 0;
    for name in page.lines().filter(|line| line.starts_with('|')).flat_map(quoted) {
        let exists = match name {
            path if path.contains('/') => root.join(path).exists(),
            function => functions.contains(function),
        };
        found += 1;
        if !exists {
            missing.push(name);
        }
    }
    if !missing.is_empty() {
        bail!("{PAGE} names what does not exist:\n{}", missing.join("\n"));
    }
    println!("conformance: all {found} files and tests exist");
    Ok(())
}

/// Returns the texts between backticks: paths, or names of tests.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the names of all functions in the sources and in the shell tests.
fn functions(root: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in ["crates", "fuzz/fuzz_targets"] {
        for source in source::files(root, folder)? {
            names.extend(source.code.split("fn ").skip(1).map(|rest| identifier(rest).to_owned()));
        }
    }
    for folder in ["tests/e2e", "tests/vm"] {
        for entry in fs::read_dir(root.join(folder)).context(folder)? {
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            let tests = text.lines().filter_map(|line| line.strip_prefix("test_"));
            names.extend(tests.map(|rest| identifier(rest).to_owned()));
        }
    }
    Ok(names)
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn finds_what_is_quoted() {
        let line = "| 3.6.2 | `crates/wire` | `a`, `b` |";
        assert_eq!(quoted(line).collect::<Vec<_>>(), ["crates/wire", "a", "b"]);
    }
}
