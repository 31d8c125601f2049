//! Counters that spinning is judged by.

/// Octets of data that cost about as much as a request.
const WORK_BYTES: u64 = 16 << 10;

/// Counters of a thread and its reactor. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Nanoseconds for which it could have run, and another thread had the core.
    pub queued_ns: u64,
    /// Requests that were handled.
    pub requests: u64,
    /// Octets of their data.
    pub data_bytes: u64,
}

impl Reading {
    pub(super) fn since(&self, begin: &Reading) -> Reading {
        Reading {
            cpu_ns: self.cpu_ns.saturating_sub(begin.cpu_ns),
            queued_ns: self.queued_ns.saturating_sub(begin.queued_ns),
            requests: self.requests.saturating_sub(begin.requests),
            data_bytes: self.data_bytes.saturating_sub(begin.data_bytes),
        }
    }

    pub(super) fn add(&mut self, more: &Reading) {
        self.cpu_ns += more.cpu_ns;
        self.queued_ns += more.queued_ns;
        self.requests += more.requests;
        self.data_bytes += more.data_bytes;
    }

    pub(super) fn work(&self) -> f64 {
        self.requests as f64 + self.data_bytes as f64 / WORK_BYTES as f64
    }

    /// CPU time for a piece of work, if there was any.
    pub(super) fn cost(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.cpu_ns as f64 / self.work())
    }
}
