//! Waits of a reactor: calls the state machine that decides whether to poll or to block, and reads the thread's
//! counters.

mod meter;

pub use meter::WaitMeter;
pub use roadtrain_proto::wait::{WaitPolicy, WaitState};

use crate::metrics::{ReactorCells, WaitTotals};
use crate::tuning::thread_cpu_ns;
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::{ThreadTimes, WaitDecider};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// File with the CPU time and the queueing time of the thread.
const SCHEDULING: &str = "/proc/thread-self/schedstat";

/// Waits of a reactor.
pub struct ReactorWaits {
    /// Number of sleeps.
    pub sleeps: u64,
    wait: WaitDecider,
    /// Published state.
    meter: Arc<WaitMeter>,
    cells: Arc<ReactorCells>,
    counted: WaitTotals,
    /// Time at which the reactor last had nothing to do.
    idle_at: Instant,
    /// Start of polling without work.
    polls_since: Option<Instant>,
    scheduling: Option<File>,
}

impl ReactorWaits {
    /// Waits of the calling thread.
    pub fn new(waiting: WaitPolicy, (meter, cells): (Arc<WaitMeter>, Arc<ReactorCells>)) -> Self {
        cells.begin();
        ReactorWaits {
            sleeps: 0,
            wait: WaitDecider::new(waiting),
            meter,
            cells,
            counted: WaitTotals::default(),
            idle_at: Instant::default(),
            polls_since: None,
            scheduling: File::open(SCHEDULING).ok(),
        }
    }

    /// Ends a wait: there is work.
    #[inline]
    pub fn worked(&mut self) {
        self.polls_since = None;
        self.wait.worked();
    }

    /// True while new waits poll.
    #[inline]
    pub fn polls(&self) -> bool {
        self.wait.polls()
    }

    /// True if [`poll_again`](Self::poll_again) needs the time of the next work.
    #[inline]
    pub fn needs_due(&self) -> bool {
        !self.wait.is_polling()
    }

    /// Decides a wait: `true` to poll at once, `false` to sleep. `expects`: something may arrive soon; at `due` there
    /// is work in any case.
    pub fn poll_again(&mut self, now: Instant, expects: bool, due: Option<Instant>) -> bool {
        if let Some(since) = self.polls_since.take() {
            self.counted.spin_ns += now.0.saturating_sub(since.0);
        }
        self.idle_at = now;
        if self.wait.is_reading_due() {
            let queued_ns = self.scheduling.as_ref().and_then(queued_ns).unwrap_or_default();
            self.wait.review(ThreadTimes { cpu_ns: thread_cpu_ns(), queued_ns });
            self.meter.write(&self.wait.state());
        }
        let polls = self.wait.poll_again(now, expects, due);
        if polls {
            self.polls_since = Some(now);
        }
        polls
    }

    /// Publishes the counters of a turn, and returns them.
    #[inline]
    pub fn show(&self) -> &ReactorCells {
        self.cells.turns.add(1);
        self.cells.waited(self.counted);
        &self.cells
    }

    /// Sleeps with `sleep`, and measures its cost now and then.
    ///
    /// # Errors
    /// Those of `sleep`.
    pub fn sleep(&mut self, sleep: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.sleeps += 1;
        self.counted.sleeps = self.sleeps;
        self.cells.sleeps(self.idle_at);
        if !self.wait.samples_next() {
            return sleep();
        }
        let before = thread_cpu_ns();
        sleep()?;
        self.wait.slept(Duration::from_nanos(thread_cpu_ns().saturating_sub(before)));
        Ok(())
    }

    /// Returns the total time of polling without work.
    pub fn polled(&self) -> Duration {
        self.wait.polled()
    }

    /// Ends a sleep.
    pub fn woke(&mut self, now: Instant) {
        self.counted.idle_ns += now.0.saturating_sub(self.idle_at.0);
        self.cells.woke(self.counted);
        self.wait.woke(now);
    }
}

/// Returns the queueing time in nanoseconds, the second number of the file.
fn queued_ns(scheduling: &File) -> Option<u64> {
    let mut text = [0; 80];
    let length = scheduling.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_long_a_thread_has_waited_to_run() {
        let Ok(file) = File::open(SCHEDULING) else {
            return crate::skipped::skipped("this kernel has no schedstat");
        };
        assert!(queued_ns(&file).is_some());
    }
}
