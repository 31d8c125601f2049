//! Sequential scans of many files, each read whole and in order through the page cache, as full-text
//! indexers do. A file's pages are dropped when it is read, so that all are always read from the device.

use super::AppMeter;
use crate::measure::Measure;
use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const KIB: usize = 1024;
/// File sizes, one after the other.
const SIZES: [usize; 5] = [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB];
const FILES: usize = 400;
/// Bytes of one call.
const READ: usize = 64 * KIB;

/// Reads files by threads for a time; prints JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct ScanWorkloadArgs {
    folder: PathBuf,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    seconds: u32,
}

/// The report of a scan.
#[derive(Debug, Serialize, Deserialize)]
struct Scanned {
    files: u64,
    bytes: u64,
    seconds: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
}

/// Makes the files: 157 MB of what `pattern` contains.
pub(in crate::apps) fn create(folder: &Path, pattern: &Path) -> anyhow::Result<()> {
    fs::create_dir(folder)?;
    let mut pattern = File::open(pattern)?;
    for (number, &size) in SIZES.iter().cycle().take(FILES).enumerate() {
        let mut file = File::create(folder.join(format!("{number:04}")))?;
        std::io::copy(&mut pattern.by_ref().take(size as u64), &mut file)?;
        ensure!(file.metadata()?.len() == size as u64, "the pattern is too short");
    }
    Ok(())
}

/// Scans in a process of its own.
pub(in crate::apps) fn run(
    folder: &Path,
    threads: usize,
    meter: &AppMeter,
) -> anyhow::Result<Measure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("scan").arg(folder);
    command.args(["--threads", &threads.to_string(), "--seconds", &meter.seconds.to_string()]);
    let (printed, usage) = meter.metered(&mut command)?;
    Ok(Measure { usage: Some(usage), ..parse(&printed)? })
}

fn parse(printed: &str) -> anyhow::Result<Measure> {
    let scanned: Scanned = serde_json::from_str(printed).context("a scan's JSON")?;
    ensure!(scanned.seconds > 0.0 && scanned.files > 0, "nothing was read");
    Ok(Measure {
        iops: scanned.files as f64 / scanned.seconds,
        bytes_per_second: scanned.bytes as f64 / scanned.seconds,
        latency_us_p50: scanned.latency_us_p50,
        latency_us_p99: scanned.latency_us_p99,
        ..Measure::default()
    })
}

/// `roadtrain-lab scan`
pub(crate) fn main(args: &ScanWorkloadArgs) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&args.folder)? {
        files.push(entry?.path());
    }
    files.sort();
    ensure!(files.len() >= args.threads && args.threads > 0, "fewer files than threads");
    let began = Instant::now();
    let until = began + Duration::from_secs(args.seconds.into());
    let shares: Vec<Vec<&PathBuf>> = (0..args.threads)
        .map(|thread| files.iter().skip(thread).step_by(args.threads).collect())
        .collect();
    let tallies: Vec<anyhow::Result<ScanTally>> = thread::scope(|scope| {
        let threads: Vec<_> =
            shares.iter().map(|share| scope.spawn(move || scan(share, until))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        joined.collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut all = ScanTally::new();
    for tally in tallies {
        all.add(&tally?);
    }
    let percentile = |percent| all.latency_ns.value_at_percentile(percent) as f64 / 1e3;
    let scanned = Scanned {
        files: all.latency_ns.len(),
        bytes: all.bytes,
        seconds,
        latency_us_p50: percentile(50.0),
        latency_us_p99: percentile(99.0),
    };
    println!("{}", serde_json::to_string(&scanned)?);
    Ok(())
}

/// Files and bytes that a thread has read.
struct ScanTally {
    bytes: u64,
    /// Times of whole files.
    latency_ns: Histogram<u64>,
}

impl ScanTally {
    fn new() -> Self {
        Self { bytes: 0, latency_ns: Histogram::new(3).expect("three digits") }
    }

    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.latency_ns.add(&other.latency_ns).expect("it grows");
    }
}

/// Reads the files one after the other, and again from the first, until the time has come.
fn scan(files: &[&PathBuf], until: Instant) -> anyhow::Result<ScanTally> {
    let mut tally = ScanTally::new();
    let mut buffer = vec![0; READ];
    for path in files.iter().cycle() {
        let began = Instant::now();
        if began >= until {
            break;
        }
        let mut file = File::open(path)?;
        tally.bytes += read_all(&mut file, &mut buffer)?;
        tally.latency_ns.record(began.elapsed().as_nanos() as u64).expect("it grows");
        drop_pages(&file);
    }
    Ok(tally)
}

fn read_all(file: &mut File, buffer: &mut [u8]) -> anyhow::Result<u64> {
    let mut bytes = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes += n as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Next time it is read from the device again.
fn drop_pages(file: &File) {
    // SAFETY: no pointers; the descriptor is open as long as the file.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_prints_is_read() {
        let printed = r#"{"files":4000,"bytes":1600000000,"seconds":2.0,"latency_us_p50":410.5,
            "latency_us_p99":1900.25}"#;
        let said = parse(printed).expect("complete");
        assert_eq!(said.iops, 2000.0);
        assert_eq!(said.bytes_per_second, 8e8);
        assert_eq!(said.latency_us_p99, 1900.25);
        assert!(parse("").is_err());
        assert!(parse(&printed.replace("4000", "0")).is_err());
    }

    #[test]
    fn all_of_each_file_is_read() {
        let folder = std::env::temp_dir().join(format!("roadtrain-scan-{}", std::process::id()));
        fs::create_dir(&folder).expect("new");
        let paths = [1usize, READ, READ + 1].map(|size| {
            let path = folder.join(size.to_string());
            fs::write(&path, vec![7; size]).expect("space");
            path
        });
        let share: Vec<&PathBuf> = paths.iter().collect();
        let mut bytes = 0;
        for path in &share {
            let mut file = File::open(path).expect("made above");
            bytes += read_all(&mut file, &mut [0; READ]).expect("readable");
        }
        assert_eq!(bytes, 2 * READ as u64 + 2);
        let until = Instant::now() + Duration::from_secs(3600);
        let missing = [&folder.join("absent")];
        assert!(scan(&missing, until).is_err(), "a file that is not there is no success");
        assert_eq!(scan(&share, Instant::now()).expect("nothing to do").bytes, 0);
        fs::remove_dir_all(&folder).expect("made above");
    }
}
