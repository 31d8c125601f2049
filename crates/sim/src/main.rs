//! Runs many seeds of the simulation: `cargo run --release -p roadtrain-sim -- --seeds 10000 --scenario
//! losing,killing`.

use clap::Parser;
use roadtrain_sim::runs::{RunNetwork, Runs, first_seed};
use roadtrain_sim::scenario;
use roadtrain_sim::summary::Summary;
use roadtrain_sim::world::RunFailure;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Name that selects all scenarios.
const EVERY: &str = "all";

/// Simulates host and target over a hostile network, a run a seed.
#[derive(Parser)]
struct SimOptions {
    /// Seeds of each scenario
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed [default: FIRST_SEED of the environment, or 0]
    #[arg(long)]
    first: Option<u64>,
    /// The scenarios; "all" stands for every one that has an effect over the network
    #[arg(long, value_delimiter = ',', default_value = "drawn", value_parser = names())]
    scenario: Vec<String>,
    /// Lanes go over Ethernet, not over TCP
    #[arg(long)]
    ethernet: bool,
    /// Lanes open and close express connections all the time, in every scenario
    #[arg(long, conflicts_with = "ethernet")]
    mixing: bool,
    /// Threads that run seeds [default: one for each processor]
    #[arg(long)]
    threads: Option<NonZero<usize>>,
}

fn names() -> Vec<&'static str> {
    scenario::ALL.iter().map(|(name, _)| *name).chain([EVERY]).collect()
}

impl SimOptions {
    fn runs(&self) -> Vec<Runs> {
        let lanes = match (self.ethernet, self.mixing) {
            (true, _) => RunNetwork::Ethernet,
            (_, true) => RunNetwork::Mixing,
            _ => RunNetwork::Tcp,
        };
        if self.scenario.iter().any(|name| name == EVERY) {
            return Runs::all(lanes).collect();
        }
        self.scenario.iter().filter_map(|name| Runs::of(name, lanes)).collect()
    }
}

/// Counters of a scenario's completed seeds.
struct SeedCounts {
    ended: u64,
    requests: u64,
    failures: u64,
    printed_at: Instant,
}

impl SeedCounts {
    fn add(&mut self, runs: &Runs, seed: u64, seeds: u64, outcome: Result<Summary, RunFailure>) {
        self.ended += 1;
        match outcome {
            Ok(sum) => self.requests += sum.tally.submitted,
            Err(failure) => {
                self.failures += 1;
                eprintln!("{}: {failure}\n    {}", runs.name(), runs.command(seed));
            }
        }
        if self.printed_at.elapsed() >= PROGRESS {
            self.printed_at = Instant::now();
            let (ended, failures) = (self.ended, self.failures);
            eprintln!("{}: {ended} of {seeds} seeds, {failures} failures", runs.name());
        }
    }
}

/// Runs a scenario's seeds on all threads, and returns the number of failures.
fn run_seeds(runs: &Runs, first: u64, seeds: u64, threads: usize) -> u64 {
    let counts = SeedCounts { ended: 0, requests: 0, failures: 0, printed_at: Instant::now() };
    let (next, counts) = (AtomicU64::new(0), Mutex::new(counts));
    let work = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= seeds {
            return;
        }
        let seed = first + number;
        let outcome = runs.run(seed);
        counts.lock().expect("no panic under the lock").add(runs, seed, seeds, outcome);
    };
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let SeedCounts { requests, failures, .. } =
        counts.into_inner().expect("no panic under the lock");
    let name = runs.name();
    println!("{name}: {seeds} seeds from {first} on, {requests} requests, {failures} failures");
    failures
}

fn main() -> ExitCode {
    let options = SimOptions::parse();
    let first = options.first.unwrap_or_else(first_seed);
    let threads = options.threads.or_else(|| thread::available_parallelism().ok());
    let threads = threads.map_or(1, NonZero::get);
    let failures: u64 =
        options.runs().iter().map(|runs| run_seeds(runs, first, options.seeds, threads)).sum();
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
