//! Instructions of host and target together for each request, counted by callgrind, against `xtask/instructions.txt`.
//!
//! They do not vary as times do: one thread runs both ends of a lane (`target-engine/src/per_io.rs`). The counts of
//! two runs of different length are subtracted, so constant costs cancel out. The kernel's instructions are not
//! counted.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const FILE: &str = "xtask/instructions.txt";
const TEST: &str = "per_io::both_ends_of_a_lane_run_in_one_thread";
/// Requests of the two runs.
const RUNS: [u64; 2] = [2_000, 12_000];
/// Three runs of each line differed by 0.3 % at most.
const TOLERANCE_PERCENT: u64 = 2;

/// Compares the counts with the file; with `write`, writes them to the file.
pub(crate) fn check(root: &Path, write: bool) -> Result<()> {
    if let Some(why) = cannot_run() {
        println!("SKIPPED instructions: {why}");
        return Ok(());
    }
    let program = build(root)?;
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| FILE)?;
    let (mut counted, mut wrong) = (String::new(), Vec::new());
    for line in text.lines() {
        let Some((what, before)) = expectation(line)? else {
            counted += &format!("{line}\n");
            continue;
        };
        let now = per_request(&program, &what)?;
        println!("{what}: {now} instructions, {before} expected");
        counted += &format!("{what} {now}\n");
        if before.abs_diff(now) * 100 > before * TOLERANCE_PERCENT {
            wrong.push(what);
        }
    }
    if write {
        return Ok(fs::write(path, counted)?);
    }
    ensure!(
        wrong.is_empty(),
        "{}: more than {TOLERANCE_PERCENT} % off. If that is meant to be so: cargo xtask instructions --write",
        wrong.join(", ")
    );
    Ok(())
}

/// Returns why this machine cannot count: another one has other counts.
fn cannot_run() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the numbers are those of x86_64");
    }
    let version = Command::new("valgrind").arg("--version").output();
    (!version.is_ok_and(|output| output.status.success())).then_some("valgrind is not installed")
}

/// Returns operation and depth, and the number; `None` for a comment.
fn expectation(line: &str) -> Result<Option<(String, u64)>> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (what, number) = line.rsplit_once(' ').with_context(|| format!("{FILE}: {line}"))?;
    Ok(Some((what.into(), number.parse()?)))
}

/// Builds the tests of the target's engine with the release profile. Incremental units inline otherwise than whole
/// ones, so the environment must not choose.
fn build(root: &Path) -> Result<String> {
    let arguments = ["test", "--release", "-p", "roadtrain-target-engine", "--lib", "--no-run"];
    let output = succeeds(
        Command::new("cargo").args(arguments).env_remove("CARGO_INCREMENTAL").current_dir(root),
    )?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let program = text
        .lines()
        .find_map(|line| line.split_once("Executable unittests")?.1.split(['(', ')']).nth(1));
    Ok(root.join(program.context("cargo names no executable")?).to_string_lossy().into_owned())
}

fn per_request(program: &str, what: &str) -> Result<u64> {
    let [few, many] = RUNS.map(|requests| count(program, what, requests));
    Ok((many? - few?) / (RUNS[1] - RUNS[0]))
}

fn count(program: &str, what: &str, requests: u64) -> Result<u64> {
    let file = std::env::temp_dir().join(format!("roadtrain-instructions-{}", std::process::id()));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--fair-sched=yes", "--collect-atstart=no"])
        .arg("--toggle-collect=roadtrain_counted")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args([program, "--exact", TEST])
        .env("ROADTRAIN_PER_IO", format!("{what} {requests}"));
    succeeds(&mut command)?;
    let text = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(total.context("callgrind counted nothing")?.trim().parse()?)
}

fn succeeds(command: &mut Command) -> Result<Output> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_and_how_many() {
        assert_eq!(expectation("read 128 4003").unwrap(), Some(("read 128".into(), 4003)));
        assert_eq!(expectation("# read 128 4003").unwrap(), None);
        assert!(expectation("read 128 many").is_err());
    }
}
