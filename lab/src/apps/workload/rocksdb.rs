//! RocksDB's own db_bench. The data set is larger than the block cache and is read past the page cache,
//! so that nearly every read of a key is a read of the device.

use super::AppMeter;
use crate::command::{self, run as finish};
use crate::measure::Measure;
use anyhow::Context;
use std::path::Path;
use std::time::Duration;

const KEYS: usize = 200_000;
/// The same at all times: it is also how the data set was made.
const OPTIONS: &str = "--key_size=16 --value_size=1000 --compression_type=none --bloom_bits=10 \
    --cache_size=8388608 --block_size=4096 --write_buffer_size=16777216 \
    --target_file_size_base=16777216 --max_bytes_for_level_base=67108864 --open_files=-1";
/// Past the page cache.
const DIRECT: &str = "--use_direct_reads=true --use_direct_io_for_flush_and_compaction=true";
const THREADS: usize = 4;
/// Rate of the writer: enough for flushes and compactions.
const WRITE_BYTES_PER_SECOND: usize = 8 << 20;
const CREATE: Duration = Duration::from_secs(60);

/// Makes the data set: 200 MB.
pub(in crate::apps) fn create(folder: &Path) -> anyhow::Result<()> {
    let line = format!(
        "db_bench --benchmarks=fillseq --db={} --num={KEYS} {OPTIONS} --disable_wal=true --seed=1",
        folder.display()
    );
    finish(&mut command::words(&line), CREATE).map(drop)
}

/// Reads random keys for the given time.
pub(in crate::apps) fn run(
    folder: &Path,
    writing: bool,
    meter: &AppMeter,
    seed: usize,
) -> anyhow::Result<Measure> {
    let name = if writing { "readwhilewriting" } else { "readrandom" };
    let line = format!(
        "db_bench --benchmarks={name} --use_existing_db=true --db={} --num={KEYS} \
         --threads={THREADS} --duration={} --seed={seed} --histogram=true \
         --benchmark_write_rate_limit={WRITE_BYTES_PER_SECOND} {OPTIONS} {DIRECT}",
        folder.display(),
        meter.seconds
    );
    let (printed, usage) = meter.metered(&mut command::words(&line))?;
    Ok(Measure { usage: Some(usage), ..parse(&printed, name)? })
}

/// Reads its summary line and the histogram of reads.
fn parse(printed: &str, name: &str) -> anyhow::Result<Measure> {
    let line = printed.lines().find(|line| line.starts_with(name) && line.contains(" ops/sec"));
    let line = line.with_context(|| format!("db_bench says nothing of {name}"))?;
    let before = |unit: &str| {
        let at = line.split_whitespace().position(|word| word.trim_end_matches(';') == unit)?;
        line.split_whitespace().nth(at.checked_sub(1)?)?.parse::<f64>().ok()
    };
    let histogram = printed.split_once("Microseconds per read").context("no histogram of reads")?.1;
    let percentiles = histogram.lines().find_map(|line| line.strip_prefix("Percentiles:"));
    let percentiles = percentiles.context("no percentiles of reads")?;
    let percentile = |name: &str| {
        let mut words = percentiles.split_whitespace();
        words.find(|word| *word == name)?;
        words.next()?.parse::<f64>().ok()
    };
    Ok(Measure {
        iops: before("ops/sec").context("no ops/sec")?,
        latency_us_p50: percentile("P50:").context("no P50")?,
        latency_us_p99: percentile("P99:").context("no P99")?,
        ..Measure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // As db_bench 7.8 prints it, shortened.
    const PRINTED: &str = "\
Initializing RocksDB Options from the specified file
RocksDB:    version 7.8.3
Keys:       16 bytes each (+ 0 bytes user-defined timestamp)
------------------------------------------------
readrandom   :      80.134 micros/op 49863 ops/sec 1.000 seconds 49872 operations;   48.3 MB/s

Microseconds per read:
Count: 49872 Average: 80.0123  StdDev: 31.40
Min: 2  Median: 74.2156  Max: 2104
Percentiles: P50: 74.22 P75: 95.10 P99: 171.33 P99.9: 402.50 P99.99: 1501.00
------------------------------------------------------
[       1,       2 ]        3   0.006%   0.006%
";

    #[test]
    fn its_summary_is_read() {
        let said = parse(PRINTED, "readrandom").expect("complete");
        assert_eq!(said.iops, 49863.0);
        assert_eq!((said.latency_us_p50, said.latency_us_p99), (74.22, 171.33));
    }

    #[test]
    fn the_histogram_of_writes_is_another() {
        let writes = "Microseconds per write:\nPercentiles: P50: 1 P99: 2\n";
        let with =
            PRINTED.replace("Microseconds per read", &format!("{writes}Microseconds per read"));
        assert_eq!(parse(&with, "readrandom").expect("complete").latency_us_p99, 171.33);
    }

    #[test]
    fn absent_figures_are_refused() {
        assert!(parse(PRINTED, "readwhilewriting").is_err());
        assert!(parse(&PRINTED.replace("Percentiles", "Percents"), "readrandom").is_err());
        assert!(parse("", "readrandom").is_err());
    }
}
