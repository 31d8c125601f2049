//! Arrival times of requests.

use super::cpu::ModelRandom;
use roadtrain_proto::time::Instant;
use std::time::Duration;

/// A load from its start on.
#[derive(Clone, Debug)]
pub enum ModelLoad {
    /// Depths, each from its time on.
    Closed(Vec<(Instant, u32)>),
    /// Submission times, independent of earlier requests.
    Open(Vec<Instant>),
}

/// Direction of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOperations {
    Reads,
    Writes,
    /// Writes with a probability of one half.
    Mix,
    /// Percent of reads, in random order.
    Share(u64),
}

impl LoadOperations {
    pub fn is_write(self, number: u64) -> bool {
        match self {
            LoadOperations::Reads => false,
            LoadOperations::Writes => true,
            LoadOperations::Mix => ModelRandom(number).next().is_multiple_of(2),
            LoadOperations::Share(percent) => ModelRandom(number).next() % 100 >= percent,
        }
    }
}

pub const fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

impl ModelLoad {
    pub fn depth(depth: u32) -> Self {
        ModelLoad::Closed(vec![(ms(0), depth)])
    }

    /// Returns a load of several depths, each for `each_ms`.
    pub fn depths(each_ms: u64, depths: impl IntoIterator<Item = u32>) -> Self {
        ModelLoad::Closed((0..).map(|index| ms(index * each_ms)).zip(depths).collect())
    }

    /// Returns a load of `size` requests together every `every`, until `end`.
    pub fn bursts(size: usize, every: Duration, end: Instant) -> Self {
        let times = every_so_often(every, end);
        ModelLoad::Open(times.flat_map(|at| std::iter::repeat_n(at, size)).collect())
    }

    /// Returns a load of requests at even intervals, until `end`.
    pub fn rate(per_second: u64, end: Instant) -> Self {
        ModelLoad::bursts(1, Duration::from_nanos(1_000_000_000 / per_second), end)
    }

    /// Returns a load of requests at random times (Poisson).
    pub fn random_rate(per_second: f64, end: Instant) -> Self {
        let mut random = ModelRandom(3);
        let gap = move |&at: &f64| {
            let uniform = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
            Some(at - (1.0 - uniform).ln() * 1e9 / per_second)
        };
        let times = std::iter::successors(Some(0.0), gap).map(|ns| Instant(ns as u64));
        ModelLoad::Open(times.take_while(|&at| at < end).collect())
    }

    /// Restricts an open load to every other phase of `phase_ms`.
    pub fn on_and_off(self, phase_ms: u64) -> Self {
        let ModelLoad::Open(mut times) = self else { panic!("a closed load's depths say it") };
        times.retain(|at| (at.0 / ms(phase_ms).0).is_multiple_of(2));
        ModelLoad::Open(times)
    }
}

fn every_so_often(every: Duration, end: Instant) -> impl Iterator<Item = Instant> {
    let next = move |&at: &Instant| Some(at + every).filter(|&next| next < end);
    std::iter::successors(Some(Instant(0)), next)
}

/// A request that the load submits.
pub struct DueRequest {
    /// Start of its latency; `None` for the time of submission.
    pub since: Option<Instant>,
}

/// A load in progress.
pub struct LoadSource {
    load: ModelLoad,
    /// Number of depths that have begun, or of requests taken.
    position: usize,
    end: Instant,
}

impl LoadSource {
    pub fn new(load: ModelLoad, end: Instant) -> Self {
        LoadSource { load, position: 0, end }
    }

    /// Time of the next request, apart from completions.
    pub fn next(&self) -> Option<Instant> {
        let next = match &self.load {
            ModelLoad::Closed(depths) => depths.get(self.position).map(|&(from, _)| from),
            ModelLoad::Open(times) => times.get(self.position).copied(),
        };
        next.filter(|&next| next < self.end)
    }

    /// Takes the next request, if one is due now.
    pub fn take(&mut self, now: Instant, outstanding: u32) -> Option<DueRequest> {
        if now >= self.end {
            self.position = usize::MAX; // requests due but not taken are abandoned
            return None;
        }
        match &self.load {
            ModelLoad::Closed(depths) => {
                self.position = depths.partition_point(|&(from, _)| from <= now);
                (outstanding < depths[self.position - 1].1).then_some(DueRequest { since: None })
            }
            ModelLoad::Open(times) => {
                let since = times.get(self.position).copied().filter(|&due| due <= now)?;
                self.position += 1;
                Some(DueRequest { since: Some(since) })
            }
        }
    }
}
