//! Load step: the main load's depth alternates, and the report has the time until the IOPS settle.

use crate::args::StepSpec;
use roadtrain_proto::time::Instant;
use serde::Serialize;
use std::time::Duration;

/// Length of a window in nanoseconds: the resolution of times.
const WINDOW_NS: u64 = 1_000_000;
/// Share of the steady state that counts as settled.
const REACHED: f64 = 0.95;

/// A square wave that begins with the lower depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DepthWave {
    spec: StepSpec,
    /// Windows in the measured time.
    windows: usize,
}

/// State of one lane: the depth, and the completions in each window.
#[derive(Clone, Debug)]
pub(super) struct DepthSteps {
    wave: DepthWave,
    began_at: Option<Instant>,
    /// Completions in each window, of requests sent since the last step.
    windows: Vec<u32>,
}

/// Results of the steps. Rates are those of the steady state: the later half of a half period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct StepReport {
    pub period_ms: u32,
    pub low_depth: u32,
    pub high_depth: u32,
    /// IOPS at the lower depth.
    pub low_iops: f64,
    /// IOPS at the higher depth.
    pub high_iops: f64,
    /// Median time from a step until a window of 1 ms reaches 95 % of the steady state that follows.
    pub settle_ms: f64,
    /// Median for the steps up.
    pub settle_up_ms: f64,
    /// Median for the steps down.
    pub settle_down_ms: f64,
}

impl DepthWave {
    /// Creates a wave for the measured time, which has at least one period.
    pub(super) fn new(spec: StepSpec, measured: Duration) -> Result<DepthWave, String> {
        if measured < Duration::from_millis(spec.period_ms.into()) {
            return Err("--step: measure for one period-ms at least (--seconds)".into());
        }
        Ok(DepthWave { spec, windows: (measured.as_nanos() / u128::from(WINDOW_NS)) as usize })
    }

    fn half_ns(&self) -> u64 {
        u64::from(self.spec.period_ms) * 1_000_000 / 2
    }

    /// Evaluates the windows, summed over all lanes.
    #[must_use]
    pub(super) fn report(&self, windows: &[u32]) -> StepReport {
        let length = (self.half_ns() / WINDOW_NS) as usize;
        let halves: Vec<HalfPeriod> = windows.chunks_exact(length).map(HalfPeriod::new).collect();
        let every_other = |first: usize| halves.iter().skip(first).step_by(2);
        let settled =
            |halves: &mut dyn Iterator<Item = &HalfPeriod>| median(halves.map(|h| h.settle_ms));
        let windows_per_second = 1e9 / WINDOW_NS as f64;
        StepReport {
            period_ms: self.spec.period_ms,
            low_depth: self.spec.low,
            high_depth: self.spec.high,
            low_iops: mean(every_other(0).map(|half| half.steady)) * windows_per_second,
            high_iops: mean(every_other(1).map(|half| half.steady)) * windows_per_second,
            // The first half period begins without a step.
            settle_ms: settled(&mut halves.iter().skip(1)),
            settle_up_ms: settled(&mut every_other(1)),
            settle_down_ms: settled(&mut every_other(2)),
        }
    }
}

/// Half a period: the time between two steps.
struct HalfPeriod {
    /// Completions in a window in the steady state.
    steady: f64,
    /// Milliseconds until the steady state was reached; the whole half period if it never was.
    settle_ms: f64,
}

impl HalfPeriod {
    fn new(windows: &[u32]) -> HalfPeriod {
        let steady = mean(windows[windows.len() / 2..].iter().map(|&count| f64::from(count)));
        let reached = |&count: &u32| steady > 0.0 && f64::from(count) >= REACHED * steady;
        let before = windows.iter().position(reached).map_or(windows.len(), |index| index + 1);
        HalfPeriod { steady, settle_ms: before as f64 * WINDOW_NS as f64 / 1e6 }
    }
}

/// Returns the mean; 0 of no values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

/// Returns the median; 0 of no values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

impl DepthSteps {
    /// Creates the state before the beginning: the lower depth applies.
    #[must_use]
    pub(super) fn new(wave: DepthWave) -> DepthSteps {
        DepthSteps { wave, began_at: None, windows: vec![0; wave.windows] }
    }

    /// Begins with half a period at the lower depth.
    pub(super) fn begin(&mut self, at: Instant) {
        self.began_at = Some(at);
    }

    fn halves_since(&self, began_at: Instant, now: Instant) -> u64 {
        now.0.saturating_sub(began_at.0) / self.wave.half_ns()
    }

