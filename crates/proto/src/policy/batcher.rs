//! Applies a policy to a lane's freights: waiting PDUs, released PDUs, timers.

use super::{
    Backlog, BatchPolicy, Doorbell, DoorbellCause, Freight, Freights, LoadShare, PduInfo, Policy,
    PolicyConfig, PolicyKind, PolicyRole, ReactorLoad, Urgency,
};
use crate::caravan::CaravanLimits;
use crate::time::Instant;
use core::time::Duration;

/// Time for which a queue pair is an express after a latency-critical request.
const EXPRESS_MEMORY: Duration = Duration::from_millis(10);

/// Doorbells rung, by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DoorbellTotals {
    /// Full caravans.
    pub size: u64,
    pub timer: u64,
    /// Urgent requests.
    pub urgent: u64,
    /// Nothing more ready.
    pub drained: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Container {
    waiting: Backlog,
    released: u32,
    deadline: Option<Instant>,
}

/// Counts of waiting and released PDUs by freight. The owner keeps the PDUs themselves.
pub struct Batcher {
    policy: Policy,
    containers: [Container; 3],
    /// PDUs that wait, and PDUs that were released, in all freights.
    waiting: u32,
    released: u32,
    /// Freights with waiting PDUs, and freights with released PDUs.
    holding: Freights,
    due: Freights,
    doorbells: DoorbellTotals,
    in_flight: u32,
    /// Peak of `in_flight` in this turn of the reactor.
    most_in_flight: u32,
    /// Commands in flight on the reactor's other queue pairs.
    in_others: u32,
    /// True if this end polls instead of blocking.
    polls: bool,
    shares_core: bool,
    yields: bool,
    /// True if a send may take several freights. With PINoF they share the connection, not a send.
    mixes: bool,
    load_share: LoadShare,
    /// Time of the last latency-critical request.
    critical_at: Option<Instant>,
}

impl Batcher {
    /// A batcher without waiting PDUs.
    #[must_use]
    pub fn new(config: &PolicyConfig, role: PolicyRole) -> Self {
        Batcher {
            policy: Policy::new(config, role),
            containers: [Container::default(); 3],
            waiting: 0,
            released: 0,
            holding: Freights::default(),
            due: Freights::default(),
            doorbells: DoorbellTotals::default(),
            in_flight: 0,
            most_in_flight: 0,
            in_others: 0,
            polls: false,
            shares_core: false,
            yields: false,
            mixes: config.kind != PolicyKind::Pinof,
            load_share: LoadShare::default(),
            critical_at: None,
        }
    }

    /// Adds a waiting PDU and returns the freight that carries it.
    #[inline]
    pub fn enqueue(&mut self, now: Instant, pdu: &PduInfo) -> Freight {
        if pdu.urgency == Urgency::Critical {
            self.critical_at = Some(now);
        }
        let freight = self.policy.freight(pdu);
        let waiting = &mut self.containers[freight as usize].waiting;
        waiting.requests += 1;
        waiting.data_bytes = waiting.data_bytes.saturating_add(pdu.data_bytes);
        self.waiting += 1;
        self.holding.insert(freight);
        (waiting.in_flight, waiting.in_others) = (self.in_flight, self.in_others);
        (waiting.polls, waiting.shares_core) = (self.polls, self.shares_core);
        waiting.yields = self.yields;
        let decision = self.policy.on_enqueue(now, waiting, pdu);
        self.apply(freight, decision);
        freight
    }

    /// Ends the turn: nothing more is ready.
    #[inline]
    pub fn drained(&mut self, now: Instant) {
        for freight in self.holding {
            let decision = match self.policy.on_drained(freight, false) {
                Doorbell::ArmUntil(deadline) if deadline <= now => {
                    self.policy.on_drained(freight, true)
                }
                decision => decision,
            };
            self.apply(freight, decision);
        }
    }

    /// Fires the timers that are due.
    #[inline]
    pub fn expire(&mut self, now: Instant) {
        for freight in self.holding {
            let container = &self.containers[freight as usize];
            if container.deadline.is_some_and(|deadline| deadline <= now) {
                let decision = self.policy.on_drained(freight, true);
                self.apply(freight, decision);
            }
        }
    }

    /// Records the completion of a command with `data_bytes`.
    #[inline]
    pub fn completed(&mut self, now: Instant, data_bytes: u32) {
        self.policy.on_complete(now, data_bytes);
    }

    #[inline]
    fn apply(&mut self, freight: Freight, decision: Doorbell) {
        match decision {
            Doorbell::Ring(cause) => self.ring(freight, cause),
            Doorbell::ArmUntil(deadline) => {
                self.containers[freight as usize].deadline = Some(deadline);
            }
        }
    }

