//! The limit of the FUSE front-end: the same files, answered from memory at once, beside the product over the
//! loopback network, under the same fio, in turns.

mod contestant;
mod fio;
mod memory;

use crate::procfs;
use anyhow::Context;
use contestant::{Contestant, Running};
use fio::Sample;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The limit of the FUSE front-end, and how close the product comes
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Only serve memory at this directory, until standard input ends
    #[arg(long, value_name = "MOUNTPOINT")]
    serve: Option<PathBuf>,
    /// With --serve: over io_uring (on) or the classic device (off)
    #[arg(long, default_value = "on")]
    uring: roadtrain_front::fuse::Uring,
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
    /// Write all samples here, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One run of one contestant.
#[derive(Clone, Debug, Serialize)]
struct Run {
    contestant: Contestant,
    depth: u32,
    sample: Sample,
    /// CPU time of all but fio, for each I/O.
    cpu_us_per_io: f64,
    /// Voluntary context switches of who serves the files, for each I/O.
    wake_ups_per_io: f64,
    /// How long who serves the files was ready to run while another had its core, for each I/O.
    ready_us_per_io: f64,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    if let Some(mountpoint) = &args.serve {
        return memory::serve(mountpoint, args.uring);
    }
    let directory = std::env::temp_dir().join(format!("floor-fuse-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let runs = measure(args, &directory);
    std::fs::remove_dir_all(&directory)?;
    let runs = runs?;
    print(&runs, &args.depths);
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&runs)?)?;
    }
    Ok(())
}

fn measure(args: &Args, directory: &Path) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for round in 0..args.rounds {
        for contestant in Contestant::ALL {
            eprintln!("round {}/{}: {}", round + 1, args.rounds, contestant.name());
            let running = Running::start(contestant, &args.program, directory)
                .with_context(|| contestant.name())?;
            for &depth in &args.depths {
                runs.push(run(args, contestant, &running, depth)?);
            }
            running.stop()?;
        }
    }
    Ok(runs)
}

fn run(args: &Args, contestant: Contestant, running: &Running, depth: u32) -> anyhow::Result<Run> {
    let front = running.front();
    let state = || -> anyhow::Result<[f64; 3]> {
        Ok([
            cpu_seconds(running)? * 1e6,
            procfs::wake_ups(front)? as f64,
            procfs::ready_seconds(front)? * 1e6,
        ])
    };
    let before = state()?;
    let sample = fio::run(running.file(), &args.engine, depth, args.seconds)?;
    let after = state()?;
    let per_io = |field: usize| (after[field] - before[field]) / sample.ios.max(1.0);
    Ok(Run {
        contestant,
        depth,
        sample,
        cpu_us_per_io: per_io(0),
        wake_ups_per_io: per_io(1),
        ready_us_per_io: per_io(2),
    })
}

fn cpu_seconds(running: &Running) -> anyhow::Result<f64> {
    running.processes().map(procfs::cpu_seconds).sum()
}

fn print(runs: &[Run], depths: &[u32]) {
    println!(
        "| depth | | IOPS | of its floor | mean us | p99 us | CPU us/IO, servers | wake-ups/IO, front | ready us/IO, front |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for &depth in depths {
        for contestant in Contestant::ALL {
            let of = |value: fn(&Run) -> f64| median(runs, contestant, depth, value);
            let iops = of(|run| run.sample.iops);
            let floor = median(runs, contestant.floor(), depth, |run| run.sample.iops);
            println!(
                "| {depth} | {} | {iops:.0} | {:.2} | {:.1} | {:.1} | {:.2} | {:.3} | {:.2} |",
                contestant.name(),
                iops / floor,
                of(|run| run.sample.latency_us_mean),
                of(|run| run.sample.latency_us_p99),
                of(|run| run.cpu_us_per_io),
                of(|run| run.wake_ups_per_io),
                of(|run| run.ready_us_per_io),
            );
        }
    }
}

fn median(runs: &[Run], contestant: Contestant, depth: u32, value: fn(&Run) -> f64) -> f64 {
    let its = runs.iter().filter(|run| run.contestant == contestant && run.depth == depth);
    let mut values: Vec<f64> = its.map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
