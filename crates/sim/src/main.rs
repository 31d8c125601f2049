//! Runs many seeds of the simulation: `cargo run --release -p roadtrain-sim -- --seeds 10000`.

use clap::Parser;
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
    /// Lanes over Ethernet, not over TCP
    #[arg(long)]
    ether: bool,
}

/// How many requests the run of a seed had.
fn run(seed: u64, is_ether: bool) -> Result<u64, Failure> {
    if is_ether {
        Ok(roadtrain_sim::ether::run(seed)?.tally.submitted)
    } else {
        Ok(roadtrain_sim::run(seed)?.tally.submitted)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (mut failures, mut requests) = (0, 0);
    for seed in options.first..options.first + options.seeds {
        match run(seed, options.ether) {
            Ok(submitted) => requests += submitted,
            Err(failure) => {
                eprintln!("{failure}");
                failures += 1;
            }
        }
    }
    println!("{} seeds, {requests} requests, {failures} failures", options.seeds);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