    /// Returns the depth at `now`.
    #[must_use]
    pub(super) fn depth(&self, now: Instant) -> u32 {
        match self.began_at {
            Some(began_at) if self.halves_since(began_at, now) % 2 == 1 => self.wave.spec.high,
            _ => self.wave.spec.low,
        }
    }

    /// Returns the time of the next step.
    #[must_use]
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let began_at = self.began_at?;
        let halves = self.halves_since(began_at, now) + 1;
        Some(Instant(began_at.0 + halves * self.wave.half_ns()))
    }

    /// Counts a request, if it was sent since the last step.
    #[inline]
    pub(super) fn record(&mut self, sent: Instant, now: Instant) {
        let Some(began_at) = self.began_at else { return };
        let stepped_at = began_at.0 + self.halves_since(began_at, now) * self.wave.half_ns();
        if sent.0 < stepped_at {
            return;
        }
        let window = (now.0.saturating_sub(began_at.0) / WINDOW_NS) as usize;
        if let Some(count) = self.windows.get_mut(window) {
            *count += 1;
        }
    }

    /// Returns the completions in each window.
    #[must_use]
    pub(super) fn into_windows(self) -> Vec<u32> {
        self.windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn wave(period_ms: u32, measured_ms: u64) -> DepthWave {
        let spec = StepSpec { low: 1, high: 64, period_ms };
        DepthWave::new(spec, Duration::from_millis(measured_ms)).unwrap()
    }

    #[test]
    fn depth_alternates_from_the_beginning() {
        let mut steps = DepthSteps::new(wave(20, 100));
        assert_eq!((steps.depth(Instant(5)), steps.next(Instant(5))), (1, None));
        steps.begin(Instant(1000));
        let at = |ms: u64| Instant(1000 + ms * MS);
        assert_eq!([0, 9, 10, 19, 20, 35].map(|ms| steps.depth(at(ms))), [1, 1, 64, 64, 1, 64]);
        assert_eq!(steps.next(at(0)), Some(at(10)));
        assert_eq!(steps.next(at(10)), Some(at(20)));
        let (before, after) = (Instant(at(10).0 - 1), at(10));
        assert_eq!((steps.depth(before), steps.depth(after)), (1, 64));
    }

    #[test]
    fn requests_from_before_the_step_do_not_count() {
        let mut steps = DepthSteps::new(wave(20, 40));
        steps.record(Instant(1), Instant(2));
        steps.begin(Instant(0));
        for (sent, ended) in [(0, 1), (9, 10), (10, 10), (9, 12), (11, 12), (39, 39), (39, 40)] {
            steps.record(Instant(sent * MS), Instant(ended * MS));
        }
        let windows = steps.into_windows();
        let counted: Vec<_> = (0..windows.len()).filter(|&ms| windows[ms] > 0).collect();
        assert_eq!((windows.len(), counted), (40, vec![1, 10, 12, 39]));
    }

    /// Builds windows of `halves`, each ten windows long: the first values, then the same value for the rest.
    fn windows(halves: &[(&[u32], u32)]) -> Vec<u32> {
        let half = |(first, rest): &(&[u32], u32)| {
            let mut half = first.to_vec();
            half.resize(10, *rest);
            half
        };
        halves.iter().flat_map(half).collect()
    }

    #[test]
    fn settling_is_the_end_of_the_first_window_near_the_steady_state() {
        let wave = wave(20, 60);
        let report = wave.report(
            &windows(&[
                (&[], 50),
                (&[200, 940, 951], 1000), // 3 ms
                (&[10, 20, 30, 40], 50),  // 5 ms
                (&[949], 1000),           // 2 ms
                (&[], 50),                // 1 ms
                (&[7, 7], 7),             // cut off: not a whole one
            ])[..57],
        );
        assert_eq!((report.low_iops, report.high_iops), (50_000.0, 1_000_000.0));
        assert_eq!(report.settle_ms, 2.5);
        assert_eq!((report.settle_up_ms, report.settle_down_ms), (2.5, 3.0));
    }

    #[test]
    fn what_never_settles_takes_all_the_time() {
        let report = wave(20, 40).report(&windows(&[(&[], 9), (&[], 0)]));
        assert_eq!((report.high_iops, report.settle_ms, report.settle_down_ms), (0.0, 10.0, 0.0));
        assert_eq!(wave(20, 40).report(&[]).settle_ms, 0.0);
    }

    #[test]
    fn a_wave_needs_its_time() {
        let spec = StepSpec { low: 1, high: 2, period_ms: 200 };
        assert!(DepthWave::new(spec, Duration::from_millis(199)).is_err());
    }
}
