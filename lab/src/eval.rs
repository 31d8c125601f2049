//! The evaluation: the published figures and our goals, all policies side by side in one run.

pub(crate) mod chart;
mod figures;
mod judge;
mod page;
mod plan;
mod profile;
mod result;
mod run;
mod tables;

use crate::interrupt;
use crate::machine::Conditions;
use crate::output::{write, write_json};
use crate::runs::MeasuringExtent;
use crate::workload::LoadWaiting;
use anyhow::{Context, ensure};
use plan::{EvalFigure, EvalPoint};
use result::{EvalData, Evaluation, ProfileResult};
use run::{EvalBudget, EvalManner};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Size of the namespaces: far beyond the caches, and quickly filled before each run.
const MIB: usize = 256;

const FULL: EvalBudget = EvalBudget {
    rounds: 5,
    seconds: 0.35,
    ramp_seconds: 0.15,
    wired_rounds: 3,
    wired_seconds: 1.0,
    profile_rounds: 3,
};
const QUICK: EvalBudget = EvalBudget {
    rounds: 3,
    seconds: 0.2,
    ramp_seconds: 0.15,
    wired_rounds: 1,
    wired_seconds: 0.6,
    profile_rounds: 1,
};

/// Runs the evaluation.
#[derive(Debug, clap::Args)]
pub(crate) struct EvalArgs {
    /// The product
    #[arg(long, default_value = "target/release/roadtrain")]
    program: PathBuf,
    /// Fewer points and rounds: about six minutes instead of fifty
    #[arg(long)]
    quick: bool,
    /// Rounds; each runs every point once [default: 5, quick: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Measured seconds of each run [default: 0.35, quick: 0.2]
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds of load before [default: 0.15]
    #[arg(long)]
    ramp: Option<f64>,
    /// Only figures whose name contains one of these (comma-separated)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Both ends wait as the product does by default; else they sleep, as fixed policies are published
    #[arg(long)]
    default_waiting: bool,
    /// A thread computes on each of the two cores meanwhile
    #[arg(long)]
    neighbours: bool,
    /// Name the figures and stop
    #[arg(long)]
    list: bool,
    /// Repeat a run, at most so often, when others used more than a tenth of a core meanwhile
    /// (a tenth of all runs in all)
    #[arg(long, default_value_t = 1)]
    retries: usize,
    /// Where the JSON goes; report and charts go beside it
    #[arg(long, default_value = "lab/results/eval.json")]
    output: PathBuf,
}

/// Renders an evaluation again, without measuring.
#[derive(Debug, clap::Args)]
pub(crate) struct RenderArgs {
    /// An evaluation's JSON
    #[arg(default_value = "lab/results/eval.json")]
    input: PathBuf,
}

/// Measures, judges, writes JSON, charts and report.
pub(crate) fn main(args: &EvalArgs) -> anyhow::Result<()> {
    let extent = MeasuringExtent::new(args.quick);
    let wanted = |id: &str| args.only.is_empty() || args.only.iter().any(|part| id.contains(part));
    let figures: Vec<EvalFigure> =
        figures::all(extent).into_iter().filter(|figure| wanted(figure.id)).collect();
    if args.list {
        for figure in &figures {
            println!("{:<18} {}: {}", figure.id, figure.source, figure.title);
        }
        return Ok(());
    }
    ensure!(!figures.is_empty(), "no figure is called that: see --list");
    ensure!(args.program.exists(), "no {}: build it first", args.program.display());
    let evaluation = measure(args, extent, &figures)?;
    write_json(&args.output, &evaluation)?;
    render(&args.output, &figures, &evaluation)?;
    interrupt::check()
}

