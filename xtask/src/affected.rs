//! Parts of the tests that a change touches, by the table in `xtask/affected.txt`.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const TABLE: &str = "xtask/affected.txt";

/// Prints a line for each part that a change since `base` touches.
pub(crate) fn print(root: &Path, base: &str) -> Result<()> {
    let rows = read(root)?;
    let changed = git(root, &["diff", "--name-only", "--no-renames", base])?;
    for part in parts(&rows, changed.lines()) {
        println!("{part}");
    }
    Ok(())
}

/// Fails if a file of the repository has no row, a row matches no file, or a row names an unknown part.
pub(crate) fn check(root: &Path) -> Result<()> {
    let rows = read(root)?;
    let files = git(root, &["ls-files"])?;
    let script = std::fs::read_to_string(root.join("scripts/test.sh"))?;
    let mut faults: Vec<String> = files
        .lines()
        .filter(|file| row_of(&rows, file).is_none())
        .map(|file| format!("{file}: no row of {TABLE} begins like it"))
        .collect();
    for row in &rows {
        if !files.lines().any(|file| file.starts_with(&row.prefix)) {
            faults.push(format!("{TABLE}: no file begins with {}", row.prefix));
        }
        let unknown = row.parts.iter().filter(|part| !is_part(&script, part));
        faults.extend(unknown.map(|part| format!("{TABLE}: scripts/test.sh has no part {part}")));
    }
    ensure!(faults.is_empty(), "suites:\n{}", faults.join("\n"));
    println!("suites: every file has a row of {TABLE}, every part is one of scripts/test.sh");
    Ok(())
}

/// A row of the table.
#[derive(Debug, PartialEq)]
struct AffectedRow {
    prefix: String,
    parts: Vec<String>,
}

fn read(root: &Path) -> Result<Vec<AffectedRow>> {
    parse(&std::fs::read_to_string(root.join(TABLE)).context(TABLE)?)
}

fn parse(text: &str) -> Result<Vec<AffectedRow>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let prefix = words.next().context("an empty row")?;
            let parts: Vec<String> = words.collect();
            ensure!(
                !parts.is_empty(),
                "{TABLE}: {prefix} has no parts; `-` says that there are none"
            );
            let parts = if parts == ["-"] { Vec::new() } else { parts };
            Ok(AffectedRow { prefix, parts })
        })
        .collect()
}

/// Returns the row with the longest prefix of a path.
fn row_of<'a>(rows: &'a [AffectedRow], path: &str) -> Option<&'a AffectedRow> {
    let matching = rows.iter().filter(|row| path.starts_with(&row.prefix));
    matching.max_by_key(|row| row.prefix.len())
}

/// Returns the parts that changed paths touch, in the order of the table. A part that runs as a whole includes its
/// pieces, and the pieces of a suite run together.
fn parts<'a>(rows: &[AffectedRow], changed: impl Iterator<Item = &'a str>) -> Vec<String> {
    let touched: Vec<&AffectedRow> = changed.filter_map(|path| row_of(rows, path)).collect();
    let in_order = rows.iter().filter(|row| touched.contains(row));
    let mut wanted: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for part in in_order.flat_map(|row| &row.parts) {
        let (suite, names) = part.split_once('=').unwrap_or((part, ""));
        let names = names.split(',');
        match wanted.iter_mut().find(|(known, _)| *known == suite) {
            Some((_, known)) => known.extend(names),
            None => wanted.push((suite, names.collect())),
        }
    }
    let is_whole = |suite: &str| {
        wanted.iter().any(|(known, names)| {
            names.contains("") && (*known == suite || *known == format!("{suite}-all"))
        })
    };
    let lines = wanted.iter().filter_map(|(suite, names)| match is_whole(suite) {
        true if names.contains("") => Some((*suite).to_owned()),
        true => None,
        false => Some(format!("{suite}={}", names.iter().copied().collect::<Vec<_>>().join(","))),
    });
    lines.collect()
}

/// True if scripts/test.sh names the part at its beginning.
fn is_part(script: &str, part: &str) -> bool {
    let suite = part.split('=').next().unwrap_or(part);
    let comments = script.lines().skip(1).take_while(|line| line.starts_with('#'));
    comments.flat_map(|line| line.split([' ', '[', '='])).any(|word| word == suite)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("git")?;
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), {
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "\
# path parts
crates/ unit-all
crates/tls/ vm=kernel_host_tls,kernel_target_tls e2e=tls_* release
tests/vm/ vm-all
docs/ -
";

    fn of(changed: &[&str]) -> Vec<String> {
        parts(&parse(ROWS).unwrap(), changed.iter().copied())
    }

    #[test]
    fn the_longest_beginning_counts() {
        assert_eq!(of(&["crates/wire/src/lib.rs"]), ["unit-all"]);
        let tls = ["vm=kernel_host_tls,kernel_target_tls", "e2e=tls_*", "release"];
        assert_eq!(of(&["crates/tls/src/lib.rs"]), tls);
        assert_eq!(of(&["docs/README.md"]), [""; 0]);
        assert_eq!(of(&["elsewhere"]), [""; 0]);
    }

    #[test]
    fn a_whole_suite_includes_its_pieces() {
        let changed = ["tests/vm/run.sh", "crates/tls/src/lib.rs"];
        assert_eq!(of(&changed), ["e2e=tls_*", "release", "vm-all"]);
    }

    #[test]
    fn pieces_of_a_suite_run_together() {
        let rows = parse("a vm=one\nb vm=two,one\n").unwrap();
        assert_eq!(parts(&rows, ["a", "b"].into_iter()), ["vm=one,two"]);
    }

    #[test]
    fn a_row_says_something() {
        assert!(parse("crates/\n").is_err());
        assert!(is_part(
            "#!/bin/bash\n# e2e vm ceph  guests; =NAME\n# fuzz[=TARGET]\n",
            "fuzz=pdu"
        ));
        assert!(!is_part("#!/bin/bash\n# e2e vm ceph\necho fuzz\n", "fuzz"));
    }
}
