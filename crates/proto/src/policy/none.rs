//! No policy: what today's Linux does. Drain on idle, send inline, coalesce what is already queued.

use super::{Backlog, BatchPolicy, Cause, Doorbell, Urgency};
use crate::time::Instant;
use core::time::Duration;

/// Never waits: rings as soon as the turn has nothing more to add.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbatched;

impl BatchPolicy for Unbatched {
    fn on_enqueue(&mut self, now: Instant, _: &Backlog, _: Urgency) -> Doorbell {
        // The end of this turn rings: until then what is queued coalesces.
        Doorbell::ArmUntil(now)
    }

    fn on_drained(&mut self, _: Instant, _: &Backlog) -> Doorbell {
        Doorbell::Ring(Cause::Drained)
    }

    fn on_timeout(&mut self, _: Instant, _: &Backlog) -> Doorbell {
        Doorbell::Ring(Cause::Drained)
    }

    fn on_complete(&mut self, now: Instant, _: &Backlog, _: Duration) -> Doorbell {
        Doorbell::ArmUntil(now)
    }
}
