//! Real applications: ext4 and XFS, RocksDB, PostgreSQL and scans of files on our devices, on a local
//! file, and on what else shows remote storage as a local device.

mod cpu;
mod data;
mod page;
mod plan;
mod run;
mod side;
mod stack;
mod workload;

use crate::interrupt;
use crate::machine::Conditions;
use crate::output::{write, write_json};
use crate::runs::{MeasuringExtent, SideRun};
use anyhow::{Context, ensure};
use plan::AppRow;
use run::AppsManner;
use serde::{Deserialize, Serialize};
use side::AppSide;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
pub(crate) use workload::scan::{ScanWorkloadArgs as ScanArgs, main as scan_main};

/// Runs applications.
#[derive(Debug, clap::Args)]
pub(crate) struct AppsArgs {
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

impl AppsArgs {
    fn extent(&self) -> MeasuringExtent {
        MeasuringExtent::new(self.quick)
    }

    fn rows(&self) -> Vec<AppRow> {
        let wanted = |row: &AppRow| {
            self.only.is_empty() || self.only.iter().any(|id| id == row.workload.group().id())
        };
        self.extent().rows().into_iter().filter(wanted).collect()
    }

    fn sides(&self) -> Vec<AppSide> {
        if self.sides.is_empty() {
            return self.extent().sides();
        }
        if self.sides.iter().any(|id| id == "all") {
            return AppSide::ALL.to_vec();
        }
        let wanted = |side: &AppSide| self.sides.iter().any(|id| id == side.id());
        AppSide::ALL.into_iter().filter(wanted).collect()
    }
}

/// Results, as written to and read from JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Applications {
    #[serde(flatten)]
    conditions: Conditions,
    /// Fewer rows.
    quick: bool,
    /// Time that it all took.
    minutes: f64,
    /// Size of each device.
    device_bytes: u64,
    sides: Vec<SideResult>,
    /// Rows that were left out.
    skipped: Vec<Skipped>,
    runs: Vec<SideRun>,
}

/// A side, and why it is not there if it is not.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SideResult {
    side: String,
    how: String,
    skipped: Option<String>,
}

/// A kind of application that could not be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Skipped {
    what: String,
    why: String,
}

impl Applications {
    fn extent(&self) -> MeasuringExtent {
        MeasuringExtent::new(self.quick)
    }
}

/// The section of the page for users.
pub(crate) fn short_of(json: &str) -> anyhow::Result<String> {
    Ok(page::short(&serde_json::from_str(json).context("JSON of apps")?).markdown())
}

/// The section of the journal.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    Ok(page::page(&serde_json::from_str(json).context("JSON of apps")?).markdown())
}

/// Measures or reads what was measured; writes JSON and report.
pub(crate) fn main(args: &AppsArgs) -> anyhow::Result<()> {
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
        write_json(path, &applications)?;
    }
    let html = path.with_extension("html");
    write(&html, &page::page(&applications).html("Roadtrain: real applications"))?;
    let folder = path.with_extension("plots");
    for (name, svg) in page::charts(&applications) {
        write(&folder.join(name), &svg)?;
    }
    print!("{}", page::page(&applications).markdown());
    println!("{}, {}, charts in {}", path.display(), html.display(), folder.display());
    Ok(())
}

fn measure(args: &AppsArgs) -> anyhow::Result<Applications> {
    ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    // SAFETY: no pointers are involved.
    ensure!(unsafe { libc::geteuid() } == 0, "mounts and loop devices need root");
    let manner = AppsManner {
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
        conditions: Conditions::now(manner.rounds, manner.seconds.into()),
        quick: args.quick,
        minutes: began.elapsed().as_secs_f64() / 60.0,
        device_bytes: run::DEVICE_BYTES,
        sides: measured.sides,
        skipped: measured.skipped,
        runs: measured.runs,
    })
}

fn list(args: &AppsArgs) {
    let show = |why: Option<String>| why.map_or_else(String::new, |why| format!(" SKIPPED: {why}"));
    for row in args.rows() {
        let why = data::unavailable(row).map(|(_, why)| why);
        println!("{:<9} {row}{}", row.workload.group().id(), show(why));
    }
    println!();
    for side in AppSide::ALL {
        println!("{:<9} {side}: {}{}", side.id(), side.how(), show(side.unavailable()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Cpu, MachineUsage};
    use crate::runs::tests::run;

    /// With the given rounds; zero is a failure. Two cores are used, of which one and a half are known.
    pub(super) fn applications(runs: &[(AppRow, AppSide, &[f64])]) -> Applications {
        let cpu = |cores| Cpu { cores, switches_per_second: 0.0 };
        let usage = MachineUsage {
            machine: cpu(2.0),
            application: cpu(0.5),
            client: cpu(0.75),
            server: cpu(0.25),
        };
        let run = |(row, side, rounds): &(AppRow, AppSide, &[f64])| {
            let mut run = run(&(row.to_string(), side.to_string()), rounds);
            for measure in run.rounds.iter_mut().chain([&mut run.median]).flatten() {
                measure.usage = Some(usage);
            }
            run
        };
        let side = |side: AppSide| SideResult {
            side: side.to_string(),
            how: side.how(),
            skipped: (side == AppSide::Tgt).then(|| "tgtd is not installed".into()),
        };
        Applications {
            conditions: Conditions::made_up(),
            quick: true,
            minutes: 3.0,
            device_bytes: 1 << 30,
            sides: AppSide::ALL.into_iter().map(side).collect(),
            skipped: vec![Skipped { what: "rocksdb".into(), why: "no db_bench".into() }],
            runs: runs.iter().map(run).collect(),
        }
    }
}
