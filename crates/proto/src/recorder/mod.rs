//! The flight recorder: of late requests, which took how long where.
//!
//! A reactor has one. It keeps two kinds of requests, each in a ring of fixed size: one in so many, whatever it was like
//! (*sampled*), and those that took longer than a threshold (*slow*). The threshold follows the 99th percentile of the
//! sampled ones, or was set.
//!
//! A request costs one comparison at its end, [`Recorder::is_slow`]. Which one is sampled is known in advance
//! ([`Recorder::until_sample`]), so nothing is counted for each. Where a request was when is said by the times of turns
//! that both ends note anyway.
//!
//! However many are slow, so many are recorded in a second: the threshold rises when there are more, until the next
//! second.

mod ring;
mod timeline;

pub use timeline::{End, MOMENTS, Timeline};

use crate::time::Instant;
use core::time::Duration;
use ring::Ring;
use roadtrain_wire::status::Status;

/// Slow requests that are kept.
const SLOW_KEPT: usize = 1024;
/// Sampled requests that are kept.
const SAMPLES_KEPT: usize = 512;
/// Of those, the ones that the threshold follows.
const MEASURED: usize = 256;
/// Samples between two looks at them.
const REVIEW_EVERY: u32 = 16;
/// The threshold before there are so many samples.
const FIRST_THRESHOLD: Duration = Duration::from_millis(1);
/// Slow requests recorded in a [`WINDOW`] before the threshold rises.
const SLOW_MAX: u32 = 128;
const WINDOW: Duration = Duration::from_secs(1);
/// Time between two samples is kept between these.
const PAUSE_MIN: Duration = Duration::from_millis(8);
const PAUSE_MAX: Duration = Duration::from_millis(32);
/// After so long without a sample the next request is one.
const PAUSE_LIMIT: Duration = Duration::from_millis(128);
/// At first one in so many is sampled. A power of two, as all that come after it.
const FIRST_INTERVAL: u32 = 64;
const INTERVAL_MAX: u32 = 1 << 16;

/// Which requests are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SlowOver {
    /// Those beyond the 99th percentile of late.
    #[default]
    P99,
    /// Those that took longer than this.
    Time(Duration),
    /// Nothing is recorded.
    Never,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Asked {
    pub opcode: u8,
    pub nsid: u32,
    /// First block; `None`: there is none, or it is not known any more.
    pub slba: Option<u64>,
    /// Octets of data.
    pub bytes: u32,
}

/// Why a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was its turn.
    Sampled,
    /// It took long.
    Slow,
}

/// A request that has ended. `W` says whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<W> {
    pub who: W,
    pub asked: Asked,
    /// Command identifier.
    pub cid: u16,
    pub status: Status,
    pub why: Why,
    pub timeline: Timeline,
}

/// A reactor's recorder.
#[derive(Debug)]
pub struct Recorder<W> {
    slow_over: SlowOver,
    /// In nanoseconds.
    threshold: u64,
    /// Requests up to the next sample, that one counted.
    left: u32,
    /// One in so many is sampled.
    interval: u32,
    /// Of pseudo-random numbers.
    state: u32,
    last_sample: Instant,
    /// Then the next request is sampled, whichever turn it is.
    sample_by: Instant,
    /// In nanoseconds, of the last samples.
    latencies: Ring<u64>,
    samples: u32,
    window_end: Instant,
    slow_in_window: u32,
    sampled: Ring<Record<W>>,
    slow: Ring<Record<W>>,
}

impl<W> Default for Recorder<W> {
    fn default() -> Self {
        Recorder::new(SlowOver::default())
    }
}

impl<W> Recorder<W> {
    /// Nothing is recorded yet, and no memory used.
    #[must_use]
    pub fn new(slow_over: SlowOver) -> Self {
        let is_on = slow_over != SlowOver::Never;
        Recorder {
            slow_over,
            threshold: match slow_over {
                SlowOver::P99 => nanos(FIRST_THRESHOLD),
                SlowOver::Time(time) => nanos(time),
                SlowOver::Never => u64::MAX,
            },
            left: if is_on { FIRST_INTERVAL } else { u32::MAX },
            interval: FIRST_INTERVAL,
            state: 0x2545_f491,
            last_sample: Instant::default(),
            sample_by: Instant(u64::MAX),
            latencies: Ring::new(MEASURED),
            samples: 0,
            window_end: Instant::default(),
            slow_in_window: 0,
            sampled: Ring::new(SAMPLES_KEPT),
            slow: Ring::new(SLOW_KEPT),
        }
    }

