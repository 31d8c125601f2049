//! Runs many seeds of the simulation: `cargo run --release -p roadtrain-sim -- --seeds 10000 --scenario
//! losing,killing`.

use clap::Parser;
use roadtrain_sim::ether;
use roadtrain_sim::plan::Plan;
use roadtrain_sim::scenario;
use roadtrain_sim::world::Failure;
use std::process::ExitCode;

/// Simulates host and target over a hostile network, a run a seed.
#[derive(Parser)]
struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The scenarios
    #[arg(long, value_delimiter = ',', default_value = "drawn", value_parser = names())]
    scenario: Vec<String>,
    /// Lanes go over Ethernet, not over TCP
    #[arg(long)]
    ethernet: bool,
    /// Lanes open and close express connections all the time, in every scenario
    #[arg(long, conflicts_with = "ethernet")]
    mixing: bool,
}

fn names() -> Vec<&'static str> {
    scenario::ALL.iter().map(|(name, _)| *name).collect()
}

/// How many requests the run of a seed had.
fn run(seed: u64, name: &str, options: &Options) -> Result<u64, Failure> {
    let (_, change) = scenario::ALL.iter().find(|(known, _)| *known == name).expect("a scenario");
    let sum = if options.ethernet {
        ether::run_changed(seed, *change)?
    } else if options.mixing {
        let both = |plan: &mut Plan| {
            change(plan);
            scenario::mixing(plan);
        };
        roadtrain_sim::run_changed(seed, both)?
    } else {
        roadtrain_sim::run_changed(seed, *change)?
    };
    Ok(sum.tally.submitted)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut failures = 0;
    for name in &options.scenario {
        let (mut failed, mut requests) = (0, 0);
        for seed in options.first..options.first + options.seeds {
            match run(seed, name, &options) {
                Ok(submitted) => requests += submitted,
                Err(failure) => {
                    eprintln!("{name}: {failure}");
                    failed += 1;
                }
            }
        }
        println!("{name}: {} seeds, {requests} requests, {failed} failures", options.seeds);
        failures += failed;
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
