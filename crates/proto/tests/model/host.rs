//! The host: receives, completes, submits as the load says, sends. Turn by turn as the engine does.

use super::costs::{COMPLETE, SUBMIT};
use super::cpu::Core;
use super::load::Source;
use super::wire::{Pdu, Wire};
use super::{BLOCKS, READ_BYTES, ZEROES};
use roadtrain_proto::host::qpair::{Config, Data, Qpair, RxEvent};
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::ops::Range;
use std::time::Duration;

/// Completions parsed before the load may submit again.
const PARSE_BATCH: usize = 32;

/// Of its wake-up times.
const SEED: u64 = 1;

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub since: Instant,
    pub at: Instant,
}

pub struct Host {
    pub core: Core,
    pub qpair: Qpair,
    source: Source,
    /// When requests were due, by slot.
    since: Vec<Instant>,
    /// Slots whose completions the load has not seen.
    completed: Vec<u16>,
    outstanding: u32,
    pub done: Vec<Done>,
}

impl Host {
    pub fn new(policy: PolicyConfig, source: Source, measured: Range<Instant>) -> Self {
        let config = Config {
            digests: Digests::default(),
            queue_entries: super::QUEUE_ENTRIES,
            in_capsule_bytes: 8192,
            policy,
        };
        Host {
            core: Core::new(measured, SEED),
            qpair: Qpair::new(Instant::default(), config),
            source,
            since: vec![Instant::default(); usize::from(super::QUEUE_ENTRIES)],
            completed: Vec::new(),
            outstanding: 0,
            done: Vec::new(),
        }
    }

    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// What it next has to do something for.
    pub fn next(&mut self, inbox: &Wire) -> Option<Instant> {
        let load = if self.qpair.room() > 0 { self.source.next() } else { None };
        let deadline = self.qpair.batcher().deadline();
        [inbox.next(), deadline, load].into_iter().flatten().min()
    }

    pub fn turn(&mut self, event: Instant, inbox: &mut Wire, outbox: &mut Wire) {
        let now = self.core.begin(event);
        for pdu in self.core.receive(inbox) {
            self.core.spend(COMPLETE);
            self.parse(now, &pdu);
            if self.completed.len() == PARSE_BATCH {
                self.run_load(now, outbox);
            }
        }
        self.run_load(now, outbox);
        self.core.end(now, &mut self.qpair, outbox, Duration::ZERO);
    }

    fn parse(&mut self, now: Instant, pdu: &Pdu) {
        self.poll(now, &pdu.header);
        if pdu.data_bytes > 0 {
            let wanted = self.qpair.wanted().map(|(_, _, length)| length);
            assert_eq!(wanted, Some(pdu.data_bytes));
            self.qpair.placed(&ZEROES[..pdu.data_bytes as usize]);
            self.poll(now, &[]);
        }
    }

    fn poll(&mut self, now: Instant, input: &[u8]) {
        let mut at = 0;
        while let Some(event) = self.qpair.poll_rx(now, input, &mut at).expect("a valid PDU") {
            if let RxEvent::Complete { slot, cqe, data_intact } = event {
                assert!(cqe.status().is_success() && data_intact);
                self.completed.push(slot);
            }
        }
        assert_eq!(at, input.len());
    }

    /// The load hears of completions and submits.
    fn run_load(&mut self, now: Instant, outbox: &mut Wire) {
        for slot in self.completed.drain(..) {
            self.outstanding -= 1;
            self.done.push(Done { since: self.since[usize::from(slot)], at: self.core.clock });
        }
        while self.qpair.room() > 0
            && let Some(due) = self.source.take(now, self.outstanding)
        {
            let since = due.since.unwrap_or(self.core.clock);
            self.core.spend(SUBMIT);
            let sqe = Sqe::rw(opcode::READ, 1, 0, BLOCKS);
            let slot = self.qpair.submit(now, &sqe, Data::In(READ_BYTES), Urgency::Normal);
            self.since[usize::from(slot.expect("it has room"))] = since;
            self.outstanding += 1;
            self.core.flush(&mut self.qpair, outbox, Duration::ZERO);
        }
    }
}
