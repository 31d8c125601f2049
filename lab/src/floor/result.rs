//! What a run of the floor reports.

use super::args::{Args, Direction};
use super::cipher::Sealing;
use super::target::Counts;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What a measured run gave.
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) host: Sample,
    pub(crate) target: Sample,
    /// The host's counters, warm-up included.
    pub(crate) counts: Counts,
}

/// Reads a thread's cost, from any thread of this process.
pub(crate) struct Probe {
    clock: libc::clockid_t,
    tid: libc::pid_t,
}

/// A thread's cost at one time, or between two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) cpu_seconds: f64,
    pub(crate) context_switches: u64,
}

impl Probe {
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
    pub(crate) fn sample(&self) -> Sample {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer; an ended thread's clock is an error.
        if unsafe { libc::clock_gettime(self.clock, &mut time) } != 0 {
            return Sample::default();
        }
        let status = format!("/proc/self/task/{}/status", self.tid);
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let switches =
            status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        Sample {
            cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            context_switches: switches.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum(),
        }
    }
}

impl Sample {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
        }
    }
}

/// Round trip times in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LatencyUs {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// What a run of the floor measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FloorResult {
    pub(crate) rw: Direction,
    pub(crate) bs: usize,
    pub(crate) depth: usize,
    pub(crate) gather: usize,
    pub(crate) seconds: f64,
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) latency_us: LatencyUs,
    pub(crate) host_cpu_seconds: f64,
    pub(crate) target_cpu_seconds: f64,
    pub(crate) cpu_us_per_io: f64,
    pub(crate) cores: f64,
    /// Sends per I/O: the host's, the target's.
    pub(crate) sends_per_io: f64,
    pub(crate) target_sends_per_io: f64,
    pub(crate) requests_per_send: f64,
    pub(crate) answers_per_send: f64,
    pub(crate) bytes_per_send: f64,
    pub(crate) target_bytes_per_send: f64,
    /// Receives that moved bytes, system calls and context switches of both ends together.
    pub(crate) receives_per_io: f64,
    pub(crate) syscalls_per_io: f64,
    pub(crate) context_switches_per_io: f64,
    /// What sealing all of it would add, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sealing: Option<Sealing>,
}

impl FloorResult {
    pub(crate) fn new(args: &Args, outcome: &Outcome, target: &Counts) -> Self {
        let host = &outcome.counts;
        let seconds = outcome.elapsed.as_secs_f64();
        let requests = outcome.requests.max(1) as f64;
        let cpu_seconds = outcome.host.cpu_seconds + outcome.target.cpu_seconds;
        let switches = outcome.host.context_switches + outcome.target.context_switches;
        Self {
            rw: args.rw,
            bs: args.bs,
            depth: args.depth,
            gather: args.gather,
            seconds,
            iops: requests / seconds,
            bytes_per_second: requests * args.bs as f64 / seconds,
            latency_us: LatencyUs::of(&outcome.latency_ns),
            host_cpu_seconds: outcome.host.cpu_seconds,
            target_cpu_seconds: outcome.target.cpu_seconds,
            cpu_us_per_io: cpu_seconds * 1e6 / requests,
            cores: cpu_seconds / seconds,
            sends_per_io: ratio(host.sends, host.requests),
            target_sends_per_io: ratio(target.sends, target.requests),
            requests_per_send: ratio(host.requests, host.sends),
            answers_per_send: ratio(target.requests, target.sends),
            bytes_per_send: ratio(host.bytes_sent, host.sends),
            target_bytes_per_send: ratio(target.bytes_sent, target.sends),
            receives_per_io: ratio(host.receives, host.requests)
                + ratio(target.receives, target.requests),
            syscalls_per_io: ratio(host.syscalls, host.requests)
                + ratio(target.syscalls, target.requests),
            context_switches_per_io: switches as f64 / requests,
            sealing: None,
        }
    }
}

fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

impl LatencyUs {
    /// Of round trips in nanoseconds.
    pub(crate) fn of(latency_ns: &Histogram<u64>) -> Self {
        let at = |q: f64| latency_ns.value_at_quantile(q) as f64 / 1e3;
        Self { mean: latency_ns.mean() / 1e3, p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

impl fmt::Display for FloorResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let l = &self.latency_us;
        writeln!(
            f,
            "floor {:?} {} B depth {} gather {}: {:.0} kIOPS, {:.2} GB/s, {:.2} CPU-us/IO (host {:.2}, \
             target {:.2} cores)",
            self.rw,
            self.bs,
            self.depth,
            self.gather,
            self.iops / 1e3,
            self.bytes_per_second / 1e9,
            self.cpu_us_per_io,
            self.host_cpu_seconds / self.seconds,
            self.target_cpu_seconds / self.seconds,
        )?;
        writeln!(
            f,
            "  latency us: mean {:.1} p50 {:.1} p99 {:.1} p999 {:.1}; requests/send {:.1}, \
             answers/send {:.1}, syscalls/IO {:.3}, switches/IO {:.4}",
            l.mean,
            l.p50,
            l.p99,
            l.p999,
            self.requests_per_send,
            self.answers_per_send,
            self.syscalls_per_io,
            self.context_switches_per_io,
        )?;
        let Some(Sealing { cipher, host_us, target_us }) = self.sealing else { return Ok(()) };
        writeln!(f, "  {cipher:?} alone, CPU-us/IO: host {host_us:.2}, target {target_us:.2}")
    }
}
