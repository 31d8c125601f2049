//! Batching policies. The caravan is the mechanism. A policy decides *when* to ring the doorbell, which freight carries
//! a PDU, and how much one send takes.
//!
//! Invariant: held work always has a wake-up. A policy that does not ring answers with a deadline
//! ([`Doorbell::ArmUntil`]).
//!
//! PDUs wait in three freights, in the order in which they leave:
//!
//! | freight | `auto` | `pinof` | the others |
//! |---|---|---|---|
//! | `Express` | latency-critical requests; start and end of a connection | | |
//! | `Cmd` | commands, R2Ts, responses, data up to 16 KiB | commands, R2Ts, responses without data | |
//! | `Data` | more data, and all of bulk requests | PDUs with data | everything, in order |
//!
//! | policy | rings |
//! |---|---|
//! | `auto` | at a share of the commands in flight, or when the turn has nothing more |
//! | `none` | when the turn has nothing more |
//! | `i10` | at 16 requests, 64 KiB, or 50 us after the first; at the target when nothing more is ready |
//! | `pinof` | `Cmd` at 512 bytes, 8 PDUs or 25 us; `Data` at 64 KiB, 16 PDUs or 50 us |
//! | `pinof-flat` | both freights at 64 KiB, 16 PDUs or 50 us |
//! | `tyche` | at as many requests of up to 4 KiB as its level says, or after 5 ms |
//!
//! Urgent PDUs (admin, Flush, FUA, requests marked urgent) ring at once, and take along the PDUs before them in their
//! freight, except under `none`. H2CData is always urgent: a whole write waits for it. Commands are executed in the
//! order in which they arrive; classes only decide which are sent first.

mod auto;
mod batcher;
mod custom;
mod i10;
mod none;
mod pdu_info;
mod pinof;
mod reactor_load;
mod send_queue;
mod tyche;

pub use auto::{Auto, SMALL_BYTES_MAX};
pub use batcher::{Batcher, DoorbellTotals};
pub use custom::CustomPolicy;
pub use i10::I10;
pub use none::Unbatched;
pub use pdu_info::{Class, Freight, Freights, PduInfo, PduKind, Urgency};
pub use pinof::{FreightSettings, Pinof, PinofSettings};
pub use reactor_load::{LoadShare, ReactorLoad};
pub use send_queue::{CaravanLoad, SendQueue};
pub use tyche::{Tyche, TycheSettings};

use crate::caravan::CaravanLimits;
use crate::time::Instant;
use core::time::Duration;

/// State of a freight and of the reactor, the input of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backlog {
    /// PDUs that no doorbell has released yet.
    pub requests: u32,
    /// Bytes of their data.
    pub data_bytes: u32,
    /// Commands in flight of the queue pair, as far as this end knows, those waiting here included.
    pub in_flight: u32,
    /// Commands in flight on the other queue pairs of this end's reactor, as far as known.
    pub in_others: u32,
    /// True while this end polls instead of blocking.
    pub polls: bool,
    /// True if both ends of the lane share a core, so that only one of them works at a time.
    pub shares_core: bool,
    /// True if sends are to be short, for the sake of latency-critical requests in another lane.
    pub yields: bool,
}

/// Why a doorbell rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellCause {
    /// The caravan is full.
    Size,
    /// The delayed doorbell's timer fired.
    Timer,
    /// An urgent request.
    Urgent,
    /// Nothing more was ready.
    Drained,
}

/// Decision of a policy on a freight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// Send everything that waits.
    Ring(DoorbellCause),
    /// Hold it, at most until then.
    ArmUntil(Instant),
}

/// Decides when a lane sends. One value per lane and direction.
pub trait BatchPolicy {
    /// Returns the freight that carries a PDU; the same for all H2CData of a write, which must stay in order. ICResp is
    /// [`PduKind::Control`]: no other PDU passes its freight.
    #[inline]
    fn freight(&self, _: &PduInfo) -> Freight {
        Freight::Data
    }
    /// Decides after one more PDU waits; `backlog` is that of its freight and includes it.
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell;
    /// Decides for the waiting PDUs of `freight`. The source has nothing more ready in this turn of the reactor, or the
    /// armed timer has fired (`is_due`).
    #[inline]
    fn on_drained(&mut self, _freight: Freight, _is_due: bool) -> Doorbell {
        Doorbell::Ring(DoorbellCause::Drained)
    }
    /// Records the completion of a command with `data_bytes` (host only).
    fn on_complete(&mut self, _: Instant, _data_bytes: u32) {}
    /// True if the waiting PDUs should stay for a moment while more arrive.
    #[inline]
    fn gathers(&self, _: &Backlog) -> bool {
        false
    }
    /// Returns the limits of one send of a freight; `yields` as in [`Backlog::yields`].
    fn limits(&self, freight: Freight, yields: bool) -> CaravanLimits;
}

/// End of a lane that a policy serves: a target has no doorbell timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRole {
    /// Sends commands.
    Host,
    /// Sends responses.
    Target,
}

