//! Readings of /proc about a process.

use anyhow::Context;
use std::fs;

/// Clock ticks of /proc/stat a second.
pub(crate) fn ticks_per_second() -> f64 {
    // SAFETY: no pointers are involved.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as f64
}

/// CPU time of all threads of a process, in seconds, to the nanosecond.
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    schedstat_seconds(pid, 0)
}

/// How long all threads of a process were ready to run while others had their cores, in seconds.
pub(crate) fn ready_seconds(pid: u32) -> anyhow::Result<f64> {
    schedstat_seconds(pid, 1)
}

/// Sums a field of /proc/PID/task/*/schedstat that counts nanoseconds.
fn schedstat_seconds(pid: u32, field: usize) -> anyhow::Result<f64> {
    let mut ns = 0u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("the process has ended")? {
        let schedstat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let value = schedstat.split_whitespace().nth(field).unwrap_or("0");
        ns += value.parse::<u64>().unwrap_or(0);
    }
    Ok(ns as f64 / 1e9)
}

/// CPU time of a process in user space and in the kernel, in seconds.
pub(crate) fn user_and_kernel_seconds(pid: u32) -> anyhow::Result<[f64; 2]> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process has ended")?;
    // Its name, in parentheses, may contain anything.
    let rest = stat.rsplit_once(')').context("no name")?.1;
    let ticks =
        |place: usize| rest.split_whitespace().nth(place).and_then(|n| n.parse::<f64>().ok());
    Ok([11, 12].map(|place| ticks(place).unwrap_or(0.0) / ticks_per_second()))
}

/// Voluntary context switches of all threads of a process that live: each is a wait, and a wake-up.
pub(crate) fn wake_ups(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("the process has ended")? {
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).expect("alive") > 0);
        assert!(cpu_seconds(pid).expect("alive") > 0.0);
        assert!(cpu_seconds(u32::MAX).is_err());
        assert!(ready_seconds(pid).expect("alive") >= 0.0);
        assert!(ready_seconds(u32::MAX).is_err());
        let spent = || -> f64 { user_and_kernel_seconds(pid).expect("alive").iter().sum() };
        let before = spent();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while spent() <= before {
            assert!(std::time::Instant::now() < end, "reading files for a minute takes CPU time");
        }
        let before = wake_ups(pid).expect("alive");
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(wake_ups(pid).expect("alive") > before);
        assert!(wake_ups(u32::MAX).is_err());
    }
}
