//! What the Ethernet transport has to reach, one by one: each bar is measured over links between two
//! network namespaces, host on core 0, target on core 1.

mod against;
mod cost;
mod fair;
mod rates;
mod report;
mod stamp;
mod trouble;

use crate::machine::Machine;
use crate::measure::{Measure, median};
use crate::product::Timing;
use crate::wired::{Contestant, Wired};
use crate::workload::{Load, Over, Setup};
use crate::{interrupt, links, noise};
use anyhow::{Context, bail, ensure};
use report::{Report, Row};
use stamp::Stamp;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Checks the bars.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// What sends hostile frames
    #[arg(long, default_value = "target/release/roadtrain-exercise")]
    exercise: PathBuf,
    /// Only checks whose name contains one of these (comma-separated)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Name the checks and stop
    #[arg(long)]
    list: bool,
    /// Runs of each side, alternately; medians count
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Where the JSON goes, check by check; those that are not run keep what is there
    #[arg(long, default_value = "lab/results/ether.json")]
    output: PathBuf,
    /// Measure nothing: read what is in the output file
    #[arg(long)]
    render: bool,
}

/// How long a quiet machine is waited for.
const QUIET_MAX: Duration = Duration::from_secs(20);

/// What checks need.
struct Bench {
    program: PathBuf,
    exercise: PathBuf,
    rounds: usize,
    seconds: f64,
}

/// A check: what it is about, and what finds out.
type Check = (&'static str, &'static str, fn(&Bench) -> anyhow::Result<Vec<Row>>);

const CHECKS: [Check; 10] = [
    ("use", "how full a link of 1 Gbit/s is", rates::link_use),
    ("links", "1 to 6 links of 1 Gbit/s", rates::links),
    ("floor", "beside frames without a protocol", against::floor),
    ("tcp", "beside NVMe/TCP over the same link", against::tcp),
    ("loss", "with 1 % of the frames lost", trouble::loss),
    ("heavy", "errors with very many frames lost", trouble::heavy_loss),
    ("cut", "errors while a link of two is cut and restored", trouble::cut),
    ("fair", "beside a TCP stream on the same link", fair::beside_stream),
    ("hostile", "errors, and memory, beside a hostile peer", trouble::hostile),
    ("cost", "what a 4 KiB request costs, by component", cost::components),
];

/// The product over frames, as it comes.
const ETHER: Setup = Setup { over: Over::Ether, ..Setup::new("auto") };
/// The same policy over TCP.
const TCP: Setup = Setup::new("auto");

/// Measures or reads what was measured; prints.
pub(crate) fn main(args: &Args) -> anyhow::Result<()> {
    if args.list {
        CHECKS.iter().for_each(|(name, about, _)| println!("{name:<8} {about}"));
        return Ok(());
    }
    let report = if args.render { read(args)? } else { measure(args)? };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", report.markdown()),
    }
    Ok(())
}

/// What the page for users says of it.
pub(crate) fn short_of(json: &str) -> anyhow::Result<String> {
    let report: Report = serde_json::from_str(json).context("JSON of ether")?;
    let about = |wanted: &str| {
        CHECKS.iter().find(|(name, ..)| *name == wanted).map_or("", |(_, about, _)| *about)
    };
    Ok(report.short(about))
}

/// All of it.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    let report: Report = serde_json::from_str(json).context("JSON of ether")?;
    Ok(report.markdown())
}

fn read(args: &Args) -> anyhow::Result<Report> {
    let json = fs::read_to_string(&args.output)
        .with_context(|| format!("read {}", args.output.display()))?;
    serde_json::from_str(&json).context("JSON of ether")
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    if let Some(why) = links::unavailable() {
        bail!("no links: {why}");
    }
    ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|o| name.contains(o));
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| wanted(check.0)).collect();
    ensure!(!checks.is_empty(), "no check is called that: see --list");
    interrupt::watch();
    let bench = Bench {
        program: args.program.canonicalize()?,
        exercise: args.exercise.clone(),
        rounds: args.rounds.max(1),
        seconds: args.seconds.max(0.5),
    };
    // An interrupted run, too, leaves what other runs had.
    let mut report = if args.output.exists() { read(args)? } else { Report::default() };
    report.machine = Some(Machine::read());
    for (name, about, run) in checks {
        let began = Instant::now();
        let foreign_cores = noise::settle(QUIET_MAX);
        let rows = run(&bench).unwrap_or_else(|e| vec![Row::failed(name, about, &e)]);
        interrupt::check()?;
        eprintln!("{name}: {:.0} s", began.elapsed().as_secs_f64());
        report.replace(name, rows, Stamp::now(bench.rounds, bench.seconds, foreign_cores));
        report.sort(CHECKS.iter().map(|check| check.0));
        crate::eval::write(&args.output, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(report)
}

impl Bench {
    /// So much memory for the target.
    fn timing(&self) -> Timing {
        Timing { mib: 64, seconds: self.seconds, ramp_seconds: 0.3, rate: None }
    }

    /// Measures contestants alternately; each round's figures, in the contestants' order.
    fn rounds(
        &self,
        wired: &Wired,
        load: &Load,
        contestants: &[Contestant],
    ) -> anyhow::Result<Vec<Vec<Measure>>> {
        let mut rounds = Vec::new();
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..contestants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            let mut measures = vec![Measure::default(); contestants.len()];
            for index in order {
                interrupt::check()?;
                measures[index] = wired
                    .measure(load, contestants[index], &self.timing())
                    .with_context(|| load.to_string())?;
            }
            rounds.push(measures);
        }
        Ok(rounds)
    }

    /// The median of what rounds of one contestant had.
    fn median(
        &self,
        wired: &Wired,
        load: &Load,
        setup: Setup,
        of: impl Fn(&Measure) -> f64,
    ) -> anyhow::Result<f64> {
        let rounds = self.rounds(wired, load, &[Contestant::Product(setup)])?;
        middle(rounds.iter().map(|round| of(&round[0])))
    }
}

fn middle(values: impl Iterator<Item = f64>) -> anyhow::Result<f64> {
    median(values).context("nothing was measured")
}

fn direction(reads_percent: u8) -> &'static str {
    if reads_percent == 100 { "reads" } else { "writes" }
}
