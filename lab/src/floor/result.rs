//! Figures of a run of the floor.

use super::args::FloorArgs;
use super::target::FloorCounts;
use crate::measure::Measure;
use crate::page::{optional, pair};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Counts of a measured run.
pub(crate) struct FloorOutcome {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) host: ThreadUsage,
    pub(crate) target: ThreadUsage,
    /// The host's counters, warm-up included.
    pub(crate) counts: FloorCounts,
}

/// Reads a thread's cost, from any thread of this process.
pub(crate) struct ThreadUsageProbe {
    clock: libc::clockid_t,
    tid: libc::pid_t,
}

/// A thread's cost at one time, or between two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadUsage {
    pub(crate) cpu_seconds: f64,
    pub(crate) context_switches: u64,
}

impl ThreadUsageProbe {
    /// Watches the calling thread.
    pub(crate) fn current() -> Self {
        let mut clock = 0;
        // SAFETY: the calling thread exists, and `clock` is a valid place for the answer.
        let rc = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        assert_eq!(rc, 0, "every thread of Linux has a clock");
        // SAFETY: no arguments, cannot fail.
        Self { clock, tid: unsafe { libc::gettid() } }
    }

    /// The thread's cost so far; all zero once it has ended.
    pub(crate) fn sample(&self) -> ThreadUsage {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer; an ended thread's clock is an error.
        if unsafe { libc::clock_gettime(self.clock, &mut time) } != 0 {
            return ThreadUsage::default();
        }
        let status = format!("/proc/self/task/{}/status", self.tid);
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let switches =
            status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        ThreadUsage {
            cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            context_switches: switches.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum(),
        }
    }
}

impl ThreadUsage {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
        }
    }
}

impl FloorOutcome {
    /// The figures of a run.
    pub(crate) fn measure(&self, args: &FloorArgs, target: &FloorCounts) -> Measure {
        let host = &self.counts;
        let requests = self.requests.max(1) as f64;
        let iops = requests / self.elapsed.as_secs_f64();
        let switches = self.host.context_switches + self.target.context_switches;
        let per_io = |sample: &ThreadUsage| Some(sample.cpu_seconds * 1e6 / requests);
        Measure {
            iops,
            bytes_per_second: iops * args.bs as f64,
            host_cpu_us_per_io: per_io(&self.host),
            target_cpu_us_per_io: per_io(&self.target),
            requests_per_caravan: Some(ratio(host.requests, host.sends)),
            target_requests_per_caravan: Some(ratio(target.requests, target.sends)),
            bytes_per_send: Some(ratio(host.bytes_sent, host.sends)),
            target_bytes_per_send: Some(ratio(target.bytes_sent, target.sends)),
            syscalls_per_io: Some(
                ratio(host.syscalls, host.requests) + ratio(target.syscalls, target.requests),
            ),
            context_switches_per_io: Some(switches as f64 / requests),
            ..latencies(&self.latency_ns)
        }
    }
}

fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

/// Round trip times of a histogram of nanoseconds.
pub(crate) fn latencies(latency_ns: &Histogram<u64>) -> Measure {
    let at = |quantile: f64| latency_ns.value_at_quantile(quantile) as f64 / 1e3;
    Measure {
        latency_us_mean: latency_ns.mean() / 1e3,
        latency_us_p50: at(0.5),
        latency_us_p99: at(0.99),
        ..Measure::default()
    }
}

/// Lines for a terminal.
pub(crate) fn text(args: &FloorArgs, m: &Measure) -> String {
    let cores = |us: Option<f64>| us.unwrap_or(0.0) * m.iops / 1e6;
    format!(
        "floor {:?} {} B depth {} gather {}: {:.0} kIOPS, {:.2} GB/s, {} CPU-us/IO (host {:.2}, \
         target {:.2} cores)\n  latency us: mean {:.1} p50 {:.1} p99 {:.1}; requests and answers per send {}, \
         syscalls/IO {}, switches/IO {}\n",
        args.rw,
        args.bs,
        args.depth,
        args.gather,
        m.iops / 1e3,
        m.bytes_per_second / 1e9,
        optional(m.cpu_us_per_io(), 2),
        cores(m.host_cpu_us_per_io),
        cores(m.target_cpu_us_per_io),
        m.latency_us_mean,
        m.latency_us_p50,
        m.latency_us_p99,
        pair(m.requests_per_caravan, m.target_requests_per_caravan, 1),
        optional(m.syscalls_per_io, 3),
        optional(m.context_switches_per_io, 4),
    )
}
