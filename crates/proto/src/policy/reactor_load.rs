//! Commands in flight on a target's reactor, over all the queue pairs that share it.

use crate::time::Instant;
use core::time::Duration;

/// Time for which a queue pair's commands are remembered, once or twice. A busy reactor needs that long for 128
/// commands even where it executes no more than some 20,000 a second.
const WINDOW: Duration = Duration::from_millis(8);

/// Commands in flight over the queue pairs that were active in this window, or in the one before.
///
/// A target receives commands, not the number that a host has in flight. Each queue pair adds its own number in its
/// turn, and counts with the peak of the window, so that none has to be visited. A queue pair that is idle for two
/// windows does not count any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorLoad {
    window: LoadWindow,
    end: Instant,
}

/// Contribution of one queue pair to a [`ReactorLoad`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadShare {
    window: LoadWindow,
    end: Instant,
}

/// Count in this window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct LoadWindow {
    now: u32,
    before: u32,
}

impl LoadWindow {
    /// Begins a new window that ends at `next`, after the one that ended at `end`.
    #[inline]
    fn follow(&mut self, end: Instant, next: Instant) {
        let is_next = next <= end + 2 * WINDOW;
        *self = LoadWindow { now: 0, before: if is_next { self.now } else { 0 } };
    }
}

impl ReactorLoad {
    /// Adds a queue pair with `in_flight` commands in flight.
    #[inline]
    pub fn note(&mut self, now: Instant, share: &mut LoadShare, in_flight: u32) {
        self.advance_windows(now, share);
        let more = in_flight.saturating_sub(share.window.now);
        share.window.now += more;
        self.window.now = self.window.now.saturating_add(more);
    }

    /// Returns the commands in flight on all queue pairs but the one of that share.
    #[inline]
    pub fn in_others(&mut self, now: Instant, share: &mut LoadShare) -> u32 {
        self.advance_windows(now, share);
        let (all, own) = (&self.window, &share.window);
        all.now.saturating_sub(own.now).max(all.before.saturating_sub(own.before))
    }

    fn advance_windows(&mut self, now: Instant, share: &mut LoadShare) {
        if now >= self.end {
            self.window.follow(self.end, now + WINDOW);
            self.end = now + WINDOW;
        }
        if share.end != self.end {
            share.window.follow(share.end, self.end);
            share.end = self.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[derive(Default)]
    struct ReactorLoadHarness {
        load: ReactorLoad,
        one: LoadShare,
        other: LoadShare,
        third: LoadShare,
    }

    #[test]
    fn each_queue_pair_counts_once_with_its_most() {
        let ReactorLoadHarness { mut load, mut one, mut other, mut third } =
            ReactorLoadHarness::default();
        load.note(at(0), &mut one, 8);
        load.note(at(1), &mut one, 3);
        load.note(at(2), &mut other, 5);
        load.note(at(3), &mut one, 9);
        assert_eq!(load.in_others(at(3), &mut third), 14);
        assert_eq!(load.in_others(at(3), &mut one), 5, "its own does not count");
        assert_eq!(load.in_others(at(3), &mut other), 9);
    }

    #[test]
    fn an_idle_queue_pair_is_forgotten_after_two_windows() {
        let ReactorLoadHarness { mut load, mut one, mut other, mut third } =
            ReactorLoadHarness::default();
        load.note(at(0), &mut one, 8);
        load.note(at(0), &mut other, 100);
        load.note(at(9), &mut one, 8);
        assert_eq!(load.in_others(at(10), &mut third), 108, "the window before had both");
        assert_eq!(load.in_others(at(10), &mut one), 100);
        load.note(at(18), &mut one, 8);
        assert_eq!(load.in_others(at(18), &mut third), 8);
        assert_eq!(load.in_others(at(18), &mut one), 0);
        assert_eq!(load.in_others(at(90), &mut third), 0, "nothing is remembered over a pause");
    }

    #[test]
    fn an_idle_share_loses_its_old_count() {
        let ReactorLoadHarness { mut load, mut one, mut other, .. } = ReactorLoadHarness::default();
        load.note(at(0), &mut one, 100);
        load.note(at(9), &mut other, 8);
        load.note(at(18), &mut other, 8);
        assert_eq!(load.in_others(at(18), &mut one), 8);
        load.note(at(19), &mut one, 1);
        assert_eq!(load.in_others(at(19), &mut other), 1);
    }
}
