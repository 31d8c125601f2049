//! No policy, as in Linux: sends when idle, coalesces what is already queued.

use super::{Backlog, BatchPolicy, Doorbell, Freight, Parcel};
use crate::caravan::Limits;
use crate::time::Instant;

/// Rings as soon as the turn has nothing more to add.
#[derive(Clone, Copy, Debug)]
pub struct Unbatched {
    limits: Limits,
}

impl Unbatched {
    /// The policy with caravans of at most `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Unbatched { limits }
    }
}

impl BatchPolicy for Unbatched {
    #[inline]
    fn on_enqueue(&mut self, now: Instant, _: &Backlog, _: &Parcel) -> Doorbell {
        // The end of this turn rings: until then queued PDUs coalesce.
        Doorbell::ArmUntil(now)
    }

    #[inline]
    fn limits(&self, _: Freight, _: bool) -> Limits {
        self.limits
    }
}
