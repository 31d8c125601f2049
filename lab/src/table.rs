//! The comparison: the product and the floor, run alternately in one go, with what must be reached.

mod exchange;
mod handshake;
mod hosts;
mod idle;
mod peer;
mod plan;
mod render;
mod sides;

use crate::interrupt;
use crate::judge::Judged;
use crate::machine::Conditions;
use crate::output::write_json;
use crate::runs::{self, Index, SideRun, SideTurn};
use anyhow::Context;
use plan::{TableCase, TableSide};
use serde::{Deserialize, Serialize};
use sides::TableManner;
use std::path::PathBuf;

/// Runs the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct TableArgs {
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
    /// Only rows whose name contains this (comma-separated). "hosts" are rows with several host processes, which
    /// are run only when they are named: 38 rows, half an hour with three rounds of a second
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
    /// Another stack beside ours in the rows "default": a command that the shell runs for each load, with RW
    /// (randread, randwrite), BS (bytes), DEPTH and SECONDS in its environment. Its last line is
    /// {"iops": N, "p99_us": N, "cpu_us_per_io": N}, the last one of both ends and where it is known
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// Where the JSON goes
    #[arg(long, default_value = "lab/results/latest.json")]
    output: PathBuf,
}

/// Results, as written to and read from JSON.
#[derive(Debug, Serialize, Deserialize)]
struct TableResults {
    #[serde(flatten)]
    conditions: Conditions,
    runs: Vec<SideRun>,
    judged: Vec<Judged>,
}

/// The name of the checks at rest, which are no case.
const IDLE: &str = "idle";

/// Runs, prints the table, writes the JSON.
pub(crate) fn main(mut args: TableArgs) -> anyhow::Result<()> {
    if args.quick {
        (args.rounds, args.seconds) = (3, 1.0);
    }
    let wanted = |id: &str| args.only.is_empty() || args.only.iter().any(|part| id.contains(part));
    let mut cases = plan::cases();
    if !args.only.is_empty() {
        cases.extend(hosts::cases());
    }
    cases.retain(|case| wanted(&case.id));
    if args.peer.is_some() {
        cases = cases.into_iter().map(TableCase::with_peer).collect();
    }
    let is_idle_wanted = wanted(IDLE) && !args.floor_only;
    if args.list {
        cases.iter().for_each(|case| println!("{}", case.id));
        if is_idle_wanted {
            println!("{IDLE}");
        }
        return Ok(());
    }
    if args.floor_only {
        for case in &mut cases {
            case.sides.retain(TableSide::is_floor);
            case.goals.clear();
        }
    } else {
        anyhow::ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    }
    interrupt::watch();
    let manner = TableManner {
        program: args.program.clone(),
        seconds: args.seconds,
        retries: args.retries,
        peer: args.peer.clone(),
    };
    let mut turns: Vec<_> = cases.iter().map(|case| in_turns(case, &manner, args.rounds)).collect();
    runs::measure(&mut turns, |side, _| manner.measure(side));
    let runs = runs::finish(turns);
    let index = Index::new(&runs);
    let goals = cases.iter().flat_map(|case| &case.goals);
    let mut judged: Vec<Judged> = goals.map(|goal| goal.judged(&index)).collect();
    if is_idle_wanted && interrupt::check().is_ok() {
        judged.extend(idle::checks(&args.program, if args.quick { 2.0 } else { 10.0 }));
    }
    let table =
        TableResults { conditions: Conditions::now(args.rounds, args.seconds), runs, judged };
    print!("{}", render::page(&table).markdown());
    write_json(&args.output, &table)?;
    println!("\nwritten to {}", args.output.display());
    interrupt::check()
}

fn in_turns(case: &TableCase, manner: &TableManner, rounds: usize) -> runs::RunCase<TableSide> {
    let turn = |side: &TableSide| {
        let command = match side {
            TableSide::Product(load, setup) | TableSide::Policy(load, setup) => {
                format!("roadtrain {}", manner.arguments(load, setup).join(" "))
            }
            TableSide::Peer(_) => manner.peer.clone().unwrap_or_default(),
            _ => String::new(),
        };
        let run = |name: &str| SideRun::new(&(&case.id, name), command.clone());
        SideTurn { side: side.clone(), runs: side.runs().into_iter().map(run).collect() }
    };
    let turns = case.sides.iter().map(turn).collect();
    runs::RunCase { title: case.id.clone(), rounds, turns }
}

/// The section of the page for users.
pub(crate) fn short_of(json: &str) -> anyhow::Result<String> {
    Ok(render::short(&serde_json::from_str(json).context("a table's JSON")?).markdown())
}

/// The section of the journal.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    Ok(render::page(&serde_json::from_str(json).context("a table's JSON")?).markdown())
}
