//! What things cost on the modelled machine: two cores of a virtual machine, one for each end, and a connection
//! over loopback. Chosen to come out near what was measured there (`REAL`): at most points within a tenth.

use std::time::Duration;

const fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// From an event until a core that is fast asleep handles it: something between these, 18 us on average. The core
/// counts as busy meanwhile, as in its thread's CPU time.
///
/// That it differs matters. Were it always the same, two ends would take turns for ever at the depths where
/// keeping both busy needs a happy moment to begin with, and then goes on by itself.
pub const WAKE_UP_MIN: Duration = ns(6_000);
pub const WAKE_UP_MAX: Duration = ns(30_000);
/// Who has slept for less wakes up the sooner.
pub const DEEP_SLEEP: Duration = ns(20_000);

/// On average so often a core does something else for a while, if a turn is due: it makes the tails of latencies.
pub const AWAY_EVERY: Duration = ns(5_000_000);
pub const AWAY: Duration = ns(40_000);

/// A turn, whatever it is for: a look at the ring.
pub const TURN: Duration = ns(500);
/// A receive call.
pub const RECEIVE: Duration = ns(2_500);
/// A send call.
pub const SEND: Duration = ns(4_500);
/// From one end to the other.
pub const TRIP: Duration = ns(1_000);

/// The host submits a request.
pub const SUBMIT: Duration = ns(200);
/// The host receives a completion with its data.
pub const COMPLETE: Duration = ns(400);
/// The target handles a command.
pub const EXECUTE: Duration = ns(400);
/// The target sends a completion with its data.
pub const ANSWER: Duration = ns(650);

/// What the kernel hands to the other end at once: the first octets of a larger send are there while the last are
/// still copied.
pub const SEGMENT_BYTES: u32 = 64 << 10;
