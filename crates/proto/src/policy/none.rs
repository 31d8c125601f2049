//! No policy, as in Linux: sends when idle, coalesces what is already queued.

use super::{Backlog, BatchPolicy, Doorbell, Freight, PduInfo};
use crate::caravan::CaravanLimits;
use crate::time::Instant;

/// Rings as soon as the turn has nothing more to add.
#[derive(Clone, Copy, Debug)]
pub struct Unbatched {
    limits: CaravanLimits,
}

impl Unbatched {
    /// The policy with caravans of at most `limits`.
    #[must_use]
    pub fn new(limits: CaravanLimits) -> Self {
        Unbatched { limits }
    }
}

impl BatchPolicy for Unbatched {
    #[inline]
    fn on_enqueue(&mut self, now: Instant, _: &Backlog, _: &PduInfo) -> Doorbell {
        // The end of this turn rings: until then queued PDUs coalesce.
        Doorbell::ArmUntil(now)
    }

    #[inline]
    fn limits(&self, _: Freight, _: bool) -> CaravanLimits {
        self.limits
    }
}
