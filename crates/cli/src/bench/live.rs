//! Live progress line on a terminal.

use super::plan::LoadPlan;
use super::run_state::LoadProgress;
use crate::units::{show_bandwidth, show_count, show_seconds, show_us};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Progress on stderr if that is a terminal: the main load's, then each stream's.
pub(super) struct LiveLine {
    bar: Option<ProgressBar>,
    /// Bytes of each load's requests.
    slot_bytes: Vec<u64>,
    last: Vec<LoadProgress>,
    at: Instant,
}

impl LiveLine {
    /// Creates the line, empty.
    #[must_use]
    pub(super) fn new(plans: &[Arc<LoadPlan>], quiet: bool) -> LiveLine {
        let shown = !quiet && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let style = ProgressStyle::with_template("{spinner} {duration:>8} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            let duration = |state: &ProgressState, to: &mut dyn fmt::Write| {
                let _ = to.write_str(&show_seconds(state.elapsed().as_secs_f64()));
            };
            ProgressBar::new_spinner().with_style(style.with_key("duration", duration))
        });
        let slot_bytes = plans.iter().map(|plan| plan.slot_bytes() as u64).collect();
        let last = vec![LoadProgress::default(); plans.len()];
        LiveLine { bar, slot_bytes, last, at: Instant::now() }
    }

    /// True if the line is displayed.
    #[must_use]
    pub(super) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    /// Displays a text while nothing is measured.
    pub(super) fn show_text(&self, text: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.tick();
        }
    }

    /// Displays the progress since the last update, at most four times a second.
    pub(super) fn show(&mut self, progress: impl FnOnce() -> Vec<LoadProgress>) {
        let Some(bar) = &self.bar else { return };
        let elapsed = self.at.elapsed();
        if elapsed < Duration::from_millis(250) {
            return;
        }
        let progress = progress();
        let loads = self.last.iter().zip(&progress).zip(&self.slot_bytes);
        let texts = loads.map(|((last, now), bytes)| text(last, now, elapsed, *bytes));
        bar.set_message(texts.collect::<Vec<_>>().join("  |  "));
        bar.tick();
        (self.last, self.at) = (progress, Instant::now());
    }

    /// Removes the line.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn text(last: &LoadProgress, now: &LoadProgress, elapsed: Duration, slot_bytes: u64) -> String {
    let requests = now.requests.saturating_sub(last.requests);
    let iops = requests as f64 / elapsed.as_secs_f64();
    let latency_ns = now.latency_ns.saturating_sub(last.latency_ns) as f64;
    let mean_us = latency_ns / 1e3 / requests.max(1) as f64;
    let errors = if now.errors > 0 { format!("  {} errors", now.errors) } else { String::new() };
    let bandwidth = show_bandwidth(iops * slot_bytes as f64);
    let (mean, p99) = (show_us(mean_us), show_us(now.counts.p99_ns(&last.counts) as f64 / 1e3));
    format!("{} IOPS  {bandwidth}  mean {mean}  p99 {p99}{errors}", show_count(iops))
}

#[cfg(test)]
mod tests {
    use super::super::tally::LatencyTally;
    use super::*;

    #[test]
    fn the_line_shows_the_last_interval() {
        let last = LoadProgress { requests: 1000, ..LoadProgress::default() };
        let mut now = LoadProgress { requests: 51_000, latency_ns: 5_000_000_000, ..last.clone() };
        now.errors = 2;
        let tally = LatencyTally::default();
        tally.count(212_000);
        now.counts.add(&tally);
        let text = text(&last, &now, Duration::from_millis(500), 4096);
        assert_eq!(text, "100.0 k IOPS  391 MiB/s  mean 100 us  p99 209 us  2 errors");
    }
}
