//! A load that steps up and down, and the delay with which each policy's throughput follows.

use super::load::{ModelLoad, ms};
use super::run::ScenarioOutcome;
use roadtrain_proto::time::Instant;
use std::ops::Range;
use std::time::Duration;

/// Time between two steps.
const HALF_MS: u64 = 20;
/// Steps, counting the beginning.
const HALVES: u64 = 10;
/// Share of the steady throughput that counts as settled.
const REACHED: f64 = 0.95;

/// Depths in turn.
#[derive(Clone, Copy, Debug)]
pub struct StepWave {
    pub low: u32,
    pub high: u32,
}

/// Result of the steps.
pub struct Settled {
    /// Mean IOPS in the steady state.
    pub iops: f64,
    /// Time until [`REACHED`] of the slowest step.
    pub ms_max: u64,
}

impl StepWave {
    pub fn load(self) -> ModelLoad {
        ModelLoad::depths(HALF_MS, (0..HALVES).map(|half| [self.low, self.high][half as usize % 2]))
    }

    pub fn measured() -> Range<Instant> {
        ms(0)..ms(HALVES * HALF_MS)
    }

    /// Returns the result of the steps up.
    pub fn up(outcome: &ScenarioOutcome) -> Settled {
        Self::settled(outcome, 1)
    }

    /// Returns the result of the steps down, without the start.
    pub fn down(outcome: &ScenarioOutcome) -> Settled {
        Self::settled(outcome, 2)
    }

    fn settled(outcome: &ScenarioOutcome, first: u64) -> Settled {
        let steps = (first..HALVES).step_by(2).map(|half| settle(outcome, ms(half * HALF_MS)));
        let (iops, times): (Vec<f64>, Vec<u64>) = steps.unzip();
        let mean = iops.iter().sum::<f64>() / iops.len() as f64;
        Settled { iops: mean, ms_max: times.into_iter().max().expect("there are steps") }
    }
}

/// Returns the IOPS in the later half of the time after a step, and the milliseconds until [`REACHED`] of them.
/// Requests from before the step do not count.
fn settle(outcome: &ScenarioOutcome, step: Instant) -> (f64, u64) {
    let at = |after_ms: u64| step + Duration::from_millis(after_ms);
    let steady = outcome.iops(&(at(HALF_MS / 2)..at(HALF_MS)));
    let reached = |after_ms: &u64| {
        let window = at(after_ms - 1)..at(*after_ms);
        let done = outcome.done.iter().filter(|done| done.since >= step);
        let count = done.filter(|done| window.contains(&done.at)).count();
        count as f64 * 1000.0 >= REACHED * steady
    };
    (steady, (1..=HALF_MS).find(reached).unwrap_or(HALF_MS))
}
