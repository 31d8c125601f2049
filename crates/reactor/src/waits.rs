//! A reactor's waits: calls the machine that decides whether to poll again or to sleep, and reads the thread's counters.

mod meter;

pub use meter::Meter;
pub use roadtrain_proto::wait::{WaitState, Waiting};

use crate::metrics::{Counted, ReactorCells};
use crate::tuning::thread_cpu_ns;
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::{ThreadTimes, Wait};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// How long this thread has run and has waited to run, as the kernel counts.
const SCHEDULING: &str = "/proc/thread-self/schedstat";

/// A reactor's waits.
pub struct Waits {
    /// How often it has slept.
    pub sleeps: u64,
    wait: Wait,
    /// Where it is shown.
    meter: Arc<Meter>,
    cells: Arc<ReactorCells>,
    counted: Counted,
    /// When it last had nothing to do.
    idle_at: Instant,
    /// Since when it polls in vain.
    polls_since: Option<Instant>,
    scheduling: Option<File>,
}

impl Waits {
    /// On the thread that waits.
    pub fn new(waiting: Waiting, (meter, cells): (Arc<Meter>, Arc<ReactorCells>)) -> Self {
        cells.begin();
        Waits {
            sleeps: 0,
            wait: Wait::new(waiting),
            meter,
            cells,
            counted: Counted::default(),
            idle_at: Instant::default(),
            polls_since: None,
            scheduling: File::open(SCHEDULING).ok(),
        }
    }

    /// Something was there to do.
    #[inline]
    pub fn worked(&mut self) {
        self.polls_since = None;
        self.wait.worked();
    }

    /// True while it polls again in waits that begin.
    #[inline]
    pub fn polls(&self) -> bool {
        self.wait.polls()
    }

    /// True if it matters to [`poll_again`](Self::poll_again) when something is to be done.
    #[inline]
    pub fn needs_due(&self) -> bool {
        !self.wait.is_polling()
    }

    /// Nothing is there to do: `true` to poll again at once, `false` to sleep. `expects`: something may come soon; at
    /// `due` something is to be done.
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

    /// A turn is over: shows how it waited.
    #[inline]
    pub fn show(&self) -> &ReactorCells {
        self.cells.turns.add(1);
        self.cells.waited(self.counted);
        &self.cells
    }

    /// Sleeps.
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

    /// Time that it has polled in vain since it began: no work, though the core was busy.
    pub fn polled(&self) -> Duration {
        self.wait.polled()
    }

    /// A sleep is over.
    pub fn woke(&mut self, now: Instant) {
        self.counted.idle_ns += now.0.saturating_sub(self.idle_at.0);
        self.cells.woke(self.counted);
        self.wait.woke(now);
    }
}

/// The second of its numbers.
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
