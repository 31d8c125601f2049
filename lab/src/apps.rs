//! Real applications: ext4 and XFS, RocksDB, PostgreSQL and scans of files on our devices, on a local
//! file, and on what else shows remote storage as a local device.

mod chart;
mod cpu;
mod data;
mod judge;
mod page;
mod plan;
mod result;
mod run;
mod side;
mod stack;
mod workload;

use crate::interrupt;
use crate::machine::Machine;
use anyhow::{Context, ensure};
use plan::{Extent, Row};
use result::Applications;
use run::Manner;
use side::Side;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
pub(crate) use workload::scan::{Args as ScanArgs, main as scan_main};

/// Runs applications.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// Fewer sides, rows and rounds: less than four minutes instead of a quarter of an hour
    #[arg(long)]
    quick: bool,
    /// Rounds; each runs everything once [default: 5, quick: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 1)]
    seconds: u32,
    /// Only these kinds of applications (comma-separated): fio, rocksdb, postgres, scan
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// These sides, or all (comma-separated): see --list
    #[arg(long, value_delimiter = ',')]
    sides: Vec<String>,
    /// Name rows and sides, and whether they can be run here, and stop
    #[arg(long)]
    list: bool,
    /// Where the JSON goes; the report goes beside it
    #[arg(long, default_value = "lab/results/apps.json")]
    output: PathBuf,
    /// Render this JSON again instead of measuring
    #[arg(long, value_name = "JSON", conflicts_with = "output")]
    from: Option<PathBuf>,
}

impl Args {
    fn extent(&self) -> Extent {
        if self.quick { Extent::Quick } else { Extent::Full }
    }

    fn rows(&self) -> Vec<Row> {
        let wanted = |row: &Row| {
            self.only.is_empty() || self.only.iter().any(|id| id == row.workload.group().id())
        };
        self.extent().rows().into_iter().filter(wanted).collect()
    }

    fn sides(&self) -> Vec<Side> {
        if self.sides.is_empty() {
            return self.extent().sides();
        }
        if self.sides.iter().any(|id| id == "all") {
            return Extent::Full.sides();
        }
        let wanted = |side: &Side| self.sides.iter().any(|id| id == side.id());
        Side::ALL.into_iter().filter(wanted).collect()
    }
}

/// What the page for users says of them.
pub(crate) fn short_of(json: &str) -> anyhow::Result<String> {
    Ok(page::short(&serde_json::from_str(json).context("JSON of apps")?))
}

/// All of it.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    Ok(page::markdown(&serde_json::from_str(json).context("JSON of apps")?))
}

/// Measures or reads what was measured; writes JSON and report.
pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    if args.list {
        list(args);
        return Ok(());
    }
    let (applications, path) = match &args.from {
        Some(path) => {
            let json =
                fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            (serde_json::from_str(&json).context("JSON of apps")?, path)
        }
        None => (measure(args)?, &args.output),
    };
    if args.from.is_none() {
        crate::eval::write(path, &(serde_json::to_string_pretty(&applications)? + "\n"))?;
    }
    let html = path.with_extension("html");
    crate::eval::write(&html, &page::html(&applications))?;
    let folder = path.with_extension("plots");
    for (number, row) in page::rows(&applications).into_iter().enumerate() {
        if let Some(svg) = chart::svg(row, &applications) {
            let name = format!("{}-{}.svg", row.workload.group().id(), number + 1);
            crate::eval::write(&folder.join(name), &svg)?;
        }
    }
    print!("{}", page::summary(&applications));
    println!("{}, {}, charts in {}", path.display(), html.display(), folder.display());
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Applications> {
    ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    // SAFETY: no pointers are involved.
    ensure!(unsafe { libc::geteuid() } == 0, "mounts and loop devices need root");
    let manner = Manner {
        program: args.program.canonicalize()?,
        sides: args.sides(),
        rows: args.rows(),
        rounds: args.rounds.unwrap_or(args.extent().rounds()).max(1),
        seconds: args.seconds.max(1),
    };
    ensure!(!manner.rows.is_empty(), "no applications are called that");
    ensure!(!manner.sides.is_empty(), "no sides are called that");
    interrupt::watch();
    let began = Instant::now();
    let measured = run::measure(&manner)?;
    Ok(Applications {
        machine: Machine::read(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        quick: args.quick,
        rounds: manner.rounds,
        seconds: manner.seconds,
        minutes: began.elapsed().as_secs_f64() / 60.0,
        device_bytes: run::DEVICE_BYTES,
        sides: measured.sides,
        skipped: measured.skipped,
        runs: measured.runs,
    })
}

fn list(args: &Args) {
    let show = |why: Option<String>| why.map_or_else(String::new, |why| format!(" SKIPPED: {why}"));
    for row in args.rows() {
        let why = data::unavailable(row).map(|(_, why)| why);
        println!("{:<9} {row}{}", row.workload.group().id(), show(why));
    }
    println!();
    for side in Side::ALL {
        println!("{:<9} {side}: {}{}", side.id(), side.how(), show(side.unavailable()));
    }
}
