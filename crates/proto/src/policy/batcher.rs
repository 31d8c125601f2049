//! Applies a policy to a lane's FIFO: what waits, what a doorbell has released, when to wake up.

use super::{
    Backlog, BatchPolicy, Cause, Doorbell, Policy, PolicyConfig, PolicyKind, Role, Urgency,
};
use crate::caravan::Limits;
use crate::time::Instant;
use core::time::Duration;

/// Doorbells rung, by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Doorbells {
    /// Full caravans.
    pub size: u64,
    /// Timers.
    pub timer: u64,
    /// Urgent requests.
    pub urgent: u64,
    /// Nothing more ready.
    pub drained: u64,
}

/// The FIFO's account. The owner keeps the FIFO itself.
pub struct Batcher {
    policy: Policy,
    limits: Limits,
    waiting: Backlog,
    released: u32,
    deadline: Option<Instant>,
    doorbells: Doorbells,
    tracks_completions: bool,
}

impl Batcher {
    /// An empty FIFO.
    #[must_use]
    pub fn new(config: &PolicyConfig, role: Role) -> Self {
        Batcher {
            policy: Policy::new(config, role),
            limits: config.limits,
            waiting: Backlog::default(),
            released: 0,
            deadline: None,
            doorbells: Doorbells::default(),
            tracks_completions: !matches!(config.kind, PolicyKind::None | PolicyKind::I10),
        }
    }

    /// One more entry of `data_bytes` is in the FIFO.
    pub fn enqueue(&mut self, now: Instant, data_bytes: u32, urgency: Urgency) {
        self.waiting.requests += 1;
        self.waiting.data_bytes = self.waiting.data_bytes.saturating_add(data_bytes);
        let decision = self.policy.on_enqueue(now, &self.waiting, urgency);
        self.apply(decision);
    }

    /// The turn has nothing more to add.
    pub fn drained(&mut self, now: Instant) {
        if self.waiting.requests > 0 {
            let decision = self.policy.on_drained(now, &self.waiting);
            self.apply(decision);
        }
    }

    /// Time has passed: fires the timer if it is due.
    pub fn expire(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) && self.waiting.requests > 0 {
            let decision = self.policy.on_timeout(now, &self.waiting);
            self.apply(decision);
        }
    }

    /// A command completed.
    pub fn completed(&mut self, now: Instant, latency: Duration) {
        if self.tracks_completions && self.waiting.requests > 0 {
            let decision = self.policy.on_complete(now, &self.waiting, latency);
            self.apply(decision);
        }
    }

    fn apply(&mut self, decision: Doorbell) {
        match decision {
            Doorbell::Ring(cause) => self.ring(cause),
            Doorbell::ArmUntil(deadline) => self.deadline = Some(deadline),
            Doorbell::AwaitCompletion => {
                debug_assert!(self.waiting.in_flight > 0, "held work without a wake-up");
                self.deadline = None;
            }
        }
    }

    fn ring(&mut self, cause: Cause) {
        match cause {
            Cause::Size => self.doorbells.size += 1,
            Cause::Timer => self.doorbells.timer += 1,
            Cause::Urgent => self.doorbells.urgent += 1,
            Cause::Drained => self.doorbells.drained += 1,
        }
        self.released += self.waiting.requests;
        self.waiting = Backlog { in_flight: self.waiting.in_flight, ..Backlog::default() };
        self.deadline = None;
    }

    /// The head of the FIFO, released before, was put into a caravan.
    pub fn taken(&mut self) {
        debug_assert!(self.released > 0, "sent before its doorbell");
        self.released -= 1;
    }

    /// The FIFO was emptied without sending.
    pub fn clear(&mut self) {
        self.waiting = Backlog { in_flight: self.waiting.in_flight, ..Backlog::default() };
        self.released = 0;
        self.deadline = None;
    }

    /// How many commands are in flight now, for policies that ask.
    pub fn set_in_flight(&mut self, in_flight: u32) {
        self.waiting.in_flight = in_flight;
    }

    /// What no doorbell has released yet.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        self.waiting
    }

    /// Entries at the head of the FIFO that may be sent.
    #[must_use]
    pub fn released(&self) -> u32 {
        self.released
    }

    /// Limits of a caravan.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// When [`Batcher::expire`] must be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Doorbells rung so far.
    #[must_use]
    pub fn doorbells(&self) -> Doorbells {
        self.doorbells
    }
}
