//! i10 (NSDI 2020, section 3.3): delayed doorbells and the no-delay path.

use super::{
    Backlog, BatchPolicy, Doorbell, DoorbellCause, Freight, PduInfo, PolicyConfig, PolicyRole,
};
use crate::caravan::CaravanLimits;
use crate::time::Instant;
use core::time::Duration;

/// Minimum delay; shorter delays count as none, because a timer costs more than it saves (i10, section 3.3).
const DELAY_MIN: Duration = Duration::from_micros(25);

/// Rings when a caravan is full, when the timer of the first request fires, or at once for an urgent request. The
/// target has no timer: it rings when nothing more is ready.
#[derive(Clone, Copy, Debug)]
pub struct I10 {
    limits: CaravanLimits,
    delay: Duration,
    role: PolicyRole,
    deadline: Instant,
}

impl I10 {
    /// The policy with the limits and the delay of `config`.
    #[must_use]
    pub fn new(config: &PolicyConfig, role: PolicyRole) -> Self {
        let limits = config.limits;
        let delay = match config.doorbell_delay {
            delay if delay < DELAY_MIN => Duration::ZERO,
            delay => delay,
        };
        I10 { limits, delay, role, deadline: Instant::default() }
    }
}

impl BatchPolicy for I10 {
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell {
        if pdu.is_urgent() {
            return Doorbell::Ring(DoorbellCause::Urgent);
        }
        if backlog.requests >= self.limits.count_max || backlog.data_bytes >= self.limits.bytes_max
        {
            return Doorbell::Ring(DoorbellCause::Size);
        }
        if backlog.requests == 1 {
            self.deadline = now + self.delay;
        }
        Doorbell::ArmUntil(self.deadline)
    }

    #[inline]
    fn on_drained(&mut self, _: Freight, is_due: bool) -> Doorbell {
        match self.role {
            _ if self.delay.is_zero() => Doorbell::Ring(DoorbellCause::Drained),
            _ if is_due => Doorbell::Ring(DoorbellCause::Timer),
            PolicyRole::Host => Doorbell::ArmUntil(self.deadline),
            PolicyRole::Target => Doorbell::Ring(DoorbellCause::Drained),
        }
    }

    #[inline]
    fn limits(&self, _: Freight, _: bool) -> CaravanLimits {
        self.limits
    }
}
