//! Runs many seeds of the simulation: `cargo run --release -p roadtrain-sim -- --seeds 10000`.

use clap::Parser;
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
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (mut failures, mut requests) = (0, 0);
    for seed in options.first..options.first + options.seeds {
        match roadtrain_sim::run(seed) {
            Ok(summary) => requests += summary.tally.submitted,
            Err(failure) => {
                eprintln!("{failure}");
                failures += 1;
            }
        }
    }
    println!("{} seeds, {requests} requests, {failures} failures", options.seeds);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
