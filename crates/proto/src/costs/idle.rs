//! For what share of its time a reactor waits: what is left of its core.

use crate::time::Instant;
use core::time::Duration;

/// A reading is about so long, at least.
const WINDOW: Duration = Duration::from_millis(2);
/// A sleep counts for at most so many times as long as usual: in a longer one something else kept the peer busy.
const OUTLIER: u32 = 4;
/// One sleep's weight in what is usual: a part of that.
const FADING: u32 = 8;
/// Who has waited for its core for such a part of the time has nothing left of it.
const CONTENDED: u64 = 8;

/// Counts sleeps and spins alike: a spin is a wait that burns the core.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleShare {
    begin: Instant,
    /// Time spent waiting since then.
    idle: Duration,
    /// It waits, and did so then.
    waits_at: Option<Instant>,
    usual_sleep: Option<Duration>,
    /// What the last reading was told.
    queued_ns: Option<u64>,
}

impl IdleShare {
    /// There is nothing to do.
    #[inline]
    pub fn waits(&mut self, now: Instant) {
        if let Some(before) = self.waits_at.replace(now) {
            self.idle += now.since(before);
        }
    }

    /// A sleep is over, which began when [`waits`](Self::waits) was last called.
    pub fn woke(&mut self, now: Instant) {
        let Some(before) = self.waits_at.replace(now) else { return };
        let slept = now.since(before);
        let usual = self.usual_sleep.unwrap_or(slept);
        let counted = slept.min(usual * OUTLIER);
        self.usual_sleep = Some(usual - usual / FADING + counted / FADING);
        self.idle += counted;
        self.begin += slept - counted;
    }

    /// Something is there to do.
    #[inline]
    pub fn works(&mut self) {
        self.waits_at = None;
    }

    /// Whether it is time for [`read`](Self::read).
    #[must_use]
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now.since(self.begin) >= WINDOW
    }

    /// The share since the last reading, in thousandths. `queued_ns`: for how long the thread has waited for its core
    /// since it began, if that is known.
    pub fn read(&mut self, now: Instant, queued_ns: Option<u64>) -> u32 {
        let time = now.since(self.begin).as_nanos() as u64;
        let idle = self.idle.as_nanos() as u64;
        let queued = match (self.queued_ns, queued_ns) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => 0,
        };
        (self.begin, self.idle, self.queued_ns) = (now, Duration::ZERO, queued_ns);
        if queued.saturating_mul(CONTENDED) > time {
            return 0;
        }
        (idle.saturating_mul(1000) / time.max(1)).min(1000) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    /// Works for 60 us and waits for 40, ten thousand times a second; each sleep takes what `slept` says.
    fn run(idle: &mut IdleShare, from_us: u64, slept: impl Fn(u64) -> u64) -> u64 {
        (0..100).fold(from_us, |now, turn| {
            idle.works();
            idle.waits(at(now + 60));
            let now = now + 60 + slept(turn);
            idle.woke(at(now));
            now
        })
    }

    #[test]
    fn sleeps_are_counted() {
        let mut idle = IdleShare::default();
        let end = run(&mut idle, 0, |_| 40);
        assert!(!idle.is_due(at(1999)) && idle.is_due(at(end)));
        assert_eq!(idle.read(at(end), None), 400);
        let end = run(&mut idle, end, |_| 0);
        assert_eq!(idle.read(at(end), None), 0);
    }

    #[test]
    fn spins_count_from_look_to_look() {
        let mut idle = IdleShare::default();
        for turn in 0..100 {
            idle.works();
            (0..=3).for_each(|look| idle.waits(at(turn * 100 + 40 + look * 10)));
        }
        assert_eq!(idle.read(at(10_000), None), 300);
    }

    #[test]
    fn a_peer_that_has_lost_its_core_is_not_a_slow_store() {
        let mut idle = IdleShare::default();
        let end = run(&mut idle, 0, |turn| if turn % 20 == 19 { 3000 } else { 40 });
        let permille = idle.read(at(end), None);
        assert!((400..500).contains(&permille), "{permille}");
    }

    #[test]
    fn who_waits_for_its_own_core_has_nothing_left() {
        let mut idle = IdleShare::default();
        let end = run(&mut idle, 0, |_| 140);
        assert_eq!(idle.read(at(end), Some(7_000_000)), 700, "it is not known since when");
        let begin = end;
        let end = run(&mut idle, begin, |_| 140);
        assert_eq!(idle.read(at(end), Some(8_000_000)), 700);
        let end = run(&mut idle, end, |_| 140);
        assert_eq!(idle.read(at(end), Some(12_000_000)), 0);
    }
}
