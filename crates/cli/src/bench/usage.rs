//! What a process has used: CPU time and context switches.

use std::fs;
use std::io;
use std::time::Duration;

/// Totals since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// CPU time, user and system, to the nanosecond.
    pub cpu: Duration,
    /// Context switches of the threads that live, voluntary or not.
    pub switches: u64,
}

impl Usage {
    /// Of the process `pid`, one of ours.
    ///
    /// # Errors
    /// It has gone.
    pub(super) fn of(pid: u32) -> io::Result<Usage> {
        // The clock is read last, or first, right at the edge of the measured time; see `since`.
        let switches = switches(pid)?;
        Ok(Usage { cpu: cpu_time(pid)?, switches })
    }

    /// What was used since `earlier`.
    #[must_use]
    pub(super) fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is a valid place for a clock's number.
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

fn switches(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        let number = |line: &str| line.rsplit('\t').next()?.trim().parse::<u64>().ok();
        sum += counts.filter_map(number).sum::<u64>();
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let before = Usage::of(std::process::id()).unwrap();
        let mut x = 1u64;
        while Usage::of(std::process::id()).unwrap().since(before).cpu < Duration::from_millis(5) {
            x = std::hint::black_box(super::super::rng::mix(x));
        }
        let after = Usage::of(std::process::id()).unwrap();
        assert!(after.since(before).cpu >= Duration::from_millis(5));
        assert_eq!(before.since(after), Usage::default(), "never negative");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Usage::of(u32::MAX >> 1).is_err());
    }
}
