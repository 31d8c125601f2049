//! Seeds to run: from `FIRST_SEED` on, a tenth of those of `THOROUGH=1`; `SEEDS=n` runs n of each, `SEED=n` only that
//! one.

use crate::cases::is_thorough;
use roadtrain_sim::runs::{RunNetwork, Runs, first_seed, number};
use roadtrain_sim::summary::Summary;
use roadtrain_sim::world::RunFailure;
use std::fmt::Debug;
use std::ops::{AddAssign, Deref};

/// Fewest seeds of each test.
const SEEDS_MIN: u64 = 2;

/// Sum of all runs of a test.
#[derive(Debug)]
pub(crate) struct SeedSum<S> {
    sum: S,
    pub(crate) seeds: u64,
    /// Seeds of a thorough run.
    full: u64,
}

impl<S> Deref for SeedSum<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sum
    }
}

impl<S> SeedSum<S> {
    /// Checks that the runs exercised their purpose: `(count, usual)`. A thorough run has at least half of the usual
    /// count, with any first seed. A run of few seeds may have none.
    #[track_caller]
    pub(crate) fn at_least<const N: usize>(&self, counts: [(u64, u64); N])
    where
        S: Debug,
    {
        if self.seeds < self.full {
            return;
        }
        for (number, (count, usual)) in counts.into_iter().enumerate() {
            assert!(count >= usual / 2, "count {number} is {count}, usual are {usual}: {self:?}");
        }
    }
}

/// Runs a named scenario's seeds: `full` in a thorough run. The counters of a single run are printed, without a sum.
pub(crate) fn sum_of(name: &str, lanes: RunNetwork, full: u64) -> Option<SeedSum<Summary>> {
    let runs = Runs::of(name, lanes).expect("a scenario");
    sum_of_runs(full, |seed| runs.run(seed), |seed| format!("{name}: {}", runs.command(seed)))
}

/// Runs seeds of a change without a name.
pub(crate) fn sum_of_seeds<S>(
    full: u64,
    run: impl Fn(u64) -> Result<S, RunFailure>,
) -> Option<SeedSum<S>>
where
    S: AddAssign + Default + Debug,
{
    let thread = std::thread::current();
    let test = thread.name().expect("a test's thread");
    sum_of_runs(full, run, |seed| {
        format!("SEED={seed} cargo test -p roadtrain-sim --test sim {test} -- --exact")
    })
}

fn sum_of_runs<S>(
    full: u64,
    run: impl Fn(u64) -> Result<S, RunFailure>,
    again: impl Fn(u64) -> String,
) -> Option<SeedSum<S>>
where
    S: AddAssign + Default + Debug,
{
    let (first, seeds) = match number("SEED") {
        Some(seed) => (seed, 1),
        None => (first_seed(), number("SEEDS").unwrap_or_else(|| count(full))),
    };
    println!("{seeds} seeds from {first} on");
    let mut sum = S::default();
    for seed in first..first + seeds {
        match run(seed) {
            Ok(summary) => sum += summary,
            Err(failure) => panic!("{failure}\nagain: {}", again(seed)),
        }
    }
    if seeds == 1 {
        println!("{sum:#?}");
        return None;
    }
    Some(SeedSum { sum, seeds, full })
}

fn count(full: u64) -> u64 {
    if is_thorough() { full } else { (full / 10).max(SEEDS_MIN) }
}

/// Checks that the same seed gives the same run.
pub(crate) fn assert_repeatable<S: Debug>(seed: u64, run: impl Fn(u64) -> Result<S, RunFailure>) {
    let runs = [seed, seed].map(|seed| run(seed).map(|summary| format!("{summary:?}")));
    let [first, second] = runs.map(|run| run.unwrap_or_else(|failure| panic!("{failure}")));
    assert_eq!(first, second);
}
