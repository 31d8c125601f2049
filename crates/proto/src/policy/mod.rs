//! Batching is a policy, a caravan is the mechanism: a policy decides only *when* to ring the doorbell.
//!
//! Invariant: held work always has a wake-up. A policy that does not ring answers with a deadline
//! ([`Doorbell::ArmUntil`]) or promises that a command in flight wakes the lane
//! ([`Doorbell::AwaitCompletion`]); [`Batcher`] asserts it.

mod batcher;
mod i10;
mod none;

pub use batcher::{Batcher, Doorbells};
pub use i10::I10;
pub use none::Unbatched;

use crate::caravan::Limits;
use crate::time::Instant;
use core::time::Duration;

/// How urgent a PDU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// May wait for company.
    Normal,
    /// Takes i10's no-delay path: admin, flush, FUA, H2CData, requests marked urgent.
    Urgent,
}

/// What waits in a lane for the doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Requests (or responses) that no doorbell has released yet.
    pub requests: u32,
    /// Their octets of data.
    pub data_bytes: u32,
    /// Commands sent and not yet completed.
    pub in_flight: u32,
}

/// Why a doorbell rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The caravan is full.
    Size,
    /// The delayed doorbell's timer fired.
    Timer,
    /// An urgent request.
    Urgent,
    /// Nothing more was ready.
    Drained,
}

/// A policy's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// Send everything that waits.
    Ring(Cause),
    /// Hold it, at most until then.
    ArmUntil(Instant),
    /// Hold it: a completion of a command in flight will ask again.
    AwaitCompletion,
}

/// Decides when a lane sends. One value per lane and direction.
pub trait BatchPolicy {
    /// One more request waits; `backlog` includes it.
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, urgency: Urgency) -> Doorbell;
    /// The source has nothing more ready in this turn of the reactor, and something waits.
    fn on_drained(&mut self, now: Instant, backlog: &Backlog) -> Doorbell;
    /// The armed timer fired.
    fn on_timeout(&mut self, now: Instant, backlog: &Backlog) -> Doorbell;
    /// A command completed after `latency`, and something waits.
    fn on_complete(&mut self, now: Instant, backlog: &Backlog, latency: Duration) -> Doorbell;
}

/// Which end of a lane a policy serves: a target has no doorbell timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends commands.
    Host,
    /// Sends responses.
    Target,
}

/// Which policy, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The policy.
    pub kind: PolicyKind,
    /// Limits of a caravan.
    pub limits: Limits,
    /// Longest wait for company.
    pub doorbell_delay: Duration,
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Send when nothing more is ready: no waiting.
    None,
    /// i10: full caravans or a delayed doorbell.
    I10,
}

/// Requests of a caravan in i10.
pub const I10_COUNT_MAX: u32 = 16;
/// Octets of data of a caravan in i10.
pub const I10_BYTES_MAX: u32 = 64 << 10;
/// Doorbell delay in i10.
pub const I10_DOORBELL_DELAY: Duration = Duration::from_micros(50);

impl PolicyConfig {
    /// No waiting; caravans as large as one send may be.
    #[must_use]
    pub const fn none() -> Self {
        let limits = Limits { count_max: 512, bytes_max: 4 << 20 };
        PolicyConfig { kind: PolicyKind::None, limits, doorbell_delay: Duration::ZERO }
    }

    /// i10 with the published constants: 16 requests, 64 KiB, 50 us.
    #[must_use]
    pub const fn i10() -> Self {
        let limits = Limits { count_max: I10_COUNT_MAX, bytes_max: I10_BYTES_MAX };
        PolicyConfig { kind: PolicyKind::I10, limits, doorbell_delay: I10_DOORBELL_DELAY }
    }
}

enum Policy {
    None(Unbatched),
    I10(I10),
}

impl Policy {
    fn new(config: &PolicyConfig, role: Role) -> Self {
        match config.kind {
            PolicyKind::None => Policy::None(Unbatched),
            PolicyKind::I10 => Policy::I10(I10::new(config, role)),
        }
    }
}

impl BatchPolicy for Policy {
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, urgency: Urgency) -> Doorbell {
        match self {
            Policy::None(p) => p.on_enqueue(now, backlog, urgency),
            Policy::I10(p) => p.on_enqueue(now, backlog, urgency),
        }
    }

    fn on_drained(&mut self, now: Instant, backlog: &Backlog) -> Doorbell {
        match self {
            Policy::None(p) => p.on_drained(now, backlog),
            Policy::I10(p) => p.on_drained(now, backlog),
        }
    }

    fn on_timeout(&mut self, now: Instant, backlog: &Backlog) -> Doorbell {
        match self {
            Policy::None(p) => p.on_timeout(now, backlog),
            Policy::I10(p) => p.on_timeout(now, backlog),
        }
    }

    fn on_complete(&mut self, now: Instant, backlog: &Backlog, latency: Duration) -> Doorbell {
        match self {
            Policy::None(p) => p.on_complete(now, backlog, latency),
            Policy::I10(p) => p.on_complete(now, backlog, latency),
        }
    }
}
