//! I/O timeouts: detects overdue commands and escalates from Abort to closing the connection.
//!
//! No command has a timer of its own. A lane checks all its commands when the oldest may be overdue. So it checks once
//! per timeout while all complete in time.

use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Maximum wait for an aborted command's completion.
pub const GRACE_MAX: Duration = Duration::from_secs(10);
/// Minimum interval of checks, as a fraction of the timeout, and its upper bound.
const CHECKS_PER_TIMEOUT: u32 = 16;
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Timer of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandTimer {
    /// Time of its submission or of its Abort.
    since: Instant,
    aborted: bool,
}

impl CommandTimer {
    /// Creates the timer of a command that is submitted now.
    #[must_use]
    #[inline]
    pub fn new(now: Instant) -> Self {
        CommandTimer { since: now, aborted: false }
    }

    /// Returns the time of its submission or of its Abort.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// True if it did not complete in time.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.aborted
    }
}

/// I/O timeout of a lane.
#[derive(Clone, Copy, Debug)]
pub struct IoTimer {
    /// Timeout; `None`: no timeout.
    timeout: Option<Duration>,
    /// Earliest time at which a command can be overdue.
    check_at: Instant,
}

impl IoTimer {
    /// Creates the timer; `None`: commands have no timeout.
    #[must_use]
    pub fn new(timeout: Option<Duration>) -> Self {
        let timeout = timeout.filter(|timeout| !timeout.is_zero());
        let check_at = timeout.map_or(Instant(u64::MAX), |_| Instant::default());
        IoTimer { timeout, check_at }
    }

    /// Returns the time between a command's Abort and the end of the connection.
    #[must_use]
    pub fn grace(timeout: Duration) -> Duration {
        timeout.min(GRACE_MAX)
    }

    /// True if a check is due.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.check_at
    }

    /// Returns when the next check is due; `None` for a lane without commands.
    #[inline]
    #[must_use]
    pub fn deadline(&self, commands: u32) -> Option<Instant> {
        (commands > 0 && self.timeout.is_some()).then_some(self.check_at)
    }

    /// Checks all commands in flight, by slot. Calls `abort` once for each overdue command. True if an aborted command
    /// did not complete either: the caller closes the connection.
    pub fn check<'a>(
        &mut self,
        now: Instant,
        commands: impl Iterator<Item = (u16, &'a mut CommandTimer)>,
        mut abort: impl FnMut(u16),
    ) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let grace = IoTimer::grace(timeout);
        let (mut next, mut is_over) = (now + timeout, false);
        for (slot, timer) in commands {
            if !timer.aborted && now >= timer.since + timeout {
                *timer = CommandTimer { since: now, aborted: true };
                abort(slot);
            }
            let end = timer.since + if timer.aborted { grace } else { timeout };
            is_over |= end <= now;
            next = next.min(end);
        }
        let least = (timeout / CHECKS_PER_TIMEOUT).min(CHECK_INTERVAL_MAX);
        self.check_at = next.max(now + least);
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    /// Checks if due. Returns the slots to abort, and whether the connection is over.
    fn check(timer: &mut IoTimer, now: Instant, timers: &mut [CommandTimer]) -> (Vec<u16>, bool) {
        let mut aborts = Vec::new();
        let is_over = timer.is_due(now)
            && timer.check(now, (0..).zip(timers.iter_mut()), |slot| aborts.push(slot));
        (aborts, is_over)
    }

    #[test]
    fn a_command_is_aborted_and_then_its_connection_ends() {
        let mut timer = IoTimer::new(Some(TIMEOUT));
        let mut timers = [CommandTimer::new(at(100)), CommandTimer::new(at(115))];
        assert_eq!(check(&mut timer, at(115), &mut timers), (vec![], false));
        assert_eq!(timer.deadline(2), Some(at(130)));
        assert_eq!(check(&mut timer, at(129), &mut timers), (vec![], false));
        assert_eq!(check(&mut timer, at(130), &mut timers), (vec![0], false));
        assert_eq!(timer.deadline(2), Some(at(140)));
        assert!(timers[0].is_overdue() && !timers[1].is_overdue());
        assert_eq!(check(&mut timer, at(139), &mut timers), (vec![], false));
        assert_eq!(check(&mut timer, at(140), &mut timers), (vec![], true));
    }

    #[test]
    fn what_is_answered_after_its_abort_ends_nothing() {
        let mut timer = IoTimer::new(Some(TIMEOUT));
        let mut timers = [CommandTimer::new(at(100))];
        assert_eq!(check(&mut timer, at(131), &mut timers), (vec![0], false));
        timers[0] = CommandTimer::new(at(132)); // the slot's next command
        assert_eq!(check(&mut timer, at(141), &mut timers), (vec![], false));
        assert_eq!(check(&mut timer, at(161), &mut timers), (vec![], false));
        assert_eq!(check(&mut timer, at(162), &mut timers), (vec![0], false));
    }

    #[test]
    fn a_lane_is_checked_once_in_a_timeout() {
        let mut timer = IoTimer::new(Some(TIMEOUT));
        let mut checks = 0;
        for ms in 0..600_000 {
            let now = Instant(ms * 1_000_000);
            if timer.is_due(now) {
                checks += 1;
                assert!(!timer.check(
                    now,
                    [(0, &mut CommandTimer::new(now))].into_iter(),
                    |_| panic!()
                ));
            }
        }
        assert_eq!(checks, 20);
    }

    #[test]
    fn slow_commands_do_not_cause_checks_all_the_time() {
        let mut timer = IoTimer::new(Some(TIMEOUT));
        let mut checks = 0;
        for ms in 29_999..330_000 {
            let now = Instant(ms * 1_000_000);
            if timer.is_due(now) {
                checks += 1;
                let mut oldest = CommandTimer::new(Instant((ms - 29_999) * 1_000_000));
                assert!(!timer.check(now, [(0, &mut oldest)].into_iter(), |_| panic!()));
            }
        }
        assert!(checks <= 301, "{checks}");
    }

    #[test]
    fn an_idle_lane_and_one_without_timeout_sleep() {
        assert_eq!(IoTimer::new(Some(TIMEOUT)).deadline(0), None);
        let mut timer = IoTimer::new(None);
        assert_eq!(timer.deadline(5), None);
        assert!(!timer.is_due(at(1 << 33)));
        assert!(!timer.check(
            at(1000),
            [(0, &mut CommandTimer::default())].into_iter(),
            |_| panic!()
        ));
    }
}
