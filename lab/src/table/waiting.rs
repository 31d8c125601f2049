//! What the ways of waiting cost: asleep, spinning for a set time, as the product decides, and polling all the time.

use super::Args;
use super::result::{Most, WaitingRow};
use crate::floor;
use crate::measure::{Measure, median};
use crate::noise::{self, quiet};
use crate::product::{self, Timing};
use crate::workload::{Load, Setup, Waiting};

/// Mean latency of that of the best other way but polling.
const OF_BEST_MAX: f64 = 1.15;
/// CPU time of that of sleeping: of loads that wait for answers, and of those that come at a rate.
const OF_SLEEPING_MAX: f64 = 1.10;
const OF_SLEEPING_AT_RATE_MAX: f64 = 1.05;
/// Mean latency of the polled floor's.
const OF_POLLED_MAX: f64 = 1.3;

/// The ways, named as options. The product decides by itself where none is asked for.
const WAYS: [(&str, Waiting); 5] = [
    ("--no-spin", Waiting::Sleep),
    ("--spin-us 20", Waiting::SpinUs(20)),
    ("--spin-us 50", Waiting::SpinUs(50)),
    ("default", Waiting::Default),
    ("--busy-poll", Waiting::BusyPoll),
];
const SLEEP: usize = 0;
const SPINS: std::ops::Range<usize> = 1..3;
const DEFAULT: usize = 3;

#[derive(Clone, Copy)]
struct Plan {
    title: &'static str,
    depth: usize,
    /// Requests a second; as fast as answers come without.
    rate: Option<f64>,
    /// Another thread wants all that each core has.
    has_neighbour: bool,
}

const fn plan(title: &'static str, depth: usize) -> Plan {
    Plan { title, depth, rate: None, has_neighbour: false }
}

/// 180 k a second are some 30 % of what a lane can do.
const PLANS: [Plan; 6] = [
    plan("depth 1", 1),
    plan("depth 8", 8),
    Plan { rate: Some(5e3), ..plan("5 k a second", 128) },
    Plan { rate: Some(20e3), ..plan("20 k a second", 128) },
    Plan { rate: Some(180e3), ..plan("180 k a second", 128) },
    Plan { has_neighbour: true, ..plan("depth 1, busy neighbours", 1) },
];

/// One turn of all ways, and of the polled floor.
struct Round {
    ways: Vec<Measure>,
    polled: Option<Measure>,
}

/// The loads while they are measured, in turns.
#[derive(Default)]
pub(super) struct Runs {
    rows: [Vec<Round>; PLANS.len()],
    errors: [Option<String>; PLANS.len()],
}

impl Runs {
    /// Each once, every way.
    pub(super) fn round(&mut self, args: &Args) {
        for (at, plan) in PLANS.iter().enumerate() {
            eprintln!("waiting: {}", plan.title);
            match round(plan, args) {
                Ok(round) => self.rows[at].push(round),
                Err(e) => {
                    eprintln!("waiting: {e:#}");
                    self.errors[at] = Some(format!("{e:#}"));
                }
            }
        }
    }

    pub(super) fn finish(self) -> Vec<WaitingRow> {
        let rows = PLANS.iter().zip(self.rows).zip(self.errors);
        rows.map(|((plan, rounds), error)| row(plan, &rounds, error)).collect()
    }
}

fn round(plan: &Plan, args: &Args) -> anyhow::Result<Round> {
    let load = Load::small(100, plan.depth);
    let timing = Timing { mib: 256, seconds: args.seconds, ramp_seconds: 0.3, rate: plan.rate };
    let product = |waiting| {
        let setup = Setup { waiting, ..Setup::new("auto") };
        product::run(&args.program, &product::arguments(&load, &setup, &timing))
    };
    let measured = |run: &dyn Fn() -> anyhow::Result<Measure>| match plan.has_neighbour {
        true => noise::beside_neighbours(run),
        false => quiet(args.retries, run),
    };
    let ways = WAYS.iter().map(|&(_, waiting)| measured(&|| product(waiting)));
    let ways = ways.collect::<anyhow::Result<Vec<_>>>()?;
    let is_compared = plan.rate.is_none() && !plan.has_neighbour;
    let direction = load.direction().filter(|_| is_compared);
    let polled = direction.map(|direction| {
        let floor_args =
            floor::Args { seconds: args.seconds, ..load.floor(direction, Waiting::BusyPoll) };
        quiet(args.retries, || floor::run(&floor_args).map(|result| Measure::from(&result)))
    });
    Ok(Round { ways, polled: polled.transpose()? })
}

fn row(plan: &Plan, rounds: &[Round], error: Option<String>) -> WaitingRow {
    let of = |f: &dyn Fn(&Round) -> Option<f64>, bound: f64| {
        median(rounds.iter().filter_map(f)).map(|value| Most { value, bound })
    };
    let latency = |round: &Round, way: usize| round.ways[way].latency_us_mean;
    let of_best = |round: &Round| {
        let best = SPINS.map(|way| latency(round, way)).fold(latency(round, SLEEP), f64::min);
        Some(latency(round, DEFAULT) / best)
    };
    let of_sleeping = |round: &Round| {
        Some(round.ways[DEFAULT].cpu_us_per_io()? / round.ways[SLEEP].cpu_us_per_io()?)
    };
    let of_polled =
        |round: &Round| Some(latency(round, DEFAULT) / round.polled.as_ref()?.latency_us_mean);
    let is_closed = plan.rate.is_none();
    let cpu_max = if is_closed { OF_SLEEPING_MAX } else { OF_SLEEPING_AT_RATE_MAX };
    let median_of = |runs: Vec<Measure>| (!runs.is_empty()).then(|| Measure::median(&runs));
    let polled = rounds.iter().filter_map(|round| round.polled.clone()).collect();
    let way = |at: usize| median_of(rounds.iter().map(|round| round.ways[at].clone()).collect());
    WaitingRow {
        title: plan.title.into(),
        ways: WAYS.iter().enumerate().map(|(at, (name, _))| ((*name).into(), way(at))).collect(),
        polled_floor: median_of(polled),
        latency_of_best: of(&of_best, OF_BEST_MAX).filter(|_| is_closed && !plan.has_neighbour),
        cpu_of_sleeping: of(&of_sleeping, cpu_max),
        latency_of_polled: of(&of_polled, OF_POLLED_MAX),
        error,
    }
}
