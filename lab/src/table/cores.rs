//! What two cores make of it: ends that share a core, that have one each, and two lanes over both.

use super::Args;
use super::result::{CoreRow, Least, Most};
use crate::floor::{self, Direction};
use crate::measure::{Measure, median};
use crate::noise::quiet;
use crate::product::{self, Timing};
use crate::workload::{Load, Setup};
use anyhow::Context;
use std::thread;

/// In flight on a lane.
const DEPTH: usize = 128;
/// Two lanes over both cores, of the throughput of two pairs on a core each.
const IOPS_MIN: f64 = 0.95;
/// And of their 99th percentile.
const P99_MAX: f64 = 1.2;

/// Processes that run at the same time.
struct Plan {
    id: &'static str,
    title: &'static str,
    /// Of each host and its target: the cores of both.
    pairs: &'static [(&'static str, &'static str)],
    lanes: usize,
    /// Of each floor: the host's core and the target's. It has one connection, so lanes over both cores have none.
    floors: &'static [(usize, usize)],
}

const PLANS: [Plan; 4] = [
    Plan {
        id: "cores-one",
        title: "both ends on one core, one lane",
        pairs: &[("0", "0")],
        lanes: 1,
        floors: &[(0, 0)],
    },
    Plan {
        id: "cores-pairs",
        title: "two such pairs, a core each",
        pairs: &[("0", "0"), ("1", "1")],
        lanes: 1,
        floors: &[(0, 0), (1, 1)],
    },
    Plan {
        id: "cores-apart",
        title: "host on one core, target on the other, one lane",
        pairs: &[("0", "1")],
        lanes: 1,
        floors: &[(0, 1)],
    },
    Plan {
        id: "cores-both",
        title: "both ends on both cores, two lanes",
        pairs: &[("0,1", "0,1")],
        lanes: 2,
        floors: &[],
    },
];

/// The set-ups while they are measured, in turns.
pub(super) struct Runs {
    /// By plan: the product's runs and the floor's.
    rows: [(Vec<Measure>, Vec<Measure>); PLANS.len()],
    errors: [Option<String>; PLANS.len()],
    /// Of each round: two lanes over both cores, and two pairs.
    compared: Vec<(Measure, Measure)>,
}

impl Runs {
    pub(super) fn new() -> Self {
        Runs { rows: Default::default(), errors: Default::default(), compared: Vec::new() }
    }

    /// Each once.
    pub(super) fn round(&mut self, args: &Args) {
        let products: Vec<Option<Measure>> = (0..PLANS.len())
            .map(|at| {
                let plan = &PLANS[at];
                eprintln!("{}", plan.id);
                if !plan.floors.is_empty() {
                    let run = || floors(plan, args);
                    match quiet(args.retries, run) {
                        Ok(measure) => self.rows[at].1.push(measure),
                        Err(e) => eprintln!("floor: {e:#}"),
                    }
                }
                if args.floor_only {
                    return None;
                }
                match quiet(args.retries, || products(plan, args)) {
                    Ok(measure) => {
                        self.rows[at].0.push(measure.clone());
                        Some(measure)
                    }
                    Err(e) => {
                        eprintln!("{}: {e:#}", plan.id);
                        self.errors[at] = Some(format!("{e:#}"));
                        None
                    }
                }
            })
            .collect();
        if let [_, Some(pairs), _, Some(both)] = &products[..] {
            self.compared.push((both.clone(), pairs.clone()));
        }
    }

    pub(super) fn finish(self) -> Vec<CoreRow> {
        let ratio = |f: fn(&Measure) -> f64| {
            median(self.compared.iter().map(|(both, pairs)| f(both) / f(pairs)))
        };
        let iops = ratio(|m| m.iops).map(|value| Least { value, bound: IOPS_MIN });
        let p99 = ratio(|m| m.latency_us_p99).map(|value| Most { value, bound: P99_MAX });
        let median = |runs: &[Measure]| (!runs.is_empty()).then(|| Measure::median(runs));
        let rows = PLANS.iter().zip(self.rows).zip(self.errors);
        rows.map(|((plan, (products, floors)), error)| {
            let is_judged = plan.id == "cores-both";
            CoreRow {
                id: plan.id.into(),
                title: plan.title.into(),
                product: median(&products),
                floor: median(&floors),
                iops_of_pairs: iops.filter(|_| is_judged),
                p99_of_pairs: p99.filter(|_| is_judged),
                error,
            }
        })
        .collect()
    }
}

/// All hosts of a plan at the same time, each with a target of its own.
fn products(plan: &Plan, args: &Args) -> anyhow::Result<Measure> {
    let timing = Timing { mib: 256, seconds: args.seconds, ramp_seconds: 0.5, rate: None };
    let load = Load { lanes: plan.lanes, ..Load::small(100, DEPTH * plan.lanes) };
    let line = product::arguments(&load, &Setup::new("auto"), &timing);
    at_once(plan.pairs, |&(host, target)| {
        let cores = |arguments: &[String], option: &str, value: &str| {
            let mut arguments = arguments.to_vec();
            let at = arguments.iter().position(|word| word == option);
            arguments[at.expect("the line has it") + 1] = value.into();
            arguments
        };
        let line = cores(&cores(&line, "--cores", host), "--target-cores", target);
        product::run(&args.program, &line)
    })
}

/// All floors of a plan at the same time.
fn floors(plan: &Plan, args: &Args) -> anyhow::Result<Measure> {
    at_once(plan.floors, |&(host_core, target_core)| {
        let load = Load::small(100, DEPTH);
        let tuned = load.floor(Direction::Read, Setup::new("auto").waiting);
        let memory = 256 << 20;
        let floor = floor::Args { host_core, target_core, memory, seconds: args.seconds, ..tuned };
        Ok(Measure::from(&floor::run(&floor)?))
    })
}

fn at_once<T: Sync>(
    parts: &[T],
    run: impl Fn(&T) -> anyhow::Result<Measure> + Sync,
) -> anyhow::Result<Measure> {
    let measures = thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| run(part))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a run does not panic"))
            .collect::<anyhow::Result<Vec<_>>>()
    })
    .context("a pair")?;
    Ok(Measure::together(&measures))
}
