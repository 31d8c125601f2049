//! Runs fio on a file, and reads what it measured.

use crate::product;
use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What one run of fio measured.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub(super) struct Sample {
    pub(super) ios: f64,
    pub(super) iops: f64,
    pub(super) latency_us_mean: f64,
    pub(super) latency_us_p99: f64,
}

/// Random reads of 4 KiB with direct I/O.
pub(super) fn run(file: &Path, engine: &str, depth: u32, seconds: f64) -> anyhow::Result<Sample> {
    let mut fio = Command::new("fio");
    fio.arg("--name=load").arg(format!("--filename={}", file.display()));
    fio.args(["--rw=randread", "--bs=4k", "--direct=1", "--time_based", "--output-format=json"]);
    fio.arg(format!("--ioengine={engine}")).arg(format!("--iodepth={depth}"));
    fio.arg(format!("--runtime={seconds}s"));
    read(&product::finish(&mut fio)?.stdout)
}

fn read(stdout: &[u8]) -> anyhow::Result<Sample> {
    let json: Value = serde_json::from_slice(stdout).context("JSON of fio")?;
    let job = json.pointer("/jobs/0").context("no job in fio's JSON")?;
    let number = |path: &str| {
        job.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} of fio"))
    };
    anyhow::ensure!(number("/error")? == 0.0, "fio saw error {}", number("/error")?);
    Ok(Sample {
        ios: number("/read/total_ios")?,
        iops: number("/read/iops")?,
        latency_us_mean: number("/read/lat_ns/mean")? / 1000.0,
        latency_us_p99: number("/read/clat_ns/percentile/99.000000")? / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_report_is_read() {
        let read_part = json!({
            "total_ios": 300, "iops": 100.5, "lat_ns": { "mean": 9000.0 },
            "clat_ns": { "percentile": { "99.000000": 20000 } },
        });
        let mut report = json!({ "jobs": [{ "error": 0, "read": read_part }] });
        let sample = read(report.to_string().as_bytes()).unwrap();
        let expected =
            Sample { ios: 300.0, iops: 100.5, latency_us_mean: 9.0, latency_us_p99: 20.0 };
        assert_eq!(sample, expected);
        report["jobs"][0]["error"] = json!(5);
        assert!(read(report.to_string().as_bytes()).is_err());
        assert!(read(b"{}").is_err());
    }
}
