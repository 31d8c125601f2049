//! The target: receives, executes, answers. Turn by turn as the engine does.

use super::READ_BYTES;
use super::costs::{ANSWER, EXECUTE};
use super::cpu::Core;
use super::wire::{Pdu, Wire};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::target::qpair::{Config, Qpair, RxEvent};
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Of its wake-up times.
const SEED: u64 = 2;

/// What executes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// At once.
    Memory,
    /// An SSD: each command takes so long, so many at once.
    Ssd { service: Duration, parallel: usize },
}

pub struct Target {
    pub core: Core,
    pub qpair: Qpair,
    backend: Backend,
    /// In the SSD: until when, and which slot; the first to end is first.
    executing: VecDeque<(Instant, u16)>,
}

impl Target {
    pub fn new(policy: PolicyConfig, backend: Backend, measured: Range<Instant>) -> Self {
        let config = Config {
            digests: Digests::default(),
            maxh2cdata: 128 << 10,
            in_capsule_bytes_max: 8192,
            policy,
        };
        let (core, qpair) = (Core::new(measured, SEED), Qpair::new(config));
        Target { core, qpair, backend, executing: VecDeque::new() }
    }

    /// Whether the SSD has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.executing.is_empty()
    }

    /// What it next has to do something for.
    pub fn next(&mut self, inbox: &Wire) -> Option<Instant> {
        let executed = self.executing.front().map(|&(until, _)| until);
        let deadline = self.qpair.batcher().deadline();
        [inbox.next(), deadline, executed].into_iter().flatten().min()
    }

    pub fn turn(&mut self, event: Instant, inbox: &mut Wire, outbox: &mut Wire) {
        let now = self.core.begin(event);
        while let Some((_, slot)) = self.executing.pop_front_if(|&mut (until, _)| until <= now) {
            self.qpair.respond_with_data(now, slot, READ_BYTES, 0);
        }
        for pdu in self.core.receive(inbox) {
            self.core.spend(EXECUTE);
            self.parse(now, &pdu);
            self.core.flush(&mut self.qpair, outbox, ANSWER);
        }
        self.core.end(now, &mut self.qpair, outbox, ANSWER);
    }

    fn parse(&mut self, now: Instant, pdu: &Pdu) {
        let mut at = 0;
        let event = self.qpair.poll_rx(now, &pdu.header, &mut at).expect("a valid PDU");
        assert_eq!(at, pdu.header.len());
        if let Some(RxEvent::Command { slot, .. }) = event {
            self.execute(now, slot);
        }
    }

    fn execute(&mut self, now: Instant, slot: u16) {
        let Backend::Ssd { service, parallel } = self.backend else {
            return self.qpair.respond_with_data(now, slot, READ_BYTES, 0);
        };
        // It begins when it has arrived and the one `parallel` before it has ended.
        let before = self.executing.len().checked_sub(parallel);
        let begin = before.map_or(now, |index| self.executing[index].0.max(now));
        self.executing.push_back((begin + service, slot));
    }
}
