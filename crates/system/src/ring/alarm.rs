//! Timers that stay set over many waits.
//!
//! A reactor under load waits thousands of times a second, each time until a deadline that moves ahead of it (a frame's
//! timeout, say). A timer for each wait would be set and cancelled every time, and in a virtual machine by the
//! hypervisor. A timer that stays set may fire too early: then the reactor checks its deadline, and sets the next.

use io_uring::{opcode, squeue, types};
use roadtrain_proto::time::Instant;

/// User data of alarms.
pub(super) const USER_DATA: u64 = u64::MAX;
/// Maximum alarms set at once: a later one stays set when an earlier one is needed.
const ALARMS: usize = 4;

/// Request for a wait until a deadline.
pub(super) enum Need {
    /// Nothing: an alarm that is set fires in time.
    Nothing,
    /// This entry has to be submitted. The memory it points to stays in place until it has completed.
    Entry(squeue::Entry),
    /// A timer of its own: too many alarms are set.
    Timer,
}

#[derive(Default)]
pub(super) struct Alarms {
    set: [Option<Instant>; ALARMS],
    /// Times of the alarms, which the kernel reads when it takes the entries.
    times: Box<[types::Timespec; ALARMS]>,
}

impl Alarms {
    /// Returns the request for a wait until `deadline`.
    pub(super) fn until(&mut self, deadline: Instant) -> Need {
        if self.set.iter().flatten().any(|&at| at <= deadline) {
            return Need::Nothing;
        }
        let Some(free) = self.set.iter().position(Option::is_none) else { return Need::Timer };
        self.set[free] = Some(deadline);
        let time = &mut self.times[free];
        *time = types::Timespec::new()
            .sec(deadline.0 / 1_000_000_000)
            .nsec((deadline.0 % 1_000_000_000) as u32);
        let entry = opcode::Timeout::new(time).flags(types::TimeoutFlags::ABS).build();
        Need::Entry(entry.user_data(USER_DATA))
    }

    /// Records that the earliest alarm has fired.
    pub(super) fn rung(&mut self) {
        let earliest = self.set.iter_mut().filter(|at| at.is_some()).min_by_key(|at| **at);
        if let Some(at) = earliest {
            *at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(need: &Need) -> bool {
        matches!(need, Need::Entry(_))
    }

    #[test]
    fn an_alarm_serves_all_later_moments_until_it_rings() {
        let mut alarms = Alarms::default();
        assert!(entry(&alarms.until(Instant(50))));
        assert!(matches!(alarms.until(Instant(50)), Need::Nothing));
        assert!(matches!(alarms.until(Instant(70)), Need::Nothing));
        assert!(entry(&alarms.until(Instant(30))));
        alarms.rung();
        assert!(matches!(alarms.until(Instant(60)), Need::Nothing));
        assert!(entry(&alarms.until(Instant(40))));
        assert!(entry(&alarms.until(Instant(20))));
        assert!(entry(&alarms.until(Instant(10))));
        assert!(matches!(alarms.until(Instant(5)), Need::Timer));
    }
}
