//! Another stack to compare with: a command that the user names, run once for each load.

use crate::command;
use crate::floor::DataDirection;
use crate::measure::Measure;
use crate::workload::LabLoad;
use anyhow::Context;
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;

/// Time that a run may take in addition to its measured time.
const EXTRA: Duration = Duration::from_secs(60);

/// The JSON object that it prints as its last line.
#[derive(Deserialize)]
struct PeerFigures {
    iops: f64,
    p99_us: f64,
    /// CPU time of both ends for each request in microseconds.
    cpu_us_per_io: Option<f64>,
}

/// Runs the command with the load in its environment: `RW` (`randread` or `randwrite`), `BS` (bytes), `DEPTH` and
/// `SECONDS`.
pub(super) fn run(line: &str, load: &LabLoad, seconds: f64) -> anyhow::Result<Measure> {
    let direction = load.direction().context("a peer has no mixed loads")?;
    let name = match direction {
        DataDirection::Read => "randread",
        DataDirection::Write => "randwrite",
    };
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .env("RW", name)
        .env("BS", load.bs.to_string())
        .env("DEPTH", load.depth.to_string())
        .env("SECONDS", seconds.to_string());
    measure(&command::run(&mut shell, Duration::from_secs_f64(seconds) + EXTRA)?)
}

fn measure(stdout: &str) -> anyhow::Result<Measure> {
    let last = stdout.trim_end().lines().next_back().unwrap_or_default();
    let figures: PeerFigures = serde_json::from_str(last).with_context(|| {
        format!("the peer's last line is no object with iops and p99_us: {last:?}")
    })?;
    Ok(Measure {
        iops: figures.iops,
        latency_us_p99: figures.p99_us,
        host_cpu_us_per_io: figures.cpu_us_per_io,
        target_cpu_us_per_io: figures.cpu_us_per_io.map(|_| 0.0),
        ..Measure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gets_the_load_and_prints_its_figures() {
        let line = r#"test "$RW $BS" = "randread 4096" && echo starting && echo "{\"iops\": $DEPTH, \"p99_us\": 2.5}""#;
        let measure = run(line, &LabLoad::small(100, 8), 0.5).unwrap();
        assert_eq!((measure.iops, measure.latency_us_p99), (8.0, 2.5));
        assert_eq!(measure.cpu_us_per_io(), None);
    }

    #[test]
    fn what_it_prints_instead_is_in_the_error() {
        let error = format!("{:#}", measure("no target there\n").unwrap_err());
        assert!(error.contains("no target there"), "{error}");
        assert!(run("exit 3", &LabLoad::small(100, 8), 0.5).is_err());
    }
}
