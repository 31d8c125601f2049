//! Costs of actions on a modelled machine.

use std::time::Duration;

pub const fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// A machine: the cost of each action, and the number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Range of the time from an event until a core in deep sleep handles it. The core counts as busy meanwhile, as
    /// in its thread's CPU time.
    ///
    /// The variation matters. With a constant time, two ends would take turns for ever at the depths where keeping
    /// both busy needs a lucky start and then continues by itself.
    pub wake_up_min: Duration,
    pub wake_up_max: Duration,
    /// Sleep after which a wake-up takes its full time; a shorter sleep ends sooner.
    pub deep_sleep: Duration,
    /// Average interval at which a core does something else if a turn is due; this makes the tails of latencies. Zero
    /// for never.
    pub away_every: Duration,
    pub away: Duration,
    /// A turn, whatever its cause, with its check of the ring.
    pub turn: Duration,
    /// A receive call.
    pub receive: Duration,
    /// A send call.
    pub send: Duration,
    /// Transit time from one end to the other.
    pub trip: Duration,
    /// The host submits a request.
    pub submit: Duration,
    /// The host receives a completion.
    pub complete: Duration,
    /// The target handles a command.
    pub execute: Duration,
    /// The target sends a completion.
    pub answer: Duration,
    /// Additional cost of a PDU with data, at its sender and at its receiver.
    pub data_out: Duration,
    pub data_in: Duration,
    /// True if both ends run on one core, one after the other.
    pub one_core: bool,
}

/// Two cores of a virtual machine, one for each end, and a connection over loopback. The costs approximate what was
/// measured there (`REAL`), at most points within a tenth.
pub const REFERENCE: Costs = Costs {
    wake_up_min: ns(6_000),
    wake_up_max: ns(30_000),
    deep_sleep: ns(20_000),
    away_every: ns(5_000_000),
    away: ns(40_000),
    turn: ns(500),
    receive: ns(2_500),
    send: ns(4_500),
    trip: ns(1_000),
    submit: ns(200),
    complete: ns(200),
    execute: ns(400),
    answer: ns(400),
    data_out: ns(250),
    data_in: ns(200),
    one_core: false,
};

impl Costs {
    /// Creates a machine from the average time of a wake-up, of a send call, of handling a PDU with its data, and of
    /// transit. The other costs have the proportions of the measured machine. Nothing disturbs it.
    pub fn of(wake_up: Duration, send: Duration, pdu: Duration, trip: Duration) -> Self {
        Costs {
            wake_up_min: wake_up / 3,
            wake_up_max: wake_up * 5 / 3,
            deep_sleep: wake_up,
            away_every: Duration::ZERO,
            away: Duration::ZERO,
            turn: send / 9,
            receive: send * 5 / 9,
            send,
            trip,
            submit: pdu / 2,
            complete: pdu / 2,
            execute: pdu,
            answer: pdu,
            data_out: pdu * 5 / 8,
            data_in: pdu / 2,
            one_core: false,
        }
    }

    /// True if the ends detect that they share a core: the peer is at an address of this machine, which no link leads
    /// to.
    pub fn detects_one_core(&self) -> bool {
        self.one_core && self.trip <= REFERENCE.trip
    }

    /// Time from one end's last turn to the other's first on a shared core that stays awake.
    pub fn switch(&self) -> Duration {
        self.wake_up_min / 4
    }
}

/// Bytes that the kernel delivers at once: the first bytes of a larger send arrive while the last are still copied.
pub const SEGMENT_BYTES: u32 = 64 << 10;
