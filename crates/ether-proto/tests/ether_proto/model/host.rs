//! The host: receives, completes, submits as the load requires, and sends. It takes turns as the engine does.

use super::costs::Costs;
use super::cpu::ModelCore;
use super::load::{LoadOperations, LoadSource, ModelLoad};
use super::wire::{ModelWire, ModelWires, Pdu};
use super::{BLOCKS, READ_BYTES, ZEROES};
use roadtrain_host_proto::qpair::{CommandTransfer, HostQpair, HostQpairConfig, HostRxEvent};
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::ops::Range;
use std::time::Duration;

/// Completions parsed before the load may submit again.
const PARSE_BATCH: usize = 32;

/// Seed of its wake-up times.
const SEED: u64 = 1;

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCompletion {
    pub since: Instant,
    pub at: Instant,
}

pub struct ModelHost {
    pub core: ModelCore,
    pub lanes: Vec<ModelLane>,
    /// Commands in flight over all lanes.
    in_flight: u32,
    pub done: Vec<ModelCompletion>,
}

/// A queue pair and the load that it carries.
pub struct ModelLane {
    pub qpair: HostQpair,
    source: LoadSource,
    operations: LoadOperations,
    /// Requests so far.
    submitted: u64,
    /// When requests were due, by slot.
    since: Vec<Instant>,
    /// Slots whose completions the load has not seen.
    completed: Vec<u16>,
    outstanding: u32,
}

impl ModelHost {
    /// Creates a host whose lanes each have that load; wake-ups depend on its `number`.
    pub fn new(
        number: u64,
        policy: PolicyConfig,
        (costs, waiting): (Costs, WaitPolicy),
        lanes: usize,
        (load, operations): (&ModelLoad, LoadOperations),
        measured: Range<Instant>,
    ) -> Self {
        let lane =
            |_| ModelLane::new(policy, LoadSource::new(load.clone(), measured.end), operations);
        let lanes = (0..lanes).map(lane).collect();
        let core = ModelCore::new((costs, waiting), measured, SEED + 2 * number);
        ModelHost { core, lanes, in_flight: 0, done: Vec::new() }
    }

    pub fn outstanding(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.outstanding).sum()
    }

    /// Time of the next event that needs a turn.
    pub fn next(&mut self, wires: &[ModelWires]) -> Option<Instant> {
        let lanes = self.lanes.iter_mut().zip(wires);
        lanes.filter_map(|(lane, wires)| lane.next(&wires.to_host)).min()
    }

    pub fn turn(&mut self, event: Instant, wires: &mut [ModelWires]) {
        let now = self.core.begin(event);
        for (index, wires) in wires.iter_mut().enumerate() {
            self.receive(now, index, wires);
        }
        for (lane, wires) in self.lanes.iter_mut().zip(wires) {
            self.core.drain(now, &mut lane.qpair, &mut wires.to_target, Duration::ZERO);
        }
        let due = self.lanes.iter_mut().filter_map(ModelLane::due).min();
        let expects = self.outstanding() > 0;
        self.core.end(expects, due);
    }

    /// Receives what has arrived over a lane, and runs the load.
    fn receive(&mut self, now: Instant, index: usize, wires: &mut ModelWires) {
        let (lane, done) = (&mut self.lanes[index], &mut self.done);
        let (in_flight, core) = (&mut self.in_flight, &mut self.core);
        for pdu in core.receive(&mut wires.to_host) {
            core.spend(core.costs.complete);
            if pdu.data_bytes > 0 {
                core.spend(core.costs.data_in);
            }
            lane.parse(now, &pdu, in_flight);
            if lane.completed.len() == PARSE_BATCH {
                lane.run_load(now, in_flight, core, &mut wires.to_target, done);
            }
        }
        lane.run_load(now, in_flight, core, &mut wires.to_target, done);
    }
}

impl ModelLane {
    fn new(policy: PolicyConfig, source: LoadSource, operations: LoadOperations) -> Self {
        let config = HostQpairConfig {
            digests: Digests::default(),
            queue_entries: super::QUEUE_ENTRIES,
            in_capsule_bytes: 8192,
            policy,
        };
        ModelLane {
            qpair: HostQpair::new(Instant::default(), config),
            source,
            operations,
            submitted: 0,
            since: vec![Instant::default(); usize::from(super::QUEUE_ENTRIES)],
            completed: Vec::new(),
            outstanding: 0,
        }
    }

    fn next(&mut self, inbox: &ModelWire) -> Option<Instant> {
        [inbox.next(), self.due()].into_iter().flatten().min()
    }

    /// Time of the next action that needs no arrival.
    fn due(&mut self) -> Option<Instant> {
        let load = if self.qpair.room() > 0 { self.source.next() } else { None };
        let deadline = self.qpair.batcher().deadline();
        [deadline, load].into_iter().flatten().min()
    }

    fn parse(&mut self, now: Instant, pdu: &Pdu, in_flight: &mut u32) {
        let before = self.qpair.in_flight();
        self.poll(now, &pdu.header);
        if pdu.data_bytes > 0 {
            let wanted = self.qpair.wanted().map(|(_, _, length)| length);
            assert_eq!(wanted, Some(pdu.data_bytes));
            self.qpair.placed(&ZEROES[..pdu.data_bytes as usize]);
            self.poll(now, &[]);
        }
        *in_flight -= before - self.qpair.in_flight();
    }

    fn poll(&mut self, now: Instant, input: &[u8]) {
        let mut at = 0;
        while let Some(event) =
            self.qpair.poll_rx(now, input, &mut at, |_, _, _| {}).expect("a valid PDU")
        {
            if let HostRxEvent::Complete { slot, cqe, data_intact } = event {
                assert!(cqe.status().is_success() && data_intact);
                self.completed.push(slot);
            }
        }
        assert_eq!(at, input.len());
    }

    /// Passes completions to the load, which then submits.
    fn run_load(
        &mut self,
        now: Instant,
        in_flight: &mut u32,
        core: &mut ModelCore,
        outbox: &mut ModelWire,
        done: &mut Vec<ModelCompletion>,
    ) {
        for slot in self.completed.drain(..) {
            self.outstanding -= 1;
            done.push(ModelCompletion { since: self.since[usize::from(slot)], at: core.clock });
        }
        while self.qpair.room() > 0
            && let Some(due) = self.source.take(now, self.outstanding)
        {
            let since = due.since.unwrap_or(core.clock);
            core.spend(core.costs.submit);
            let in_others = *in_flight - self.qpair.in_flight();
            self.qpair.batcher().set_in_others(in_others);
            self.qpair.batcher().set_polling(core.waits.polls());
            let is_write = self.operations.is_write(self.submitted);
            self.submitted += 1;
            let (opcode, data) = match is_write {
                false => (opcode::READ, CommandTransfer::In(READ_BYTES)),
                true => (opcode::WRITE, CommandTransfer::Out(READ_BYTES)),
            };
            let sqe = Sqe::rw(opcode, 1, 0, BLOCKS);
            let slot = self.qpair.submit(now, &sqe, data, Urgency::Normal);
            self.since[usize::from(slot.expect("it has room"))] = since;
            self.outstanding += 1;
            *in_flight += 1;
            core.flush(&mut self.qpair, outbox, Duration::ZERO);
        }
    }
}
