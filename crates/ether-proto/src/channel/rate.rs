//! Transmission time of a byte on the link, for the choice between links.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Time for 1 KiB at 100 Gbit/s: assumed for a link on which no queue was seen.
const NS_PER_KIB_MIN: u64 = 82;
/// Queueing delay that proves a queue, beyond a quarter of the minimum round trip.
const QUEUE_MIN: Duration = Duration::from_micros(50);

pub(super) struct Rate {
    ns_per_kib: u64,
    round_from: Instant,
    bytes: u64,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Rate { ns_per_kib: 0, round_from: now, bytes: 0 }
    }

    pub(super) fn add_acknowledged(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Ends a round trip. The received bytes measure the link's rate only while frames queue.
    pub(super) fn end_round(&mut self, now: Instant, shortest: Duration, minimum: Duration) {
        let took = now.since(self.round_from).as_nanos() as u64;
        let sample = took.saturating_mul(1024) / self.bytes.max(1);
        let is_queue = shortest > minimum + minimum / 4 + QUEUE_MIN;
        self.ns_per_kib = match (is_queue, self.ns_per_kib) {
            (false, before) => before - before / 4,
            (true, 0) => sample,
            (true, before) => (before * 3).saturating_add(sample) / 4,
        };
        (self.round_from, self.bytes) = (now, 0);
    }

    /// Returns the nanoseconds for `bytes` bytes.
    pub(super) fn time_ns(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.ns_per_kib.max(NS_PER_KIB_MIN)) / 1024
    }
}
