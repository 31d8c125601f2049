//! Pauses of a target: SIGSTOP, a frozen cgroup, suspend to RAM.
//!
//! What was received before a pause lies in sockets after it, and the host may have gone on over another path
//! meanwhile. So a thread that had no turn for long checks keep-alive timers before it executes anything:
//! [`super::Target::handle_timeout`]. It then ends every lane whose controller has expired
//! ([`super::session::Session::has_expired`]) without executing what lies unread, and begins no further part of its
//! commands. The clock has to count suspended time. A paused virtual machine notices nothing: its clocks stand still.

use crate::time::Instant;
use core::time::Duration;

/// Longest time between two turns that needs no check: the granularity of keep-alive timers.
const UNCHECKED_MAX: Duration = Duration::from_millis(100);

/// The turns of a thread.
#[derive(Clone, Copy, Debug)]
pub struct PauseDetector {
    turned_at: Instant,
}

impl PauseDetector {
    /// A thread that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        PauseDetector { turned_at: now }
    }

    /// A turn begins. `true`: keep-alive timers are to be checked first.
    #[inline]
    #[must_use]
    pub fn begin_turn(&mut self, now: Instant) -> bool {
        let before = core::mem::replace(&mut self.turned_at, now);
        now.since(before) > UNCHECKED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_gaps_need_a_check() {
        let mut pauses = PauseDetector::new(Instant(0));
        let turns = [(1, false), (101, false), (202, true), (203, false), (9_999, true)];
        for (ms, needs_check) in turns {
            assert_eq!(pauses.begin_turn(Instant(ms * 1_000_000)), needs_check, "{ms} ms");
        }
    }
}
