//! The limit of the FUSE front-end: the same files, answered from memory at once, beside the product over the
//! loopback network, under the same fio, in turns.

mod contestant;
mod memory;

use crate::measure::Measure;
use crate::page::{PageParts, cells, optional};
use crate::runs::{self, Index, RunCase, SideRun, SideTurn};
use crate::{command, fio, interrupt, procfs};
use contestant::{FuseContestant, FuseRunning};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limit of the FUSE front-end, and how close the product comes
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FloorFuseArgs {
    /// Only serve memory at this directory, until a signal ends it
    #[arg(long, value_name = "MOUNTPOINT")]
    serve: Option<PathBuf>,
    /// With --serve: over io_uring (on) or the classic device (off)
    #[arg(long, default_value = "on")]
    uring: roadtrain_front::fuse::FuseUring,
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// Requests in flight
    #[arg(long, value_delimiter = ',', default_value = "1,32")]
    depths: Vec<u32>,
    /// fio's engine
    #[arg(long, default_value = "io_uring")]
    engine: String,
    /// Seconds of each run
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Runs of each, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Time of fio beyond measuring.
const SLACK: Duration = Duration::from_secs(30);

pub(crate) fn main(args: &FloorFuseArgs) -> anyhow::Result<()> {
    if let Some(mountpoint) = &args.serve {
        return memory::serve(mountpoint, args.uring);
    }
    let directory = std::env::temp_dir().join(format!("floor-fuse-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    interrupt::watch();
    let turn = |contestant: FuseContestant| {
        let run = |depth| SideRun::new(&names(contestant, depth), String::new());
        SideTurn { side: contestant, runs: args.depths.iter().copied().map(run).collect() }
    };
    let turns = FuseContestant::ALL.map(turn).into();
    let mut cases = [RunCase { title: "all depths".into(), rounds: args.rounds, turns }];
    runs::measure(&mut cases, |&contestant, _| {
        measure(args, contestant, &directory)
            .unwrap_or_else(|e| args.depths.iter().map(|_| Err(anyhow::anyhow!("{e:#}"))).collect())
    });
    std::fs::remove_dir_all(&directory)?;
    let runs = runs::finish(cases.into());
    print!("{}", page(&runs, &args.depths).markdown());
    interrupt::check()
}

fn names(contestant: FuseContestant, depth: u32) -> (String, &'static str) {
    (depth.to_string(), contestant.name())
}

/// All depths of a contestant that is started for them.
fn measure(
    args: &FloorFuseArgs,
    contestant: FuseContestant,
    directory: &Path,
) -> anyhow::Result<Vec<anyhow::Result<Measure>>> {
    let running = FuseRunning::start(contestant, &args.program, directory)?;
    Ok(args.depths.iter().map(|&depth| load(args, &running, depth)).collect())
}

/// Random reads of 4 KiB with direct I/O; CPU time is that of all but fio, the rest is of the server of the files.
fn load(args: &FloorFuseArgs, running: &FuseRunning, depth: u32) -> anyhow::Result<Measure> {
    let line = format!(
        "fio --name=load --filename={} --rw=randread --bs=4k --direct=1 --time_based --output-format=json \
         --ioengine={} --iodepth={depth} --runtime={}s",
        running.file().display(),
        args.engine,
        args.seconds
    );
    let front = running.front();
    let state = || -> anyhow::Result<[f64; 3]> {
        let cpu: anyhow::Result<f64> = running.processes().map(procfs::cpu_seconds).sum();
        let (wake_ups, ready) = (procfs::wake_ups(front)?, procfs::ready_seconds(front)?);
        Ok([cpu? * 1e6, wake_ups as f64, ready * 1e6])
    };
    let before = state()?;
    let limit = Duration::from_secs_f64(args.seconds) + SLACK;
    let (measure, ios) = fio::parse(&command::run(&mut command::words(&line), limit)?)?;
    let after = state()?;
    let per_io = |field: usize| Some((after[field] - before[field]) / ios.max(1.0));
    Ok(Measure {
        target_cpu_us_per_io: per_io(0),
        host_wake_ups_per_io: per_io(1),
        ready_us_per_io: per_io(2),
        ..measure
    })
}

fn page(runs: &[SideRun], depths: &[u32]) -> PageParts {
    let index = Index::new(runs);
    let mut grid = vec![cells(
        "depth |  | IOPS | of its floor | mean us | p99 us | CPU us/IO, servers | wake-ups/IO, front | ready us/IO, front",
    )];
    for &depth in depths {
        for contestant in FuseContestant::ALL {
            let median = |contestant| index.median(&names(contestant, depth));
            let Some(m) = median(contestant) else { continue };
            let of_floor = median(contestant.floor()).map(|floor| m.iops / floor.iops);
            grid.push(vec![
                depth.to_string(),
                contestant.name().to_owned(),
                format!("{:.0}", m.iops),
                optional(of_floor, 2),
                format!("{:.1}", m.latency_us_mean),
                format!("{:.1}", m.latency_us_p99),
                optional(m.target_cpu_us_per_io, 2),
                optional(m.host_wake_ups_per_io, 3),
                optional(m.ready_us_per_io, 2),
            ]);
        }
    }
    let mut page = PageParts::default();
    page.table(grid);
    page
}