    /// Requests that take longer are slow; `None`: none are.
    #[must_use]
    pub fn threshold(&self) -> Option<Duration> {
        (self.slow_over != SlowOver::Never).then(|| Duration::from_nanos(self.threshold))
    }

    /// One request in so many is sampled.
    #[must_use]
    pub fn interval(&self) -> u32 {
        self.interval
    }

    // ---- The fast path ----

    /// Whether a request that took so many nanoseconds is to be told by [`Recorder::slow`].
    #[inline]
    #[must_use]
    pub fn is_slow(&self, latency_ns: u64) -> bool {
        latency_ns > self.threshold
    }

    /// The latest beginning of a request that ends now and is slow.
    #[inline]
    #[must_use]
    pub fn slow_before(&self, now: Instant) -> Instant {
        Instant(now.0.saturating_sub(self.threshold.saturating_add(1)))
    }

    /// The request that ends as so manieth from now on is to be told by [`Recorder::sample`].
    #[inline]
    #[must_use]
    pub fn until_sample(&mut self, now: Instant) -> u32 {
        if now >= self.sample_by {
            self.left = 1;
        }
        self.left
    }

    /// So many requests have ended, at most [`Recorder::until_sample`]. `true`: the last of them is the sample.
    #[inline]
    pub fn ended(&mut self, requests: u32) -> bool {
        self.left = self.left.saturating_sub(requests);
        self.left == 0
    }

    // ---- Off it ----

    /// A request that took long.
    #[cold]
    pub fn slow(&mut self, now: Instant, mut record: Record<W>) {
        if self.slow_over == SlowOver::Never {
            return;
        }
        let latency = record.timeline.total_ns();
        if now >= self.window_end {
            (self.window_end, self.slow_in_window) = (now + WINDOW, 0);
        }
        self.slow_in_window += 1;
        if self.slow_in_window > SLOW_MAX {
            self.threshold = self.threshold.saturating_add(self.threshold / 2).max(latency);
        }
        record.why = Why::Slow;
        self.slow.push(record);
    }

    /// The request whose turn it was. One that is slow, too, is kept as a slow one only.
    #[cold]
    pub fn sample(&mut self, now: Instant, mut record: Record<W>) {
        let latency = record.timeline.total_ns();
        self.choose_next(now);
        if self.slow_over == SlowOver::Never {
            return;
        }
        self.latencies.push(latency);
        if !self.is_slow(latency) {
            record.why = Why::Sampled;
            self.sampled.push(record);
        }
        self.samples = self.samples.wrapping_add(1);
        if self.samples.is_multiple_of(REVIEW_EVERY) {
            self.review(now);
        }
    }

    /// The one whose turn it was is of no interest: the next one is.
    pub fn pass(&mut self, now: Instant) {
        self.choose_next(now);
    }

    /// Which one is sampled next: over time as many as are wanted, at no fixed distance, since what comes may have a
    /// rhythm.
    fn choose_next(&mut self, now: Instant) {
        if self.slow_over == SlowOver::Never {
            self.left = u32::MAX;
            return;
        }
        let pause = now.since(core::mem::replace(&mut self.last_sample, now));
        self.sample_by = now + PAUSE_LIMIT;
        if pause < PAUSE_MIN {
            self.interval = (self.interval * 2).min(INTERVAL_MAX);
        } else if pause > PAUSE_MAX {
            self.interval = (self.interval / 2).max(1);
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.left = 1 + self.interval / 2 + (self.state & (self.interval - 1));
        if self.interval == 1 {
            self.left = 1;
        }
    }

    /// The threshold follows the samples, but does not fall before the time is over for which it has risen.
    fn review(&mut self, now: Instant) {
        if self.slow_over != SlowOver::P99 {
            if let SlowOver::Time(time) = self.slow_over
                && now >= self.window_end
            {
                self.threshold = nanos(time);
            }
            return;
        }
        let mut latencies: Vec<u64> = self.latencies.iter().copied().collect();
        latencies.sort_unstable();
        let Some(&p99) = latencies.get(latencies.len() * 99 / 100) else { return };
        let has_risen = now < self.window_end && self.slow_in_window > SLOW_MAX;
        self.threshold = if has_risen { self.threshold.max(p99) } else { p99 };
    }

    /// What is recorded, the slow ones first, each kind from the oldest on.
    pub fn records(&self) -> impl Iterator<Item = &Record<W>> {
        self.slow.iter().chain(self.sampled.iter())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
