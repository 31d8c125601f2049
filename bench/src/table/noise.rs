//! How much of the machine something else used during a run: a table measured on a busy machine says
//! little, so it is shown.

use std::fs;
use std::mem;
use std::time::Instant;

/// The state at the start of a run.
pub(super) struct Watch {
    began: Instant,
    busy_seconds: f64,
    own_seconds: f64,
}

impl Watch {
    /// Starts watching.
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), busy_seconds: busy_seconds(), own_seconds: own_seconds() }
    }

    /// Cores used since by other than this process and the children it waited for; the hypervisor's
    /// share ("steal") counts.
    pub(super) fn foreign_cores(&self) -> f64 {
        let busy = busy_seconds() - self.busy_seconds;
        let own = own_seconds() - self.own_seconds;
        ((busy - own) / self.began.elapsed().as_secs_f64()).max(0.0)
    }
}

/// CPU time of everything on the machine.
fn busy_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1))
        .filter_map(|n| n.parse().ok())
        .collect();
    // user nice system (idle iowait) irq softirq steal
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&i| ticks.get(i)).sum();
    busy / super::procfs::ticks_per_second()
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
