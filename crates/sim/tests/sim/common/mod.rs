//! Which seeds to run: `SEED=n` one, `SEEDS=n` so many.

use roadtrain_sim::world::Failure;
use std::fmt::Debug;
use std::ops::AddAssign;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The sum of `default` seeds' runs, or of as many as asked for; a single one is printed instead.
pub(crate) fn sum_of_seeds<S>(default: u64, run: impl Fn(u64) -> Result<S, Failure>) -> Option<S>
where
    S: AddAssign + Default + Debug,
{
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(default),
    };
    let single = seeds.end - seeds.start == 1;
    let mut sum = S::default();
    for seed in seeds {
        match run(seed) {
            Ok(summary) => sum += summary,
            Err(failure) => panic!("{failure}"),
        }
    }
    if single {
        println!("{sum:#?}");
        return None;
    }
    Some(sum)
}

/// The same seed is the same run.
pub(crate) fn assert_repeatable<S: Debug>(seed: u64, run: fn(u64) -> Result<S, Failure>) {
    let runs = [seed, seed].map(|seed| run(seed).map(|summary| format!("{summary:?}")));
    let [first, second] = runs.map(|run| run.unwrap_or_else(|failure| panic!("{failure}")));
    assert_eq!(first, second);
}
