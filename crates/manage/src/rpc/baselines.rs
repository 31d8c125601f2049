//! Counters since a reset. Reactors' counters only grow, so their values at the reset are subtracted.

use super::histogram::HistogramShape;
use roadtrain_reactor::metrics::{IoCounters, Latency};
use std::collections::BTreeMap;

/// Selection of the counters to reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResetMode {
    /// All counters.
    All,
    /// The shortest and longest latencies.
    Maxmin,
    /// Errors.
    Error,
    /// No counters.
    #[default]
    None,
}

/// Values of a device's counters at the last reset.
#[derive(Clone, Debug, Default)]
pub(super) struct Baseline {
    counters: IoCounters,
    /// Latencies of reads and writes at the last reset of the extremes.
    extremes: [Latency; 2],
    /// A running histogram, with the latencies of reads and writes at its start.
    pub(super) histogram: Option<(HistogramShape, [Latency; 2])>,
}

/// Counters since a reset.
pub(super) struct Since {
    pub(super) io: IoCounters,
    /// Latencies of reads and writes since the last reset of the extremes.
    pub(super) extremes: [Latency; 2],
}

fn latencies(io: &IoCounters) -> [Latency; 2] {
    [io.read_latency.clone(), io.write_latency.clone()]
}

impl Baseline {
    pub(super) fn reset(&mut self, mode: ResetMode, now: &IoCounters) {
        match mode {
            ResetMode::All => {
                self.counters = now.clone();
                self.extremes = latencies(now);
            }
            ResetMode::Maxmin => self.extremes = latencies(now),
            ResetMode::Error => self.counters.errors = now.errors,
            ResetMode::None => {}
        }
    }

    /// Returns the counters since the last reset.
    pub(super) fn since(&self, now: &IoCounters) -> Since {
        let was = &self.counters;
        let io = IoCounters {
            reads: now.reads - was.reads,
            writes: now.writes - was.writes,
            flushes: now.flushes - was.flushes,
            discards: now.discards - was.discards,
            others: now.others - was.others,
            read_bytes: now.read_bytes - was.read_bytes,
            written_bytes: now.written_bytes - was.written_bytes,
            discarded_bytes: now.discarded_bytes - was.discarded_bytes,
            errors: now.errors - was.errors,
            in_flight: now.in_flight,
            read_latency: now.read_latency.since(&was.read_latency),
            write_latency: now.write_latency.since(&was.write_latency),
        };
        let [read, write] = &self.extremes;
        Since { io, extremes: [now.read_latency.since(read), now.write_latency.since(write)] }
    }

    /// True if the counters belong to another namespace, which has counted less.
    fn is_stale(&self, now: &IoCounters) -> bool {
        let counts = |io: &IoCounters| {
            let commands = [io.reads, io.writes, io.flushes, io.discards, io.others, io.errors];
            (commands, [io.read_bytes, io.written_bytes, io.discarded_bytes])
        };
        let ((had, had_bytes), (has, has_bytes)) = (counts(&self.counters), counts(now));
        let mut both = had.iter().zip(&has).chain(had_bytes.iter().zip(&has_bytes));
        let latencies = |at: usize| {
            let begun = self.histogram.as_ref().map_or(0, |(_, from)| from[at].count());
            self.extremes[at].count().max(begun)
        };
        both.any(|(had, has)| has < had)
            || now.read_latency.count() < latencies(0)
            || now.write_latency.count() < latencies(1)
    }
}

/// Baselines of all devices, by name. A method keeps the lock while it reads the counters, so that no reset has later
/// ones.
#[derive(Debug, Default)]
pub(super) struct Baselines(BTreeMap<String, Baseline>);

impl Baselines {
    /// Runs a closure with the baseline of a device whose counters are `now`. A baseline of another namespace is reset
    /// first.
    pub(super) fn with<T>(
        &mut self,
        device: &str,
        now: &IoCounters,
        run: impl FnOnce(&mut Baseline) -> T,
    ) -> T {
        let baseline = self.0.entry(device.to_owned()).or_default();
        if baseline.is_stale(now) {
            let histogram = baseline.histogram.take();
            let histogram = histogram.map(|(shape, _)| (shape, Default::default()));
            *baseline = Baseline { histogram, ..Baseline::default() };
        }
        run(baseline)
    }

    /// Removes devices that `is_there` rejects.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn io(reads: u64, errors: u64) -> IoCounters {
        let read_latency = Latency { buckets: vec![reads], sum_seconds: reads as f64 };
        IoCounters { reads, errors, read_bytes: 512 * reads, read_latency, ..IoCounters::default() }
    }

    #[test]
    fn counters_are_those_since_the_last_reset() {
        let baselines = RefCell::new(Baselines::default());
        let reset = |mode, now: &IoCounters| {
            baselines.borrow_mut().with("a", now, |one| one.reset(mode, now))
        };
        let since = |now: &IoCounters| {
            let Since { io, extremes } =
                baselines.borrow_mut().with("a", now, |one| one.since(now));
            (io.reads, io.read_bytes, io.errors, extremes[0].count())
        };
        assert_eq!(since(&io(5, 1)), (5, 2560, 1, 5));
        reset(ResetMode::None, &io(5, 1));
        assert_eq!(since(&io(5, 1)), (5, 2560, 1, 5));
        reset(ResetMode::Error, &io(5, 1));
        reset(ResetMode::Maxmin, &io(5, 1));
        assert_eq!(since(&io(6, 2)), (6, 3072, 1, 1));
        reset(ResetMode::All, &io(6, 2));
        assert_eq!(since(&io(9, 2)), (3, 1536, 0, 3));
        assert_eq!(since(&io(2, 0)), (2, 1024, 0, 2), "another namespace has the device");
    }
}
