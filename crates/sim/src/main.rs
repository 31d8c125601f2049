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
    /// The scenarios; `ether` and `ether-losing` are lanes over Ethernet
    #[arg(long, value_delimiter = ',', default_value = "drawn", value_parser = names())]
    scenario: Vec<String>,
}

fn names() -> Vec<&'static str> {
    scenario::ALL.iter().map(|(name, _)| *name).chain(["ether", "ether-losing"]).collect()
}

/// How many requests the run of a seed had.
fn run(seed: u64, name: &str) -> Result<u64, Failure> {
    match scenario::ALL.iter().find(|(known, _)| *known == name) {
        Some((_, change)) => Ok(roadtrain_sim::run_changed(seed, change)?.tally.submitted),
        None if name == "ether-losing" => {
            Ok(ether::run_changed(seed, ether::losing)?.tally.submitted)
        }
        None => Ok(ether::run(seed)?.tally.submitted),
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut failures = 0;
    for name in &options.scenario {
        let (mut failed, mut requests) = (0, 0);
        for seed in options.first..options.first + options.seeds {
            match run(seed, name) {
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
