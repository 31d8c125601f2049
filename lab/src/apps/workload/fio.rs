//! fio: 4 KiB random reads past the page cache, the basis of all others.

use super::{Said, Turn};
use crate::apps::result::Measure;
use crate::command;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::Path;

/// What is read: far beyond the caches.
pub(in crate::apps) const BYTES: u64 = 256 << 20;

/// Reads for so long.
pub(in crate::apps) fn run(file: &Path, depth: usize, turn: &Turn) -> anyhow::Result<Measure> {
    let line = format!(
        "fio --name=apps --filename={} --rw=randread --bs=4k --direct=1 --ioengine=libaio \
         --iodepth={depth} --size={BYTES} --norandommap --time_based \
         --runtime={} --thread --readonly --clat_percentiles=0 --lat_percentiles=1 \
         --output-format=json",
        file.display(),
        turn.seconds
    );
    let (printed, loads) = turn.metered(&mut command::words(&line))?;
    Ok(parse(&printed)?.with(loads))
}

/// Reads fio's JSON; before it there may be warnings. Latencies begin before the submission, in which
/// some file systems do most of the work.
fn parse(printed: &str) -> anyhow::Result<Said> {
    let json = printed.find('{').map(|at| &printed[at..]).context("fio gave no JSON")?;
    let json: Value = serde_json::from_str(json).context("fio's JSON")?;
    let number = |path: &str| {
        let value = json.pointer(&format!("/jobs/0/{path}")).and_then(Value::as_f64);
        value.with_context(|| format!("no {path} in fio's JSON"))
    };
    ensure!(number("error")? == 0.0, "fio: error {}", number("error")?);
    Ok(Said {
        operations_per_second: number("read/iops")?,
        bytes_per_second: Some(number("read/bw_bytes")?),
        latency_us_p50: number("read/lat_ns/percentile/50.000000")? / 1e3,
        latency_us_p99: number("read/lat_ns/percentile/99.000000")? / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // As fio 3.33 prints it, shortened.
    const PRINTED: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{
  "fio version" : "fio-3.33",
  "jobs" : [ { "jobname" : "apps", "error" : 0,
      "read" : { "io_bytes" : 409600000, "bw_bytes" : 204800000, "iops" : 50000.124,
        "lat_ns" : { "min" : 9000, "max" : 900000, "mean" : 21000.5, "stddev" : 1.0, "N" : 100000,
          "percentile" : { "1.000000" : 9900, "50.000000" : 20096, "99.000000" : 41728 } } } } ]
}"#;

    #[test]
    fn its_json_is_read() {
        let said = parse(PRINTED).expect("complete");
        assert_eq!(said.operations_per_second, 50000.124);
        assert_eq!(said.bytes_per_second, Some(204800000.0));
        assert_eq!((said.latency_us_p50, said.latency_us_p99), (20.096, 41.728));
    }

    #[test]
    fn errors_and_absent_figures_are_refused() {
        assert!(parse(&PRINTED.replace(r#""error" : 0"#, r#""error" : 5"#)).is_err());
        assert!(parse(&PRINTED.replace("iops", "ipos")).is_err());
        assert!(parse("fio: no such file").is_err());
    }
}