fn measure(
    args: &EvalArgs,
    extent: MeasuringExtent,
    figures: &[EvalFigure],
) -> anyhow::Result<Evaluation> {
    let budget = if extent == MeasuringExtent::Quick { QUICK } else { FULL };
    let manner = EvalManner {
        budget: EvalBudget {
            rounds: args.rounds.unwrap_or(budget.rounds).max(1),
            seconds: args.seconds.unwrap_or(budget.seconds),
            ramp_seconds: args.ramp.unwrap_or(budget.ramp_seconds),
            ..budget
        },
        retries: args.retries,
        has_neighbours: args.neighbours,
        waiting: args.default_waiting.then_some(LoadWaiting::Default),
        ..EvalManner::new(&args.program, budget)
    };
    let began = Instant::now();
    let points = run::points(figures);
    let runs = manner.runs(&points);
    manner.repeats_left.set(runs / 10);
    let minutes = manner.minutes(&points);
    interrupt::watch();
    eprintln!("{runs} runs: about {minutes:.0} minutes, longer when others disturb");
    let peaks = manner.peaks(&points);
    let results = manner.run(&points, &peaks);
    let profiled: Vec<EvalPoint> =
        figures.iter().flat_map(|figure| figure.profiled.iter().copied()).collect();
    let skipped = if profiled.is_empty() { None } else { profile::unavailable() };
    let profiles = match skipped {
        Some(_) => Vec::new(),
        None if interrupt::check().is_err() => Vec::new(),
        None => profiles(&manner, &profiled, budget.profile_rounds.min(manner.budget.rounds)),
    };
    Ok(Evaluation {
        conditions: Conditions::now(manner.budget.rounds, manner.budget.seconds),
        quick: extent == MeasuringExtent::Quick,
        figures: figures.iter().map(|figure| figure.id.to_owned()).collect(),
        ramp_seconds: manner.budget.ramp_seconds,
        minutes: began.elapsed().as_secs_f64() / 60.0,
        peaks,
        runs: results,
        profiles,
        profiles_skipped: skipped,
    })
}

fn profiles(manner: &EvalManner, points: &[EvalPoint], rounds: usize) -> Vec<ProfileResult> {
    let profile = |point: &EvalPoint| {
        eprintln!("profile: {} {}", point.load, point.side);
        profile::take(&manner.program, point, rounds)
    };
    points.iter().map(profile).collect()
}

/// Renders from JSON.
pub(crate) fn render_main(args: &RenderArgs) -> anyhow::Result<()> {
    let json = fs::read_to_string(&args.input)
        .with_context(|| format!("read {}", args.input.display()))?;
    let (figures, evaluation) = read(&json)?;
    render(&args.input, &figures, &evaluation)
}

/// An evaluation and the figures that it measured.
fn read(json: &str) -> anyhow::Result<(Vec<EvalFigure>, Evaluation)> {
    let evaluation: Evaluation = serde_json::from_str(json).context("an evaluation's JSON")?;
    let extent = MeasuringExtent::new(evaluation.quick);
    let is_in = |figure: &EvalFigure| evaluation.figures.iter().any(|id| id == figure.id);
    Ok((figures::all(extent).into_iter().filter(is_in).collect(), evaluation))
}

/// The section of the page for users.
pub(crate) fn short_of(results: &[String]) -> anyhow::Result<String> {
    let evaluations = results.iter().map(|json| read(json)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(page::short(&evaluations).markdown())
}

/// The section of the journal.
pub(crate) fn page_of(json: &str) -> anyhow::Result<String> {
    let (figures, evaluation) = read(json)?;
    Ok(page::journal(&figures, &EvalData::new(&evaluation)).markdown())
}

/// Writes the report and the charts next to the JSON, and prints the result.
fn render(json: &Path, figures: &[EvalFigure], evaluation: &Evaluation) -> anyhow::Result<()> {
    let data = EvalData::new(evaluation);
    let html = json.with_extension("html");
    write(&html, &page::report(figures, &data).html("Roadtrain: an evaluation"))?;
    let folder = json.with_extension("plots");
    let mut charts = 0;
    for figure in figures {
        for (name, svg) in plots(figure, &data) {
            write(&folder.join(name), &svg)?;
            charts += 1;
        }
    }
    print!("{}", page::journal(figures, &data).markdown());
    println!("\n{}, {}, {charts} charts in {}", json.display(), html.display(), folder.display());
    Ok(())
}

/// A figure's charts with the names of their files.
fn plots(figure: &EvalFigure, data: &EvalData) -> Vec<(String, String)> {
    let panels = figure.panels.iter().flat_map(|panel| {
        panel.charts.iter().filter_map(move |chart| chart::svg(panel, chart, data))
    });
    let charts = panels.chain(chart::profile_svg(&figure.profiled, data));
    charts.enumerate().map(|(n, svg)| (format!("{}-{}.svg", figure.id, n + 1), svg)).collect()
}
