//! The target's end: answers each request from a large memory.

use super::args::Args;
use super::case::Case;
use super::end::{Counts, End, place};
use super::pack::{Record, What};
use crate::floor::{Direction, Memory};
use roadtrain_reactor::tuning;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Target {
    case: Case,
    end: End,
    memory: Memory,
    /// Requests that are complete and not yet answered.
    ready: Vec<Record>,
    requests: u64,
}

impl Target {
    pub(super) fn new(args: &Args, case: Case, end: End) -> anyhow::Result<Target> {
        let memory = Memory::new(args.memory, true)?;
        Ok(Target { case, end, memory, ready: Vec::new(), requests: 0 })
    }

    /// Answers until all is over.
    pub(super) fn serve(&mut self, over: &AtomicBool) -> anyhow::Result<Counts> {
        while !over.load(Ordering::Relaxed) {
            let Target { case, end, memory, ready, .. } = self;
            let begun = end.receive(|record, payload| match (case.rw, record.what) {
                (Direction::Read, What::Command) => {
                    let block = memory.at(record.block as usize * case.bs, case.bs);
                    tuning::prefetch_read(block, tuning::PREFETCH_LINES);
                    ready.push(record);
                }
                (Direction::Write, What::Data { index }) => {
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
            if self.case.rw == Direction::Read {
                let block = self.memory.at(request.block as usize * self.case.bs, self.case.bs);
                for index in 0..self.case.pieces() {
                    let (at, octets) = self.case.span(index);
                    let record = Record { what: What::Data { index }, ..request };
                    // SAFETY: within the block, whose memory outlives the port's use of it.
                    unsafe { self.end.put(record, (block.add(at), octets))? };
                }
            }
            let record = Record { what: What::Completion, ..request };
            // SAFETY: no payload.
            unsafe { self.end.put(record, (ptr::null(), 0))? };
        }
        self.end.flush()?;
        Ok(())
    }
}