    #[inline]
    fn ring(&mut self, freight: Freight, cause: DoorbellCause) {
        match cause {
            DoorbellCause::Size => self.doorbells.size += 1,
            DoorbellCause::Timer => self.doorbells.timer += 1,
            DoorbellCause::Urgent => self.doorbells.urgent += 1,
            DoorbellCause::Drained => self.doorbells.drained += 1,
        }
        let container = &mut self.containers[freight as usize];
        let count = container.waiting.requests;
        container.released += count;
        container.waiting = Backlog::default();
        container.deadline = None;
        self.released += count;
        self.waiting -= count;
        self.holding.remove(freight);
        self.due.insert(freight);
    }

    /// Records that the head of a released freight was put into a caravan.
    #[inline]
    pub fn taken(&mut self, freight: Freight) {
        let released = &mut self.containers[freight as usize].released;
        debug_assert!(*released > 0, "sent before its doorbell");
        *released -= 1;
        if *released == 0 {
            self.due.remove(freight);
        }
        self.released -= 1;
    }

    /// Drops everything without sending.
    #[inline]
    pub fn clear(&mut self) {
        self.containers = [Container::default(); 3];
        (self.waiting, self.released) = (0, 0);
        (self.holding, self.due) = (Freights::default(), Freights::default());
    }

    /// True if this queue pair has recently carried a latency-critical request.
    #[must_use]
    #[inline]
    pub fn is_express(&self, now: Instant) -> bool {
        self.critical_at.is_some_and(|at| now.since(at) < EXPRESS_MEMORY)
    }

    /// Sets whether sends are short, for the sake of other requests.
    #[inline]
    pub fn set_yielding(&mut self, yields: bool) {
        self.yields = yields;
    }

    /// Sets whether both ends of the lane share a core, so that only one of them works at a time.
    #[inline]
    pub fn set_shares_core(&mut self, shares: bool) {
        self.shares_core = shares;
    }

    /// Sets whether this end polls instead of blocking.
    #[inline]
    pub fn set_polling(&mut self, polls: bool) {
        self.polls = polls;
    }

    /// Sets the number of commands in flight.
    #[inline]
    pub fn set_in_flight(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }

    /// Sets the number of commands in flight on the reactor's other queue pairs.
    #[inline]
    pub fn set_in_others(&mut self, in_flight: u32) {
        self.in_others = in_flight;
    }

    /// Ends a turn: adds the turn's peak of commands in flight to the reactor's load.
    #[inline]
    pub fn add_to(&mut self, now: Instant, load: &mut ReactorLoad) {
        if self.most_in_flight > 0 {
            load.note(now, &mut self.load_share, self.most_in_flight);
            self.most_in_flight = 0;
        }
    }

    /// Begins a turn: takes over the number of commands in flight on the reactor's other queue pairs.
    #[inline]
    pub fn take_load(&mut self, now: Instant, load: &mut ReactorLoad) {
        self.in_others = load.in_others(now, &mut self.load_share);
    }

    /// Returns the waiting PDUs of all freights: those that no doorbell has released yet.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let &Self { in_flight, in_others, polls, shares_core, yields, .. } = self;
        let (requests, data_bytes) = (0, 0);
        let mut sum =
            Backlog { requests, data_bytes, in_flight, in_others, polls, shares_core, yields };
        for container in &self.containers {
            sum.requests += container.waiting.requests;
            sum.data_bytes = sum.data_bytes.saturating_add(container.waiting.data_bytes);
        }
        sum
    }

    /// True if the waiting PDUs should stay for a moment while more arrive. Nothing may leave anyway, and they are few
    /// compared with the commands in flight.
    #[must_use]
    #[inline]
    pub fn gathers(&self) -> bool {
        self.waiting > 0 && self.released == 0 && self.policy.gathers(&self.backlog())
    }

    /// True if PDUs wait for a doorbell.
    #[must_use]
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// PDUs that may be sent.
    #[must_use]
    #[inline]
    pub fn released(&self) -> u32 {
        self.released
    }

    /// Freights with PDUs that may be sent.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Freights {
        self.due
    }

    /// Limits of a caravan with this freight.
    #[inline]
    #[must_use]
    pub fn limits(&self, freight: Freight) -> CaravanLimits {
        self.policy.limits(freight, self.yields)
    }

    /// True if one send may take several freights.
    #[inline]
    #[must_use]
    pub fn mixes(&self) -> bool {
        self.mixes
    }

    /// Time at which [`Batcher::expire`] must be called.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.holding.filter_map(|freight| self.containers[freight as usize].deadline).min()
    }

    /// Doorbells rung so far.
    #[must_use]
    #[inline]
    pub fn doorbells(&self) -> DoorbellTotals {
        self.doorbells
    }
}
