//! One core: its clock, its work, and its sends.

use super::costs::{Costs, SEGMENT_BYTES};
use super::waits::ModelWaits;
use super::wire::{Cargo, ModelWire, Pdu};
use roadtrain_host_proto as host;
use roadtrain_proto::policy::Batcher;
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use roadtrain_target_proto as target;
use std::ops::Range;
use std::time::Duration;

/// Work of an end in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeasuredWork {
    pub busy: Duration,
    pub caravans: u32,
    pub pdus: u32,
}

impl MeasuredWork {
    pub fn plus(self, other: MeasuredWork) -> MeasuredWork {
        MeasuredWork {
            busy: self.busy + other.busy,
            caravans: self.caravans + other.caravans,
            pdus: self.pdus + other.pdus,
        }
    }
}

/// The sending side of a queue pair.
pub trait CaravanSender {
    fn batcher(&mut self) -> &mut Batcher;
    fn has_tx(&self) -> bool;
    fn poll_tx(&mut self, cargo: &mut Cargo) -> bool;
    /// Records that the caravan has left.
    fn sent(&mut self) {}
}

impl CaravanSender for host::qpair::HostQpair {
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

impl CaravanSender for target::qpair::TargetQpair {
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

/// Numbers that follow from a seed (splitmix64).
pub struct ModelRandom(pub u64);

impl ModelRandom {
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

/// A core: busy with a turn, polling, or asleep.
pub struct ModelCore {
    /// Current time during a turn; otherwise the start of the wait.
    pub clock: Instant,
    /// Time until which the other end uses the shared core.
    pub taken_until: Instant,
    pub costs: Costs,
    pub waits: ModelWaits,
    measured: Range<Instant>,
    busy_since: Instant,
    /// Duration of the next wake-up.
    wake_up: Duration,
    /// Time of the next disturbance.
    away_at: Instant,
    random: ModelRandom,
    pub work: MeasuredWork,
}

impl ModelCore {
    pub fn new((costs, waiting): (Costs, WaitPolicy), measured: Range<Instant>, seed: u64) -> Self {
        let waiting = if costs.one_core { WaitPolicy::Sleep } else { waiting };
        let waits = ModelWaits::new(waiting);
        let (clock, busy_since) = (Instant::default(), Instant::default());
        let mut random = ModelRandom(seed);
        let wake_up = random.between(costs.wake_up_min, costs.wake_up_max);
        let away_at = clock + random.between(Duration::ZERO, 2 * costs.away_every);
        let (taken_until, work) = (clock, MeasuredWork::default());
        ModelCore {
            clock,
            taken_until,
            costs,
            waits,
            measured,
            busy_since,
            wake_up,
            away_at,
            random,
            work,
        }
    }

    /// Returns the start of the turn that `event` triggers.
    pub fn start(&self, event: Instant) -> Instant {
        let free = self.clock.max(self.taken_until);
        if self.taken_until > self.clock && event <= free {
            return free + self.costs.switch();
        }
        let polls_until = self.waits.polls_until();
        if polls_until.is_some_and(|until| event <= until) {
            return free.max(event) + self.costs.turn;
        }
        let deep_sleep = self.costs.deep_sleep.as_nanos().max(1);
        let asleep_since = polls_until.unwrap_or(free);
        let slept_ns = event.since(asleep_since).as_nanos().min(deep_sleep);
        let wake_up_ns = self.wake_up.as_nanos() * slept_ns / deep_sleep;
        free.max(event) + Duration::from_nanos(wake_up_ns as u64)
    }

    /// Begins that turn. Returns its time as the engine passes it on.
    pub fn begin(&mut self, event: Instant) -> Instant {
        let start = self.start(event);
        let free = self.clock.max(self.taken_until);
        let waited = self.waits.end((self.clock, event, start), self.costs.turn);
        let polled_until = self.clock + waited.polled;
        self.count(self.clock, polled_until);
        self.busy_since = free.max(event);
        if waited.slept && event > free {
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

    /// Makes a receive call if something has arrived. Returns the PDUs that have arrived by its end.
    pub fn receive(&mut self, wire: &mut ModelWire) -> Vec<Pdu> {
        if wire.next().is_none_or(|arrival| arrival > self.clock) {
            return Vec::new();
        }
        self.spend(self.costs.receive);
        wire.take(self.clock)
    }

    /// Sends what doorbells have released; `per_pdu` is the cost of each PDU.
    pub fn flush(
        &mut self,
        from: &mut impl CaravanSender,
        wire: &mut ModelWire,
        per_pdu: Duration,
    ) {
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

    /// Ends a queue pair's turn: rings the doorbells that the policy allows, and sends.
    pub fn drain(
        &mut self,
        now: Instant,
        from: &mut impl CaravanSender,
        wire: &mut ModelWire,
        per_pdu: Duration,
    ) {
        from.batcher().expire(now);
        from.batcher().drained(now);
        self.flush(from, wire, per_pdu);
    }

    /// Counts busy time.
    fn count(&mut self, from: Instant, to: Instant) {
        self.work.busy += to.min(self.measured.end).since(from.max(self.measured.start));
    }

    /// Ends the turn and waits. `expects` is true if something may arrive; `due` is the next deadline.
    pub fn end(&mut self, expects: bool, due: Option<Instant>) {
        self.count(self.busy_since, self.clock);
        self.busy_since = self.clock;
        self.waits.begin(self.clock, expects, due);
    }
}
