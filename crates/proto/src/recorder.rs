//! Flight recorder: recent requests, with the time that each spent in every stage.
//!
//! Each reactor has one. It keeps two kinds of requests, each in a ring of fixed size. *Sampled* requests are one in N;
//! *slow* requests took longer than a threshold. The threshold follows the 99th percentile of the sampled ones, or is
//! set.
//!
//! A request costs one comparison at its end, [`FlightRecorder::is_slow`]. The next sample is known in advance
//! ([`FlightRecorder::until_sample`]), so nothing is counted for each request. The timestamps of stages are the times of
//! turns that both ends note anyway.
//!
//! The number of slow requests recorded in a second is bounded: the threshold rises when there are more, until the next
//! second.

mod ring;
mod timeline;

pub use timeline::{TIMESTAMPS, Timeline, TimelineEnd};

use crate::time::Instant;
use core::time::Duration;
use ring::RecordRing;
use roadtrain_wire::status::Status;

/// Capacity of the ring of slow requests.
const SLOW_KEPT: usize = 1024;
/// Capacity of the ring of sampled requests.
const SAMPLES_KEPT: usize = 512;
/// Number of latest samples that the threshold follows.
const MEASURED: usize = 256;
/// Samples between two updates of the threshold.
const REVIEW_EVERY: u32 = 16;
/// Threshold before the first update.
const FIRST_THRESHOLD: Duration = Duration::from_millis(1);
/// Slow requests recorded in a [`WINDOW`] before the threshold rises.
const SLOW_MAX: u32 = 128;
const WINDOW: Duration = Duration::from_secs(1);
/// Bounds of the time between two samples.
const PAUSE_MIN: Duration = Duration::from_millis(8);
const PAUSE_MAX: Duration = Duration::from_millis(32);
/// Time without a sample after which the next request is sampled.
const PAUSE_LIMIT: Duration = Duration::from_millis(128);
/// First sampling interval in requests. A power of two, as all later ones.
const FIRST_INTERVAL: u32 = 64;
const INTERVAL_MAX: u32 = 1 << 16;

/// Threshold from which on requests are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SlowOver {
    /// The 99th percentile of recent samples.
    #[default]
    P99,
    /// A fixed latency.
    Time(Duration),
    /// Nothing is recorded.
    Never,
}

/// Parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecordedParams {
    pub opcode: u8,
    pub nsid: u32,
    /// First block; `None`: the command has none, or it is no longer known.
    pub slba: Option<u64>,
    /// Bytes of data.
    pub bytes: u32,
}

/// Reason why a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordReason {
    /// It was the next sample.
    Sampled,
    /// It was slow.
    Slow,
}

/// A request that has ended. `W` names its host or its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord<W> {
    pub connection: W,
    pub command: RecordedParams,
    /// Command identifier.
    pub cid: u16,
    pub status: Status,
    pub reason: RecordReason,
    pub timeline: Timeline,
}

/// Recorder of a reactor.
#[derive(Debug)]
pub struct FlightRecorder<W> {
    slow_over: SlowOver,
    /// Threshold of slow requests in nanoseconds.
    threshold: u64,
    /// Requests up to and including the next sample.
    left: u32,
    /// Sampling interval in requests.
    interval: u32,
    /// State of the pseudo-random numbers.
    state: u32,
    last_sample: Instant,
    /// Time from which on the next request is sampled, whatever its number.
    sample_by: Instant,
    /// Latencies of the last samples in nanoseconds.
    latencies: RecordRing<u64>,
    samples: u32,
    window_end: Instant,
    slow_in_window: u32,
    sampled: RecordRing<RequestRecord<W>>,
    slow: RecordRing<RequestRecord<W>>,
}

impl<W> Default for FlightRecorder<W> {
    fn default() -> Self {
        FlightRecorder::new(SlowOver::default())
    }
}

impl<W> FlightRecorder<W> {
    /// An empty recorder, without memory.
    #[must_use]
    pub fn new(slow_over: SlowOver) -> Self {
        let is_on = slow_over != SlowOver::Never;
        FlightRecorder {
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
            latencies: RecordRing::new(MEASURED),
            samples: 0,
            window_end: Instant::default(),
            slow_in_window: 0,
            sampled: RecordRing::new(SAMPLES_KEPT),
            slow: RecordRing::new(SLOW_KEPT),
        }
    }

    /// Latency from which on requests are slow; `None`: none are.
    #[must_use]
    pub fn threshold(&self) -> Option<Duration> {
        (self.slow_over != SlowOver::Never).then(|| Duration::from_nanos(self.threshold))
    }

    /// Sampling interval in requests.
    #[must_use]
    pub fn interval(&self) -> u32 {
        self.interval
    }

    // ---- The fast path ----

    /// True if a request with that latency has to be reported with [`FlightRecorder::slow`].
    #[inline]
    #[must_use]
    pub fn is_slow(&self, latency_ns: u64) -> bool {
        latency_ns > self.threshold
    }

    /// Returns the latest start of a request that ends now and is slow.
    #[inline]
    #[must_use]
    pub fn slow_before(&self, now: Instant) -> Instant {
        Instant(now.0.saturating_sub(self.threshold.saturating_add(1)))
    }

    /// Returns the number of requests up to and including the one to report with [`FlightRecorder::sample`].
    #[inline]
    #[must_use]
    pub fn until_sample(&mut self, now: Instant) -> u32 {
        if now >= self.sample_by {
            self.left = 1;
        }
        self.left
    }

    /// Counts `requests` that have ended, at most [`FlightRecorder::until_sample`]. True if the last of them is the sample.
    #[inline]
    pub fn ended(&mut self, requests: u32) -> bool {
        self.left = self.left.saturating_sub(requests);
        self.left == 0
    }

    // ---- Off it ----

    /// Records a slow request.
    #[cold]
    pub fn slow(&mut self, now: Instant, mut record: RequestRecord<W>) {
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
        record.reason = RecordReason::Slow;
        self.slow.push(record);
    }

    /// Records the sampled request. One that is slow as well is kept only as a slow one.
    #[cold]
    pub fn sample(&mut self, now: Instant, mut record: RequestRecord<W>) {
        let latency = record.timeline.total_ns();
        self.choose_next(now);
        if self.slow_over == SlowOver::Never {
            return;
        }
        self.latencies.push(latency);
        if !self.is_slow(latency) {
            record.reason = RecordReason::Sampled;
            self.sampled.push(record);
        }
        self.samples = self.samples.wrapping_add(1);
        if self.samples.is_multiple_of(REVIEW_EVERY) {
            self.review(now);
        }
    }

    /// Skips the current sample: the next request is chosen anew.
    pub fn pass(&mut self, now: Instant) {
        self.choose_next(now);
    }

    /// Chooses the next sample: at the wanted rate over time, at no fixed distance, since requests may have a rhythm.
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

    /// Sets the threshold from the samples. A threshold that has risen does not fall before the window ends.
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

    /// Returns the records, the slow ones first, each kind from the oldest on.
    pub fn records(&self) -> impl Iterator<Item = &RequestRecord<W>> {
        self.slow.iter().chain(self.sampled.iter())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
