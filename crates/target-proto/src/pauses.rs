//! Pauses of a target: SIGSTOP, a frozen cgroup, suspend to RAM.
//!
//! Data received before a pause is in the sockets after it, and the host may have continued on another path meanwhile.
//! So a thread that had no turn for long checks keep-alive timers before it executes anything:
//! [`super::TargetControl::handle_timeout`]. It then ends every lane whose controller has expired
//! ([`super::session::TargetConnection::has_expired`]) without executing unread data, and begins no further part of its
//! commands. Nor does it begin further parts for a connection that had ended before, if the pause was as long as the
//! keep-alive timeout ([`is_too_long`]): its host waits only as long as the controller is alive. The clock has to count
//! suspended time. A paused virtual machine notices nothing: its clocks stop.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Longest time between two turns that needs no check: the granularity of keep-alive timers.
const UNCHECKED_MAX: Duration = Duration::from_millis(100);

/// Detector of pauses between a thread's turns.
#[derive(Clone, Copy, Debug)]
pub struct PauseDetector {
    turned_at: Instant,
}

impl PauseDetector {
    /// Creates the detector of a thread that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        PauseDetector { turned_at: now }
    }

    /// Begins a turn. Returns the time since the last one if keep-alive timers have to be checked first. An idle thread
    /// may have blocked for that long.
    #[inline]
    #[must_use]
    pub fn begin_turn(&mut self, now: Instant) -> Option<Duration> {
        let before = core::mem::replace(&mut self.turned_at, now);
        Some(now.since(before)).filter(|gap| *gap > UNCHECKED_MAX)
    }
}

/// Returns true if a host may have stopped waiting for commands of a connection that had ended before the pause.
/// Without a keep-alive timeout hosts wait forever.
#[must_use]
pub fn is_too_long(pause: Duration, keep_alive: Duration) -> bool {
    !keep_alive.is_zero() && pause >= keep_alive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_gaps_need_a_check() {
        let mut pauses = PauseDetector::new(Instant(0));
        let turns = [(1, false), (101, false), (202, true), (203, false), (9_999, true)];
        for (ms, needs_check) in turns {
            assert_eq!(
                pauses.begin_turn(Instant(ms * 1_000_000)).is_some(),
                needs_check,
                "{ms} ms"
            );
        }
    }

    #[test]
    fn a_thread_that_had_nothing_to_do_keeps_commands_of_ended_connections() {
        let [none, short, long] = [0, 600, 5_000].map(Duration::from_millis);
        let is_too_long = [(short, long), (long, long), (long, none), (none, short)]
            .map(|(pause, keep_alive)| is_too_long(pause, keep_alive));
        assert_eq!(is_too_long, [false, true, false, false]);
    }
}
