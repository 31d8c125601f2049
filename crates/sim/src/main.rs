//! Runs many seeds of the simulation: `cargo run --release -p roadtrain-sim -- --seeds 10000 --scenario
//! losing,killing`.

use clap::Parser;
use roadtrain_sim::ether;
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
}

fn names() -> Vec<&'static str> {
    scenario::ALL.iter().map(|(name, _)| *name).collect()
}

/// How many requests the run of a seed had.
fn run(seed: u64, name: &str, ethernet: bool) -> Result<u64, Failure> {
    let run = if ethernet { ether::run_changed } else { roadtrain_sim::run_changed };
    let (_, change) = scenario::ALL.iter().find(|(known, _)| *known == name).expect("a scenario");
    Ok(run(seed, *change)?.tally.submitted)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut failures = 0;
    for name in &options.scenario {
        let (mut failed, mut requests) = (0, 0);
        for seed in options.first..options.first + options.seeds {
            match run(seed, name, options.ethernet) {
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
