//! Resource usage of a process: CPU time and context switches.

use roadtrain_reactor::metrics::{Batching, ReactorSample};
use std::fs;
use std::io;
use std::time::Duration;

/// Totals since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// CPU time, user and system, to the nanosecond.
    pub cpu: Duration,
    /// Context switches of the live threads because they waited: as many wake-ups.
    pub switches_voluntary: u64,
    /// Context switches because another thread needed the core.
    pub switches_involuntary: u64,
}

/// Usage of a process, and counters of its reactors, since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessWork {
    pub usage: ProcessUsage,
    /// Counters of all lanes.
    pub batching: Batching,
    /// Sleeps of all reactors.
    pub sleeps: u64,
}

impl ProcessWork {
    /// Returns the work of the process `pid`, which belongs to this user, with these reactors.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn of(pid: u32, reactors: Vec<ReactorSample>) -> io::Result<ProcessWork> {
        let batching = reactors.iter().map(|reactor| reactor.batching).sum();
        let sleeps = reactors.iter().map(|reactor| reactor.waits).sum();
        Ok(ProcessWork { usage: ProcessUsage::of(pid)?, batching, sleeps })
    }

    /// Work since `earlier`.
    #[must_use]
    pub(super) fn since(self, earlier: ProcessWork) -> ProcessWork {
        ProcessWork {
            usage: self.usage.since(earlier.usage),
            batching: self.batching - earlier.batching,
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
        }
    }
}

impl ProcessUsage {
    /// Returns the usage of the process `pid`, which belongs to this user.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn of(pid: u32) -> io::Result<ProcessUsage> {
        // The clock is read last, or first, right at the edge of the measured time; see `since`.
        let usage = switches(pid)?;
        Ok(ProcessUsage { cpu: cpu_time(pid)?, ..usage })
    }

    /// Returns the usage since `earlier`.
    #[must_use]
    pub(super) fn since(self, earlier: ProcessUsage) -> ProcessUsage {
        ProcessUsage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
        }
    }

    /// Returns the context switches of both kinds.
    #[must_use]
    pub(super) fn switches(&self) -> u64 {
        self.switches_voluntary + self.switches_involuntary
    }
}

fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is valid memory for a clock ID.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Reads the context switches; CPU time is 0.
fn switches(pid: u32) -> io::Result<ProcessUsage> {
    let mut sum = ProcessUsage::default();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let number = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        sum.switches_voluntary += number("voluntary_ctxt_switches:").unwrap_or(0);
        sum.switches_involuntary += number("nonvoluntary_ctxt_switches:").unwrap_or(0);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let before = ProcessUsage::of(std::process::id()).unwrap();
        let mut x = 1u64;
        while ProcessUsage::of(std::process::id()).unwrap().since(before).cpu
            < Duration::from_millis(5)
        {
            x = std::hint::black_box(super::super::rng::mix(x));
        }
        let after = ProcessUsage::of(std::process::id()).unwrap();
        assert!(after.since(before).cpu >= Duration::from_millis(5));
    }

    #[test]
    fn nothing_is_negative() {
        let cpu = Duration::from_millis(1);
        let more = ProcessUsage { cpu, switches_voluntary: 1, switches_involuntary: 1 };
        assert_eq!(ProcessUsage::default().since(more), ProcessUsage::default());
    }

    #[test]
    fn waiting_is_a_voluntary_switch() {
        let sleep = |_| {
            let before = ProcessUsage::of(std::process::id()).unwrap();
            (0..20).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
            ProcessUsage::of(std::process::id()).unwrap().since(before)
        };
        // Threads of other tests may end meanwhile, with their counts.
        let used = (0..1000).map(sleep).find(|used| used.switches_voluntary >= 20);
        let used = used.expect("each sleep is a switch");
        assert_eq!(used.switches(), used.switches_voluntary + used.switches_involuntary);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(ProcessUsage::of(u32::MAX >> 1).is_err());
    }
}