/// Choice of a policy, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    pub kind: PolicyKind,
    /// Limits of a caravan (`none`, `i10`).
    pub limits: CaravanLimits,
    /// Longest wait for company (`i10`).
    pub doorbell_delay: Duration,
    pub pinof: PinofSettings,
    pub tyche: TycheSettings,
    /// True if requests come from other threads than the one that receives completions (`auto`).
    pub of_device: bool,
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Sends when nothing more is ready: no waiting.
    None,
    /// i10: full caravans or a delayed doorbell.
    I10,
    /// PINoF: CMD and Data freights.
    Pinof,
    /// Tyche: a batch level found by hill-climbing.
    Tyche,
    /// `auto`, this project's own: no settings.
    Auto,
    /// A policy of another crate.
    Custom(CustomPolicy),
}

/// Maximum requests of a caravan in i10.
pub const I10_COUNT_MAX: u32 = 16;
/// Maximum bytes of data of a caravan in i10.
pub const I10_BYTES_MAX: u32 = 64 << 10;
/// Doorbell delay in i10.
pub const I10_DOORBELL_DELAY: Duration = Duration::from_micros(50);

impl PolicyConfig {
    /// `kind` with its published settings.
    #[must_use]
    pub const fn of(kind: PolicyKind) -> Self {
        let (limits, doorbell_delay) = match kind {
            PolicyKind::I10 => {
                let limits = CaravanLimits { count_max: I10_COUNT_MAX, bytes_max: I10_BYTES_MAX };
                (limits, I10_DOORBELL_DELAY)
            }
            // The limits of one send.
            _ => (CaravanLimits { count_max: 512, bytes_max: 4 << 20 }, Duration::ZERO),
        };
        let (pinof, tyche) = (PinofSettings::published(), TycheSettings::published());
        PolicyConfig { kind, limits, doorbell_delay, pinof, tyche, of_device: false }
    }

    /// Returns the same configuration for a lane that serves a local block device.
    #[must_use]
    #[inline]
    pub const fn for_device(self) -> Self {
        PolicyConfig { of_device: true, ..self }
    }

    /// No waiting; caravans as large as one send may be.
    #[must_use]
    #[inline]
    pub const fn none() -> Self {
        Self::of(PolicyKind::None)
    }

    /// i10 with the published constants: 16 requests, 64 KiB, 50 us.
    #[must_use]
    #[inline]
    pub const fn i10() -> Self {
        Self::of(PolicyKind::I10)
    }

    /// `auto`, this project's own policy.
    #[must_use]
    #[inline]
    pub const fn auto() -> Self {
        Self::of(PolicyKind::Auto)
    }

    /// A policy of another crate: `make` is called for each lane and direction.
    #[must_use]
    #[inline]
    pub const fn custom(make: fn(PolicyRole) -> Box<dyn BatchPolicy + Send>) -> Self {
        Self::of(PolicyKind::Custom(CustomPolicy(make)))
    }
}

enum Policy {
    None(Unbatched),
    I10(I10),
    Pinof(Pinof),
    Tyche(Tyche),
    Auto(Auto),
    Custom(Box<dyn BatchPolicy + Send>),
}

impl Policy {
    fn new(config: &PolicyConfig, role: PolicyRole) -> Self {
        match config.kind {
            PolicyKind::None => Policy::None(Unbatched::new(config.limits)),
            PolicyKind::I10 => Policy::I10(I10::new(config, role)),
            PolicyKind::Pinof => Policy::Pinof(Pinof::new(config.pinof)),
            PolicyKind::Tyche => Policy::Tyche(Tyche::new(config.tyche, role)),
            PolicyKind::Auto => Policy::Auto(Auto::new(config.of_device)),
            PolicyKind::Custom(CustomPolicy(make)) => Policy::Custom(make(role)),
        }
    }
}

/// Calls the variant's policy: dynamic dispatch only for those of other crates.
macro_rules! each {
    ($self:expr, $p:ident => $call:expr) => {
        match $self {
            Policy::None($p) => $call,
            Policy::I10($p) => $call,
            Policy::Pinof($p) => $call,
            Policy::Tyche($p) => $call,
            Policy::Auto($p) => $call,
            Policy::Custom($p) => $call,
        }
    };
}

impl BatchPolicy for Policy {
    #[inline]
    fn freight(&self, pdu: &PduInfo) -> Freight {
        each!(self, p => p.freight(pdu))
    }

    #[inline]
    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell {
        each!(self, p => p.on_enqueue(now, backlog, pdu))
    }

    #[inline]
    fn on_drained(&mut self, freight: Freight, is_due: bool) -> Doorbell {
        each!(self, p => p.on_drained(freight, is_due))
    }

    #[inline]
    fn on_complete(&mut self, now: Instant, data_bytes: u32) {
        each!(self, p => p.on_complete(now, data_bytes))
    }

    #[inline]
    fn gathers(&self, backlog: &Backlog) -> bool {
        each!(self, p => p.gathers(backlog))
    }

    #[inline]
    fn limits(&self, freight: Freight, yields: bool) -> CaravanLimits {
        each!(self, p => p.limits(freight, yields))
    }
}
