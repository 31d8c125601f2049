//! Keep Alive Timer, traffic based (NVMe Base 2.1, section 3.9).
//!
//! A suspended target did not check the timer, and its host continues on another path meanwhile. So a timer that was
//! not checked for two periods has expired, whatever was received ([`super::pauses`]).

use super::kind::ControllerKind;
use core::time::Duration;
use roadtrain_proto::time::Instant;

/// Granularity of the timer (KAS) in units of 100 ms.
pub const KEEP_ALIVE_GRANULARITY: u16 = 1;
const GRANULARITY_MS: u32 = KEEP_ALIVE_GRANULARITY as u32 * 100;
/// Timeout of a discovery controller whose host requests none (section 3.1.3.3).
const DISCOVERY_MS: u32 = 120_000;

/// Keep Alive Timer of a controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    kato_ms: u32,
    deadline: Option<Instant>,
}

impl KeepAlive {
    /// Creates the timer of a controller of that kind.
    pub(super) fn of(kind: ControllerKind, now: Instant, kato_ms: u32) -> Self {
        match kind {
            ControllerKind::Io => KeepAlive::new(now, kato_ms),
            ControllerKind::Discovery => KeepAlive::of_discovery(now, kato_ms),
        }
    }

    /// Creates the timer of an I/O controller; `kato_ms` 0 disables it.
    fn new(now: Instant, kato_ms: u32) -> Self {
        let mut timer = KeepAlive { kato_ms: 0, deadline: None };
        timer.set(now, kato_ms);
        timer
    }

    /// Creates the timer of a discovery controller: idle ones always end.
    fn of_discovery(now: Instant, kato_ms: u32) -> Self {
        KeepAlive::new(now, if kato_ms == 0 { DISCOVERY_MS } else { kato_ms })
    }

    /// Sets the timeout, rounded up to the granularity, and restarts the timer.
    pub(super) fn set(&mut self, now: Instant, kato_ms: u32) {
        let steps = kato_ms.div_ceil(GRANULARITY_MS);
        self.kato_ms = steps.saturating_mul(GRANULARITY_MS);
        self.restart(now);
    }

    /// Returns the timeout in milliseconds, 0 when disabled.
    pub(super) fn kato_ms(&self) -> u32 {
        self.kato_ms
    }

    /// Restarts the timer after a command.
    pub(super) fn restart(&mut self, now: Instant) {
        let timeout = Duration::from_millis(self.kato_ms.into());
        self.deadline = (self.kato_ms > 0).then(|| now + timeout);
    }

    /// True if the timer was not checked for two periods.
    pub(super) fn was_missed(&self, now: Instant) -> bool {
        let timeout = Duration::from_millis(self.kato_ms.into());
        self.deadline.is_some_and(|deadline| deadline + timeout <= now)
    }

    /// Returns when the timer expires without traffic.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// True if the timer has expired.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}
