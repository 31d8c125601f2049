//! How a reactor decides to spin or to sleep: it asks the machines of `spin`, and reads the thread's counters for them.

use crate::metrics::{Batching, Counted, ReactorCells};
use crate::spin::{Adaptive, Meter, Reading, Spinner, Waiting};
use crate::tuning::thread_cpu_ns;
use roadtrain_proto::costs::{Costs, Pace, Used};
use roadtrain_proto::time::Instant;
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
    /// What its machine costs it.
    costs: Costs,
    /// Time of waiting, and where it is shown.
    counted: Counted,
    cells: Arc<ReactorCells>,
    /// When it was asked last whether to spin.
    asked: Instant,
    /// Since when it looks in vain.
    spins_since: Option<Instant>,
    how: How,
    scheduling: Option<File>,
}

enum How {
    Fixed(Spinner),
    Learning { adaptive: Box<Adaptive>, meter: Arc<Meter> },
}

impl Waits {
    /// On the thread that waits.
    pub fn new(
        waiting: Waiting,
        (meter, cells): (Arc<Meter>, Arc<ReactorCells>),
        is_host: bool,
    ) -> Self {
        cells.begin();
        let how = match waiting {
            Waiting::Adaptive => How::Learning { adaptive: Box::default(), meter },
            fixed => How::Fixed(Spinner::new(fixed)),
        };
        let scheduling = File::open(SCHEDULING).ok();
        Waits {
            sleeps: 0,
            costs: Costs::new(is_host),
            counted: Counted::default(),
            cells,
            asked: Instant::default(),
            spins_since: None,
            how,
            scheduling,
        }
    }

    /// Something was there to do.
    #[inline]
    pub fn worked(&mut self) {
        self.costs.idle.works();
        self.spins_since = None;
        match &mut self.how {
            How::Fixed(spinner) => spinner.worked(),
            How::Learning { adaptive, .. } => adaptive.worked(&self.costs.sleep),
        }
    }

    /// Whether it matters to [`spin_again`](Self::spin_again) when something is to be done.
    #[inline]
    pub fn asks_when_due(&self) -> bool {
        matches!(&self.how, How::Learning { adaptive, .. } if !adaptive.is_spinning())
    }

    /// Nothing is there to do: whether to look again at once instead of sleeping. `expects`: an answer is under way;
    /// `due`: something is to be done then; `is_cheap`: looking is.
    pub fn spin_again(
        &mut self,
        now: Instant,
        expects: bool,
        due: Option<Instant>,
        is_cheap: bool,
    ) -> bool {
        self.costs.idle.waits(now);
        if let Some(since) = self.spins_since.take() {
            self.counted.spin_ns += now.0.saturating_sub(since.0);
        }
        self.asked = now;
        let spins = match &mut self.how {
            How::Fixed(spinner) => spinner.spin_again(now, expects),
            How::Learning { adaptive, .. } => {
                let is_awake = self.costs.awake.pace() == Pace::Awake;
                is_cheap && adaptive.spin_again(now, expects, due, &self.costs.sleep, is_awake)
            }
        };
        if spins {
            self.spins_since = Some(now);
        }
        spins
    }

    /// A turn is over: others see what has come of waiting.
    #[inline]
    pub fn show(&self) -> &ReactorCells {
        self.cells.turns.add(1);
        self.cells.waited(self.counted);
        &self.cells
    }

    /// Sleeps.
    pub fn sleep(&mut self, sleep: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.sleeps += 1;
        self.counted.sleeps = self.sleeps;
        self.cells.sleeps(self.asked);
        self.costs.awake.slept();
        let learns = matches!(self.how, How::Learning { .. });
        if !learns || !self.costs.sleep.samples_next() {
            return sleep();
        }
        let before = thread_cpu_ns();
        sleep()?;
        self.costs.sleep.sampled(Duration::from_nanos(thread_cpu_ns().saturating_sub(before)));
        Ok(())
    }

    /// What this end does with few requests in flight.
    #[inline]
    pub fn pace(&self) -> Pace {
        self.costs.awake.pace()
    }

    /// A turn had something to do. `few`: so little is in flight that it matters whether this end stays awake;
    /// `requests`: that have ended since it began.
    #[inline]
    pub fn turned(&mut self, now: Instant, few: bool, requests: impl FnOnce() -> u64) {
        let sleeps =
            matches!(&self.how, How::Fixed(spinner) if spinner.waiting() == Waiting::Sleep);
        if !sleeps && self.costs.awake.works(few) {
            let (cpu_ns, queued_ns) = self.scheduled();
            let used = Used { at: now, cpu_ns, queued_ns, requests: requests() };
            self.costs.awake.review(used);
        }
    }

    /// Time for which it has spun by its own decision: no work, though the core was busy.
    pub fn spun(&self) -> Duration {
        match &self.how {
            How::Fixed(_) => Duration::ZERO,
            How::Learning { adaptive, .. } => adaptive.spun(),
        }
    }

    /// For what share of its time it has waited of late, in thousandths, if it is time to look.
    pub fn idle(&mut self, now: Instant) -> Option<u32> {
        if !self.costs.idle.is_due(now) {
            return None;
        }
        let queued_ns = self.scheduling.as_ref().and_then(queued_ns);
        Some(self.costs.idle.read(now, queued_ns))
    }

    /// For how many nanoseconds the thread has run, and could have run while another one had the core.
    fn scheduled(&self) -> (u64, u64) {
        let queued_ns = self.scheduling.as_ref().and_then(queued_ns).unwrap_or_default();
        (thread_cpu_ns(), queued_ns)
    }

    /// A sleep is over.
    pub fn woke(&mut self, now: Instant) {
        self.costs.idle.woke(now);
        self.counted.idle_ns += now.0.saturating_sub(self.asked.0);
        self.cells.woke(self.counted);
        if let How::Learning { adaptive, .. } = &mut self.how {
            adaptive.woke(now, &self.costs.sleep);
        }
    }

    /// Whether it is time for [`review`](Self::review).
    #[inline]
    pub fn wants_reading(&self) -> bool {
        matches!(&self.how, How::Learning { adaptive, .. } if adaptive.wants_reading())
    }

    /// Lanes have done so much since it began.
    pub fn review(&mut self, lanes: &Batching) {
        let (cpu_ns, queued_ns) = self.scheduled();
        let How::Learning { adaptive, meter } = &mut self.how else { return };
        adaptive.review(Reading {
            cpu_ns,
            queued_ns,
            requests: lanes.requests,
            data_bytes: lanes.data_bytes,
        });
        meter.write(&adaptive.learnt(&self.costs.sleep));
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
