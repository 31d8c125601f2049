//! The comparison: the product and the floor, run alternately in one go, with what must be reached.

mod connections;
mod cores;
mod exchange;
mod handshake;
mod idle;
mod plan;
mod render;
mod result;
pub(crate) mod serve;
mod tls;
mod waiting;

use render::markdown;
use result::Table;

use crate::floor;
use crate::machine::Machine;
use crate::measure::Measure;
use crate::noise::quiet;
use crate::product::{self, Timing};
use anyhow::Context;
use plan::Row;
use result::{GoalResult, Ratios, RowResult};
use std::path::{Path, PathBuf};

/// Runs the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// Rounds; each runs every row once, the floor beside it
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Three rounds of one second
    #[arg(long)]
    quick: bool,
    /// Only rows whose name contains this (comma-separated)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only the floor
    #[arg(long)]
    floor_only: bool,
    /// Name the rows and stop
    #[arg(long)]
    list: bool,
    /// Repeat a run, at most so often, when others used more than a tenth of a core meanwhile
    #[arg(long, default_value_t = 2)]
    retries: usize,
    /// Where the JSON goes
    #[arg(long, default_value = "lab/results/latest.json")]
    output: PathBuf,
}

/// Runs, prints the table, writes the JSON.
pub(crate) fn main(mut args: Args) -> anyhow::Result<()> {
    if args.quick {
        (args.rounds, args.seconds) = (3, 1.0);
    }
    let wanted = |id: &str| args.only.is_empty() || args.only.iter().any(|part| id.contains(part));
    let rows: Vec<Row> = plan::rows().into_iter().filter(|row| wanted(&row.id)).collect();
    if args.list {
        rows.iter().for_each(|row| println!("{}", row.id));
        ["cores", "connections", "tls", "waiting", "idle"]
            .into_iter()
            .filter(|part| wanted(part))
            .for_each(|part| println!("{part}"));
        return Ok(());
    }
    if !args.floor_only {
        anyhow::ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    }
    let mut runs: Vec<Runs> = rows.into_iter().map(|row| Runs::new(row, &args)).collect();
    let mut cores = wanted("cores").then(cores::Runs::new);
    let mut connections = wanted("connections").then(connections::Runs::default);
    let mut tls = (wanted("tls") && !args.floor_only).then(tls::Runs::default);
    let mut waiting = (wanted("waiting") && !args.floor_only).then(waiting::Runs::default);
    for round in 0..args.rounds {
        for run in &mut runs {
            eprintln!("round {}/{}: {}", round + 1, args.rounds, run.row.id);
            run.round(&args, round % 2 == 0);
        }
        cores.iter_mut().for_each(|cores| cores.round(&args));
        connections.iter_mut().for_each(|connections| connections.round(&args));
        tls.iter_mut().for_each(|tls| tls.round(&args));
        waiting.iter_mut().for_each(|waiting| waiting.round(&args));
    }
    let checks = if args.floor_only || !wanted("idle") {
        Vec::new()
    } else {
        idle::checks(&args.program, if args.quick { 2.0 } else { 10.0 })
    };
    let table = Table {
        machine: Machine::read(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        rounds: args.rounds,
        seconds: args.seconds,
        rows: runs.into_iter().map(Runs::finish).collect(),
        cores: cores.map(cores::Runs::finish).unwrap_or_default(),
        connections: connections.map(connections::Runs::finish).unwrap_or_default(),
        tls: tls.map(tls::Runs::finish).unwrap_or_default(),
        waiting: waiting.map(waiting::Runs::finish).unwrap_or_default(),
        checks,
    };
    print!("{}", markdown(&table));
    write(&args.output, &table)
}

/// What the page for users says of it.
pub(crate) fn short_of(json: &str) -> anyhow::Result<String> {
    Ok(render::short(&serde_json::from_str(json).context("a table's JSON")?))
}

/// All of it.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    Ok(markdown(&serde_json::from_str(json).context("a table's JSON")?))
}

fn write(path: &Path, table: &Table) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut json = serde_json::to_string_pretty(table)?;
    json.push('\n');
    std::fs::write(path, json).with_context(|| format!("write {}", path.display()))?;
    println!("\nwritten to {}", path.display());
    Ok(())
}

/// A row while it is measured.
struct Runs {
    row: Row,
    arguments: Vec<String>,
    products: Vec<Measure>,
    floors: Vec<Measure>,
    pairs: Vec<(Measure, Measure)>,
    error: Option<String>,
}

impl Runs {
    fn new(row: Row, args: &Args) -> Self {
        let timing = Timing { mib: 1024, seconds: args.seconds, ramp_seconds: 0.0, rate: None };
        let arguments = product::arguments(&row.load, &row.setup, &timing);
        Self { row, arguments, products: vec![], floors: vec![], pairs: vec![], error: None }
    }

    /// One run of each side, the floor first or last.
    fn round(&mut self, args: &Args, floor_first: bool) {
        let early = if floor_first { self.floor(args) } else { None };
        let product = self.product(args);
        let floor = if floor_first { early } else { self.floor(args) };
        if let (Some(product), Some(floor)) = (&product, &floor) {
            self.pairs.push((product.clone(), floor.clone()));
        }
        self.products.extend(product);
        self.floors.extend(floor);
    }

    fn floor(&self, args: &Args) -> Option<Measure> {
        let Row { load, setup, .. } = &self.row;
        let direction = load.direction()?;
        let floor_args = floor::Args {
            gather: self.row.floor_gather?,
            seconds: args.seconds,
            ..load.floor(direction, setup.waiting)
        };
        let run = || floor::run(&floor_args).map(|result| Measure::from(&result));
        quiet(args.retries, run).inspect_err(|e| eprintln!("floor: {e:#}")).ok()
    }

    fn product(&mut self, args: &Args) -> Option<Measure> {
        if args.floor_only {
            return None;
        }
        let run = || product::run(&args.program, &self.arguments);
        match quiet(args.retries, run) {
            Ok(measure) => Some(measure),
            Err(e) => {
                eprintln!("{}: {e:#}", self.row.id);
                self.error = Some(format!("{e:#}"));
                None
            }
        }
    }

    fn finish(self) -> RowResult {
        let ratios = Ratios::of(&self.pairs);
        let median = |runs: &[Measure]| (!runs.is_empty()).then(|| Measure::median(runs));
        RowResult {
            product: median(&self.products),
            floor: median(&self.floors),
            floor_gather: self.row.floor_gather,
            goals: self.row.goals.iter().map(|&goal| GoalResult::new(goal, &ratios)).collect(),
            ratios,
            id: self.row.id,
            group: self.row.group,
            title: self.row.title,
            command: format!("roadtrain {}", self.arguments.join(" ")),
            error: self.error,
            product_iops: self.products.iter().map(|m| m.iops).collect(),
            floor_iops: self.floors.iter().map(|m| m.iops).collect(),
        }
    }
}
