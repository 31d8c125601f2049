//! Random numbers from a seed: the same on every machine and in every version (SplitMix64).

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// A generator. A fork is independent, so that one part of the simulation does not disturb another.
#[derive(Clone, Debug)]
pub struct SimRng(u64);

impl SimRng {
    /// Makes the generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SimRng(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns an independent generator.
    pub fn fork(&mut self) -> SimRng {
        SimRng(self.bits())
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a duration from `first` to `last` microseconds.
    pub fn micros(&mut self, first: u64, last: u64) -> Duration {
        Duration::from_nanos(self.between(first * 1000, last * 1000))
    }

    /// Returns a time before `end`.
    pub fn moment(&mut self, end: Duration) -> Instant {
        Instant(self.below(end.as_nanos() as u64))
    }
}
