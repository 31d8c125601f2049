//! Counters of a reactor.

use super::cells::Counter;
use super::snapshot::{Batching, ReactorSample};
use roadtrain_proto::time::Instant;
use roadtrain_system::clock;
use std::fs;
use std::sync::OnceLock;

/// Size classes of caravans: 1, 2, up to 4, and so on to 1024 requests, and larger ones.
const SIZES: usize = 12;
/// Clock ticks of the kernel in a second, as it reports them to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counters of a reactor, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ReactorCells {
    thread: OnceLock<(u32, Instant)>,
    /// Turns of the loop.
    pub turns: Counter,
    /// Current number of lanes.
    pub lanes: Counter,
    /// Bytes of buffers in use.
    pub buffer_bytes: Counter,
    /// Limit of the bytes of buffers.
    pub buffer_limit_bytes: Counter,
    /// Number of times that a lane waited for a buffer.
    pub buffer_waits: Counter,
    /// Send calls of the Ethernet ports that the lanes share.
    pub port_sends: Counter,
    /// Received data with a wrong digest.
    pub digest_errors: Counter,
    sleeps: Counter,
    idle_ns: Counter,
    spin_ns: Counter,
    /// Start of the current sleep; 0: awake.
    asleep_since: Counter,
    caravans: [Counter; SIZES],
}

/// Totals of a reactor's waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTotals {
    /// Number of sleeps.
    pub sleeps: u64,
    /// Nanoseconds asleep.
    pub idle_ns: u64,
    /// Nanoseconds of polling without work.
    pub spin_ns: u64,
}

impl ReactorCells {
    /// Registers the calling thread as the reactor's.
    #[inline]
    pub fn begin(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = self.thread.set((thread.unsigned_abs(), clock::now()));
    }

    /// Counts a caravan with that many requests.
    #[inline]
    pub fn caravan(&self, requests: u64) {
        let size = (u64::BITS - requests.saturating_sub(1).leading_zeros()) as usize;
        self.caravans[size.min(SIZES - 1)].add(1);
    }

    /// Publishes the totals of the waits.
    #[inline]
    pub fn waited(&self, counted: WaitTotals) {
        self.sleeps.set(counted.sleeps);
        self.idle_ns.set(counted.idle_ns);
        self.spin_ns.set(counted.spin_ns);
    }

    /// Records the start of a sleep.
    #[inline]
    pub fn sleeps(&self, now: Instant) {
        self.asleep_since.set(now.0);
    }

    /// Records the end of a sleep.
    #[inline]
    pub fn woke(&self, counted: WaitTotals) {
        self.waited(counted);
        self.asleep_since.set(0);
    }

    /// Returns a sample of the reactor's own counters. The caller adds those of the core. `lanes` is the sum of the
    /// lanes' counters.
    pub fn sample(&self, reactor: usize, lanes: Batching) -> ReactorSample {
        let Some(&(thread, begun)) = self.thread.get() else {
            return ReactorSample { reactor, ..ReactorSample::default() };
        };
        let (now, asleep) = (clock::now(), self.asleep_since.get());
        let sleeps_for = if asleep == 0 { 0 } else { now.0.saturating_sub(asleep) };
        let seconds = |ns: u64| ns as f64 / 1e9;
        let (idle_ns, spin_ns) = (self.idle_ns.get() + sleeps_for, self.spin_ns.get());
        let all_ns = now.since(begun).as_nanos() as u64;
        let (user_seconds, system_seconds, context_switches) = thread_usage(thread);
        ReactorSample {
            reactor,
            thread,
            lane_count: self.lanes.get(),
            buffer_bytes: self.buffer_bytes.get(),
            buffer_limit_bytes: self.buffer_limit_bytes.get(),
            buffer_waits: self.buffer_waits.get(),
            turns: self.turns.get(),
            waits: self.sleeps.get(),
            busy_seconds: seconds(all_ns.saturating_sub(idle_ns + spin_ns)),
            idle_seconds: seconds(idle_ns),
            spin_seconds: seconds(spin_ns),
            user_seconds,
            system_seconds,
            context_switches,
            batching: Batching { sends: lanes.sends + self.port_sends.get(), ..lanes },
            caravan_sizes: self.caravans.iter().map(Counter::get).collect(),
            ..ReactorSample::default()
        }
    }
}

/// Returns a thread's CPU time in user space and in the kernel, and its context switches; zeroes when the thread has
/// ended.
pub(crate) fn thread_usage(thread: u32) -> (f64, f64, u64) {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
    let (stat, status) = (read("stat").unwrap_or_default(), read("status").unwrap_or_default());
    // The name, in brackets, may hold any character.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut ticks = fields.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    let mut seconds = || ticks.next().unwrap_or_default() as f64 / TICKS_PER_SECOND;
    let (user, system) = (seconds(), seconds());
    let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
    let counts = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    (user, system, counts.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caravans_are_counted_by_the_power_of_two_that_holds_them() {
        let cells = ReactorCells::default();
        cells.begin();
        for requests in [1, 2, 3, 4, 5, 1024, 1025, 100_000] {
            cells.caravan(requests);
        }
        let sizes = cells.sample(0, Batching::default()).caravan_sizes;
        assert_eq!(sizes, [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn time_is_busy_idle_or_spinning() {
        let cells = ReactorCells::default();
        assert_eq!(
            cells.sample(3, Batching::default()),
            ReactorSample { reactor: 3, ..ReactorSample::default() }
        );
        cells.begin();
        let counted = WaitTotals { sleeps: 2, idle_ns: 1_000_000, spin_ns: 500 };
        cells.waited(counted);
        cells.sleeps(clock::now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let sample = cells.sample(1, Batching::default());
        assert!(sample.idle_seconds >= 0.021, "{sample:?}");
        assert!(sample.busy_seconds < 0.02, "{sample:?}");
        cells.woke(counted);
        let sample = cells.sample(1, Batching::default());
        assert_eq!((sample.waits, sample.idle_seconds), (2, 1e-3));
        assert!(sample.busy_seconds >= 0.01, "{sample:?}");
        assert_eq!(sample.thread, rustix::thread::gettid().as_raw_nonzero().get() as u32);
    }

    #[test]
    fn a_threads_usage_is_the_kernels() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let until = crate::tuning::thread_cpu_ns() + 60_000_000;
        while crate::tuning::thread_cpu_ns() < until {}
        let (user, system, _) = thread_usage(thread);
        assert!(user + system >= 0.03, "{user} {system}");
        assert_eq!(thread_usage(u32::MAX), (0.0, 0.0, 0));
    }
}
