//! How much of the machine something else used during a run: a table measured on a busy machine says
//! little, so it is shown.

use crate::cores::Clocks;
use crate::measure::Measure;
use anyhow::Context;
use roadtrain_reactor::tuning;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// More than this used by others spoils a run.
const FOREIGN_CORES_MAX: f64 = 0.1;

/// Runs until nothing else disturbs, or `retries` are used up: then the least disturbed run counts.
pub(crate) fn quiet(
    retries: usize,
    run: impl Fn() -> anyhow::Result<Measure>,
) -> anyhow::Result<Measure> {
    let mut best: Option<Measure> = None;
    for _ in 0..=retries {
        let watch = NoiseWatch::start();
        let mut measure = run()?;
        measure.foreign_cores = watch.foreign_cores();
        if best.as_ref().is_none_or(|b| measure.foreign_cores < b.foreign_cores) {
            best = Some(measure);
        }
        if best.as_ref().is_some_and(|b| b.foreign_cores <= FOREIGN_CORES_MAX) {
            break;
        }
    }
    best.context("no run")
}

/// Runs while a thread computes on each of the two cores.
pub(crate) fn beside_neighbours<T>(run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for core in [0, 1] {
            let is_over = &is_over;
            scope.spawn(move || {
                let _ = tuning::pin_to_core(core);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = run();
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Waits until nothing else runs on the machine, at most for `limit`; gives what others used at last, in cores.
pub(crate) fn settle(limit: Duration) -> f64 {
    const POLL: Duration = Duration::from_millis(300);
    let until = Instant::now() + limit;
    loop {
        let watch = NoiseWatch::start();
        thread::sleep(POLL);
        let foreign = watch.foreign_cores();
        if foreign <= FOREIGN_CORES_MAX || Instant::now() >= until {
            return foreign;
        }
    }
}

/// The state at the start of a run.
struct NoiseWatch {
    began: Instant,
    busy_seconds: f64,
    own_seconds: f64,
}

impl NoiseWatch {
    /// Starts watching.
    fn start() -> Self {
        Self {
            began: Instant::now(),
            busy_seconds: Clocks::now().busy_seconds,
            own_seconds: own_seconds(),
        }
    }

    /// Cores used since by other than this process and the children it waited for; the hypervisor's
    /// share ("steal") counts.
    fn foreign_cores(&self) -> f64 {
        let busy = Clocks::now().busy_seconds - self.busy_seconds;
        let own = own_seconds() - self.own_seconds;
        ((busy - own) / self.began.elapsed().as_secs_f64()).max(0.0)
    }
}

/// CPU time of this process and of its ended children.
fn own_seconds() -> f64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].into_iter().map(usage_seconds).sum()
}

fn usage_seconds(who: libc::c_int) -> f64 {
    // SAFETY: an all-zero rusage is valid, and the call only fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
