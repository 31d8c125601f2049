//! The target's end: answers each request from a large memory.

use super::args::FloorEtherArgs;
use super::case::FloorEtherCase;
use super::end::{FloorEtherCounts, FloorEtherEnd, place};
use super::pack::{FloorRecord, FloorRecordKind};
use crate::floor::{DataDirection, FloorMemory};
use roadtrain_reactor::tuning;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct FloorEtherTarget {
    case: FloorEtherCase,
    end: FloorEtherEnd,
    memory: FloorMemory,
    /// Requests that are complete and not yet answered.
    ready: Vec<FloorRecord>,
    requests: u64,
}

impl FloorEtherTarget {
    pub(super) fn new(
        args: &FloorEtherArgs,
        case: FloorEtherCase,
        end: FloorEtherEnd,
    ) -> anyhow::Result<FloorEtherTarget> {
        let memory = FloorMemory::new(args.memory, true)?;
        Ok(FloorEtherTarget { case, end, memory, ready: Vec::new(), requests: 0 })
    }

    /// Answers until all is over.
    pub(super) fn serve(&mut self, over: &AtomicBool) -> anyhow::Result<FloorEtherCounts> {
        while !over.load(Ordering::Relaxed) {
            let FloorEtherTarget { case, end, memory, ready, .. } = self;
            let begun = end.receive(|record, payload| match (case.rw, record.what) {
                (DataDirection::Read, FloorRecordKind::Command) => {
                    let block = memory.at(record.block as usize * case.bs, case.bs);
                    tuning::prefetch_read(block, tuning::PREFETCH_LINES);
                    ready.push(record);
                }
                (DataDirection::Write, FloorRecordKind::Data { index }) => {
                    place(case, memory, record.block as usize, index, payload);
                    if index + 1 == case.pieces() {
                        ready.push(record);
                    }
                }
                _ => {}
            })?;
            if begun {
                self.answer()?;
            }
        }
        Ok(self.end.counts(self.requests))
    }

    fn answer(&mut self) -> anyhow::Result<()> {
        self.requests += self.ready.len() as u64;
        for request in self.ready.drain(..) {
            if self.case.rw == DataDirection::Read {
                let block = self.memory.at(request.block as usize * self.case.bs, self.case.bs);
                for index in 0..self.case.pieces() {
                    let (at, bytes) = self.case.span(index);
                    let record = FloorRecord { what: FloorRecordKind::Data { index }, ..request };
                    // SAFETY: within the block, whose memory outlives the port's use of it.
                    unsafe { self.end.put(record, (block.add(at), bytes))? };
                }
            }
            let record = FloorRecord { what: FloorRecordKind::Completion, ..request };
            // SAFETY: no payload.
            unsafe { self.end.put(record, (ptr::null(), 0))? };
        }
        self.end.flush()?;
        Ok(())
    }
}
