//! Figures of fio.

use crate::measure::Measure;
use anyhow::{Context, ensure};
use serde_json::Value;

/// Reads the JSON of a job that only reads or only writes, with the number of its I/Os; warnings may come before it.
/// Percentiles begin before the submission if fio has such.
pub(crate) fn parse(printed: &str) -> anyhow::Result<(Measure, f64)> {
    let json = printed.find('{').map(|at| &printed[at..]).context("fio gave no JSON")?;
    let json: Value = serde_json::from_str(json).context("fio's JSON")?;
    let job = json.pointer("/jobs/0").context("no job in fio's JSON")?;
    ensure!(job["error"] == 0, "fio: error {}", job["error"]);
    let number = |direction: &str, path: &str| job[direction].pointer(path).and_then(Value::as_f64);
    let direction = ["read", "write"]
        .into_iter()
        .find(|direction| number(direction, "/iops").is_some_and(|iops| iops > 0.0))
        .context("fio has done nothing")?;
    let figure =
        |path: &str| number(direction, path).with_context(|| format!("no {path} in fio's JSON"));
    let percentile = |percent: &str| {
        figure(&format!("/lat_ns/percentile/{percent}"))
            .or_else(|_| figure(&format!("/clat_ns/percentile/{percent}")))
    };
    let measure = Measure {
        iops: figure("/iops")?,
        bytes_per_second: figure("/bw_bytes")?,
        latency_us_mean: figure("/lat_ns/mean")? / 1e3,
        latency_us_p50: percentile("50.000000")? / 1e3,
        latency_us_p99: percentile("99.000000")? / 1e3,
        ..Measure::default()
    };
    Ok((measure, figure("/total_ios")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // As fio 3.33 prints it, shortened.
    const PRINTED: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{
  "fio version" : "fio-3.33",
  "jobs" : [ { "jobname" : "apps", "error" : 0, "read" : { "iops" : 0.0 },
      "write" : { "total_ios" : 100000, "bw_bytes" : 204800000, "iops" : 50000.124,
        "lat_ns" : { "min" : 9000, "max" : 900000, "mean" : 21000.5, "stddev" : 1.0, "N" : 100000,
          "percentile" : { "1.000000" : 9900, "50.000000" : 20096, "99.000000" : 41728 } } } } ]
}"#;

    #[test]
    fn the_direction_that_ran_is_read() {
        let (measure, ios) = parse(PRINTED).expect("complete");
        assert_eq!((measure.iops, measure.bytes_per_second), (50000.124, 204800000.0));
        assert_eq!((measure.latency_us_mean, measure.latency_us_p50), (21.0005, 20.096));
        assert_eq!((measure.latency_us_p99, ios), (41.728, 1e5));
        let by_completion = r#"{"jobs": [{"error": 0, "read": {"iops": 10.5, "bw_bytes": 43008,
            "total_ios": 7, "lat_ns": {"mean": 2000.0},
            "clat_ns": {"percentile": {"50.000000": 1500, "99.000000": 9000}}}}]}"#;
        let (measure, _) = parse(by_completion).expect("complete");
        assert_eq!((measure.latency_us_p50, measure.latency_us_p99), (1.5, 9.0));
    }

    #[test]
    fn errors_and_absent_figures_are_refused() {
        assert!(parse(&PRINTED.replace(r#""error" : 0"#, r#""error" : 5"#)).is_err());
        assert!(parse(&PRINTED.replace("bw_bytes", "bw")).is_err());
        assert!(parse(r#"{"jobs": [{"error": 0, "read": {"iops": 0.0}}]}"#).is_err());
        assert!(parse("fio: no such engine").is_err());
    }
}
