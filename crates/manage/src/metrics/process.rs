//! The kernel's counters of this process, under the names that every exporter uses.

use std::fs;

/// Clock ticks per second, as the kernel reports them to programs.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

/// Counters of a process at one time.
#[derive(Debug, Default)]
pub(super) struct ProcessCounters {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
    pub(super) start_seconds: f64,
}

impl ProcessCounters {
    /// Reads the counters of this process. Those that the kernel does not report are 0.
    pub(super) fn now() -> ProcessCounters {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name, in brackets, may hold anything.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<u64> =
            fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
        ProcessCounters {
            cpu_seconds: seconds(field(14) + field(15)),
            threads: field(20),
            start_seconds: boot_seconds() + seconds(field(22)),
            virtual_bytes: field(23),
            resident_bytes: field(24) * PAGE_BYTES,
            open_fds: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            max_fds: max_fds(),
        }
    }
}

/// Returns the boot time of the machine in seconds since 1970.
fn boot_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or_default()
}

fn max_fds() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let process = ProcessCounters::now();
        assert!(process.threads >= 1 && process.open_fds > 2, "{process:?}");
        assert!(process.resident_bytes > 100_000, "{process:?}");
        assert!(process.virtual_bytes >= process.resident_bytes, "{process:?}");
        assert!(process.max_fds >= process.open_fds, "{process:?}");
        assert!(process.start_seconds > 1.5e9, "{process:?}");
    }
}
