//! The target: receives, executes and responds. It takes turns as the engine does.

use super::costs::Costs;
use super::cpu::ModelCore;
use super::wire::{ModelWires, Pdu};
use super::{READ_BYTES, ZEROES};
use roadtrain_proto::policy::{PolicyConfig, ReactorLoad};
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use roadtrain_target_proto::qpair::{TargetQpair, TargetQpairConfig, TargetRxEvent};
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::opcode;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Seed of its wake-up times.
const SEED: u64 = 2;

/// Backing store that executes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStore {
    /// Memory: executes at once.
    Memory,
    /// An SSD: service time of a command, and commands in parallel.
    Ssd { service: Duration, parallel: usize },
}

pub struct ModelTarget {
    pub core: ModelCore,
    pub lanes: Vec<TargetQpair>,
    /// True for a write, by lane and slot.
    writes: Vec<Vec<bool>>,
    load: ReactorLoad,
    store: ModelStore,
    /// Commands in the SSD: end, lane and slot; the first to end is first.
    executing: VecDeque<(Instant, usize, u16)>,
}

impl ModelTarget {
    pub fn new(
        policy: PolicyConfig,
        (costs, waiting): (Costs, WaitPolicy),
        lanes: usize,
        store: ModelStore,
        measured: Range<Instant>,
    ) -> Self {
        let config = TargetQpairConfig {
            digests: Digests::default(),
            maxh2cdata: 128 << 10,
            in_capsule_bytes_max: 8192,
            policy,
        };
        ModelTarget {
            core: ModelCore::new((costs, waiting), measured, SEED),
            lanes: (0..lanes).map(|_| TargetQpair::new(config)).collect(),
            writes: vec![vec![false; usize::from(super::QUEUE_ENTRIES)]; lanes],
            load: ReactorLoad::default(),
            store,
            executing: VecDeque::new(),
        }
    }

    /// True if the SSD executes no command.
    pub fn is_idle(&self) -> bool {
        self.executing.is_empty()
    }

    /// Time of the next event that needs a turn.
    pub fn next(&mut self, wires: &[ModelWires]) -> Option<Instant> {
        let come = wires.iter().filter_map(|wires| wires.to_target.next()).min();
        [come, self.due()].into_iter().flatten().min()
    }

    /// Time of the next action that needs no arrival.
    fn due(&mut self) -> Option<Instant> {
        let executed = self.executing.front().map(|&(until, ..)| until);
        let doorbells = self.lanes.iter_mut().filter_map(|lane| lane.batcher().deadline());
        doorbells.chain(executed).min()
    }

    pub fn turn(&mut self, event: Instant, wires: &mut [ModelWires]) {
        let now = self.core.begin(event);
        let ended = self.executing.partition_point(|&(until, ..)| until <= now);
        let ended: Vec<_> = self.executing.drain(..ended).collect();
        if !ended.is_empty() {
            self.report_in_store();
        }
        for (_, lane, slot) in ended {
            self.answer(now, lane, slot);
        }
        let answer = self.core.costs.answer;
        let polls = self.core.waits.polls();
        for (index, wires) in wires.iter_mut().enumerate() {
            let arrived = self.core.receive(&mut wires.to_target);
            let lane = &mut self.lanes[index];
            if arrived.is_empty() && !lane.has_tx() && !lane.batcher().has_waiting() {
                continue;
            }
            lane.batcher().take_load(now, &mut self.load);
            lane.batcher().set_polling(polls);
            for pdu in arrived {
                self.core.spend(self.core.costs.execute);
                if pdu.data_bytes > 0 {
                    self.core.spend(self.core.costs.data_in);
                }
                self.parse(now, index, &pdu);
                self.core.flush(&mut self.lanes[index], &mut wires.to_host, answer);
            }
            let lane = &mut self.lanes[index];
            lane.batcher().add_to(now, &mut self.load);
            self.core.drain(now, lane, &mut wires.to_host, answer);
        }
        let due = self.due();
        self.core.end(true, due);
    }

    fn parse(&mut self, now: Instant, index: usize, pdu: &Pdu) {
        let mut at = 0;
        let event = self.lanes[index].poll_rx(now, &pdu.header, &mut at, |_, _, _| {});
        let event = event.expect("a valid PDU");
        assert_eq!(at, pdu.header.len());
        if let Some(TargetRxEvent::Command { slot, sqe, .. }) = event {
            self.writes[index][usize::from(slot)] = sqe.opcode == opcode::WRITE;
            if pdu.data_bytes > 0 {
                let data = &ZEROES[..pdu.data_bytes as usize];
                let event = self.lanes[index].poll_rx(now, data, &mut 0, |_, _, _| {});
                assert!(matches!(event, Ok(Some(TargetRxEvent::DataDone { .. }))), "{event:?}");
            }
            self.execute(now, index, slot);
        }
    }

    /// Passes the number of commands in the store to the lane, as the engine does.
    fn report_in_store(&mut self) {
        if let [lane] = &mut self.lanes[..] {
            lane.set_in_store(self.executing.len() as u32);
        }
    }

    fn answer(&mut self, now: Instant, index: usize, slot: u16) {
        let lane = &mut self.lanes[index];
        match self.writes[index][usize::from(slot)] {
            true => lane.respond(now, slot, Status::SUCCESS, 0),
            false => lane.respond_with_data(now, slot, READ_BYTES, 0),
        }
    }

    fn execute(&mut self, now: Instant, index: usize, slot: u16) {
        let ModelStore::Ssd { service, parallel } = self.store else {
            return self.answer(now, index, slot);
        };
        // A command begins when it has arrived and the one `parallel` before it has ended.
        let before = self.executing.len().checked_sub(parallel);
        let begin = before.map_or(now, |index| self.executing[index].0.max(now));
        self.executing.push_back((begin + service, index, slot));
        self.report_in_store();
    }
}
