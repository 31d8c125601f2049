//! One core: its clock, what it has done, and how it sends.

use super::costs::{Costs, SEGMENT_BYTES};
use super::wire::{Cargo, Pdu, Wire};
use roadtrain_proto::host;
use roadtrain_proto::policy::Batcher;
use roadtrain_proto::target;
use roadtrain_proto::time::Instant;
use std::ops::Range;
use std::time::Duration;

/// What an end did in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub busy: Duration,
    pub caravans: u32,
    pub pdus: u32,
}

/// A queue pair as far as sending goes.
pub trait Sender {
    fn batcher(&mut self) -> &mut Batcher;
    fn has_tx(&self) -> bool;
    fn poll_tx(&mut self, cargo: &mut Cargo) -> bool;
    /// The caravan has left.
    fn sent(&mut self) {}
}

impl Sender for host::qpair::Qpair {
    fn batcher(&mut self) -> &mut Batcher {
        self.batcher()
    }

    fn has_tx(&self) -> bool {
        self.has_tx()
    }

    fn poll_tx(&mut self, cargo: &mut Cargo) -> bool {
        self.poll_tx(cargo)
    }
}

impl Sender for target::qpair::Qpair {
    fn batcher(&mut self) -> &mut Batcher {
        self.batcher()
    }

    fn has_tx(&self) -> bool {
        self.has_tx()
    }

    fn poll_tx(&mut self, cargo: &mut Cargo) -> bool {
        self.poll_tx(cargo)
    }

    fn sent(&mut self) {
        self.sent(|_, _, _| {});
    }
}

/// What follows from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn between(&mut self, min: Duration, max: Duration) -> Duration {
        let range_ns = (max - min).as_nanos() as u64;
        min + Duration::from_nanos(self.next() % (range_ns + 1))
    }
}

/// A core, busy with a turn or asleep.
pub struct Core {
    /// In a turn: now. Else: since when it sleeps.
    pub clock: Instant,
    /// Until then the other end has the core that both share.
    pub taken_until: Instant,
    pub costs: Costs,
    measured: Range<Instant>,
    busy_since: Instant,
    /// How long it will take to wake up the next time.
    wake_up: Duration,
    /// When it is needed for something else.
    away_at: Instant,
    random: Random,
    pub work: Work,
}

impl Core {
    pub fn new(costs: Costs, measured: Range<Instant>, seed: u64) -> Self {
        let (clock, busy_since) = (Instant::default(), Instant::default());
        let mut random = Random(seed);
        let wake_up = random.between(costs.wake_up_min, costs.wake_up_max);
        let away_at = clock + random.between(Duration::ZERO, 2 * costs.away_every);
        let (taken_until, work) = (clock, Work::default());
        Core { clock, taken_until, costs, measured, busy_since, wake_up, away_at, random, work }
    }

    /// When a turn begins that `event` asks for.
    pub fn start(&self, event: Instant) -> Instant {
        let free = self.clock.max(self.taken_until);
        if self.taken_until > self.clock && event <= free {
            return free + self.costs.switch();
        }
        let deep_sleep = self.costs.deep_sleep.as_nanos().max(1);
        let slept_ns = event.since(free).as_nanos().min(deep_sleep);
        let wake_up_ns = self.wake_up.as_nanos() * slept_ns / deep_sleep;
        free.max(event) + Duration::from_nanos(wake_up_ns as u64)
    }

    /// Begins that turn; its time as the engine passes it on.
    pub fn begin(&mut self, event: Instant) -> Instant {
        let start = self.start(event);
        let free = self.clock.max(self.taken_until);
        self.busy_since = free.max(event);
        if event > free {
            let Costs { wake_up_min, wake_up_max, .. } = self.costs;
            self.wake_up = self.random.between(wake_up_min, wake_up_max);
        }
        self.clock = start;
        let away_every = self.costs.away_every;
        if !away_every.is_zero() && start >= self.away_at {
            self.spend(self.costs.away);
            self.away_at = self.clock + self.random.between(Duration::ZERO, 2 * away_every);
        }
        self.spend(self.costs.turn);
        start
    }

    pub fn spend(&mut self, time: Duration) {
        self.clock += time;
    }

    /// A receive call, if it brings something: what has arrived by its end.
    pub fn receive(&mut self, wire: &mut Wire) -> Vec<Pdu> {
        if wire.next().is_none_or(|arrival| arrival > self.clock) {
            return Vec::new();
        }
        self.spend(self.costs.receive);
        wire.take(self.clock)
    }

    /// Sends what doorbells have released; `per_pdu` is what each PDU costs.
    pub fn flush(&mut self, from: &mut impl Sender, wire: &mut Wire, per_pdu: Duration) {
        while from.has_tx() {
            let mut cargo = Cargo::default();
            if !from.poll_tx(&mut cargo) {
                return;
            }
            self.spend(self.costs.send);
            if self.measured.contains(&self.clock) {
                self.work.caravans += 1;
                self.work.pdus += cargo.pdus.len() as u32;
            }
            let (mut segment, mut bytes) = (Vec::new(), 0);
            for pdu in cargo.pdus {
                self.spend(per_pdu);
                if pdu.data_bytes > 0 {
                    self.spend(self.costs.data_out);
                }
                bytes += pdu.bytes();
                segment.push(pdu);
                if bytes >= SEGMENT_BYTES {
                    wire.put(self.clock + self.costs.trip, segment.drain(..));
                    bytes = 0;
                }
            }
            wire.put(self.clock + self.costs.trip, segment.drain(..));
            from.sent();
        }
    }

    /// Ends a queue pair's turn: rings what the policy lets go, sends it.
    pub fn drain(
        &mut self,
        now: Instant,
        from: &mut impl Sender,
        wire: &mut Wire,
        per_pdu: Duration,
    ) {
        from.batcher().expire(now);
        from.batcher().drained(now);
        self.flush(from, wire, per_pdu);
    }

    /// Ends the turn: sleeps.
    pub fn end(&mut self) {
        let since = self.busy_since.max(self.measured.start);
        self.work.busy += self.clock.min(self.measured.end).since(since);
    }
}
