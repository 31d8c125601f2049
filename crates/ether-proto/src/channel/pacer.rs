//! Departure times of frames, so that a window does not leave as one burst.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Most bytes that may leave at once.
const BURST_BYTES: u64 = 16 << 10;
/// Shortest burst, in time: finer timers cost more than they gain.
const BURST_TIME: Duration = Duration::from_micros(250);
/// Duration of pacing after a loss. Without losses, no queue on the path is full.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Pacer {
    /// Departure time of the last frame at an even pace.
    even_at: Instant,
    /// Earliest departure of the next frame.
    ready_at: Instant,
    /// Nanoseconds for 1024 bytes; 0 without pacing.
    ns_per_kib: u64,
}

impl Pacer {
    /// Sets the pace to 1.25 windows of `window_bytes` in a round trip, if the window was cut recently.
    pub(super) fn set(
        &mut self,
        now: Instant,
        window_bytes: u64,
        rtt: Duration,
        cut_at: Option<Instant>,
    ) {
        let is_paced = cut_at.is_some_and(|at| now.since(at) < LINGER);
        let ns = rtt.as_nanos() as u64;
        self.ns_per_kib = if is_paced { ns * 1024 * 4 / (5 * window_bytes.max(1)) } else { 0 };
    }

    /// Earliest departure of the next frame.
    pub(super) fn ready_at(&self) -> Instant {
        if self.ns_per_kib == 0 { Instant(0) } else { self.ready_at }
    }

    pub(super) fn sent(&mut self, now: Instant, bytes: u32) {
        if self.ns_per_kib == 0 {
            return;
        }
        let burst = (BURST_BYTES * self.ns_per_kib / 1024).max(BURST_TIME.as_nanos() as u64);
        let from = self.even_at.max(Instant(now.0.saturating_sub(burst)));
        self.even_at = Instant(from.0 + u64::from(bytes) * self.ns_per_kib / 1024);
        // A held frame waits for a quarter of a burst, so that not every frame needs a timer.
        let pause = if self.even_at > now { burst / 4 } else { 0 };
        self.ready_at = Instant(self.even_at.0 + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_small_bursts_at_the_pace() {
        let mut pacer = Pacer::default();
        let start = Instant(1_000_000_000);
        let rtt = Duration::from_millis(4);
        pacer.set(start, 250_000, rtt, None);
        assert_eq!(pacer.ready_at(), Instant(0));
        pacer.set(start, 250_000, rtt, Some(start));
        let end = start + Duration::from_millis(400);
        let (mut now, mut bytes, mut timers) = (start, 0, 0);
        while now < end {
            while pacer.ready_at() <= now {
                pacer.sent(now, 9000);
                bytes += 9000;
            }
            now = pacer.ready_at();
            timers += 1;
        }
        // 100 windows and a quarter more, and the first burst.
        assert!((31_200_000..31_300_000).contains(&bytes), "{bytes}");
        assert!(timers < 3500, "{timers}");
        pacer.set(start + LINGER, 250_000, rtt, Some(start));
        assert_eq!(pacer.ready_at(), Instant(0));
    }
}
