//! Passes over a lane's share with large requests: filling it before, reading it back after the load.

use super::plan::LoadPlan;
use super::rng::SplitMix;
use super::verify::{self, ExpectedBlock, Ledger};
use roadtrain_host_engine::{Class, FrontTurn, IoCompletion, IoOp, IoRequest, LaneId};
use roadtrain_system::buffer::Buffer;
use std::io;
use std::ops::Range;

/// Requests in flight in a sweep.
const SWEEP_DEPTH: usize = 8;

/// Kind of sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SweepKind {
    /// Writes every slot.
    Fill,
    /// Reads the slots that were written and checks them.
    ReadBack,
}

/// A pass in progress. Its requests are urgent: sweeps do not measure a policy.
pub(super) struct Sweep {
    kind: SweepKind,
    share: Range<u64>,
    next: u64,
    chunk_slots: u64,
    /// First slot and slot count of each request in flight.
    flights: [Option<(u64, u64)>; SWEEP_DEPTH],
    buffers: Vec<Buffer>,
}

/// Result of a sweep request.
#[derive(Debug, Default)]
pub(super) struct SweepResult {
    /// Blocks checked.
    pub checked: u64,
    /// Descriptions of wrong blocks.
    pub wrong: Vec<String>,
}

impl Sweep {
    /// Creates a sweep over `share`.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(plan: &LoadPlan, kind: SweepKind, share: Range<u64>) -> io::Result<Sweep> {
        let chunk_slots = u64::from(plan.sweep_slots);
        let chunks = (share.end - share.start).div_ceil(chunk_slots);
        let count = chunks.min(SWEEP_DEPTH as u64) as usize;
        // A lane's share may be small: no huge page for each of many lanes.
        let bytes = plan.slot_bytes() * chunk_slots.min(share.end - share.start) as usize;
        let mut buffers: Vec<Buffer> = (0..count).map(|_| Buffer::alloc(bytes)).collect();
        let mut rng = SplitMix::new(plan.author.seed, share.start);
        if kind == SweepKind::Fill && !plan.verify {
            buffers.iter_mut().for_each(|buffer| randomise(buffer, &mut rng));
        }
        let next = share.start;
        Ok(Sweep { kind, share, next, chunk_slots, flights: [None; SWEEP_DEPTH], buffers })
    }

    /// True if all requests are done.
    #[must_use]
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.share.end && self.flights.iter().all(Option::is_none)
    }

    /// Sends no more requests.
    pub(super) fn abandon(&mut self) {
        self.next = self.share.end;
    }

    /// Sends requests until the lane has no capacity; `mark` is added to the tokens.
    pub(super) fn submit(
        &mut self,
        plan: &LoadPlan,
        ledger: Option<&Ledger>,
        (turn, lane): (&mut dyn FrontTurn, LaneId),
        mark: u64,
    ) {
        while let Some(index) = self.flights.iter().position(Option::is_none) {
            let Some((first, count)) = self.next_chunk(ledger) else { return };
            let Some(mut buffer) = self.buffers.pop() else { return };
            buffer.set_len(plan.slot_bytes() * count as usize);
            if self.kind == SweepKind::Fill && plan.verify {
                stamp(plan, &mut buffer, first, 1);
            }
            let request = IoRequest {
                op: if self.kind == SweepKind::Fill { IoOp::Write } else { IoOp::Read },
                nsid: plan.nsid,
                slba: plan.lba_of(first),
                blocks: count as u32 * plan.slot_blocks,
                fua: false,
                urgent: true,
                class: Class::Normal,
                buffer: Some(buffer),
                token: mark | index as u64,
            };
            if let Err(request) = turn.submit(lane, request) {
                self.buffers.extend(request.buffer);
                return;
            }
            self.flights[index] = Some((first, count));
            self.next = first + count;
        }
    }

    /// Returns the next slots to move; reading back skips slots that were not written.
    fn next_chunk(&mut self, ledger: Option<&Ledger>) -> Option<(u64, u64)> {
        loop {
            let first = self.next;
            let count = self.chunk_slots.min(self.share.end.saturating_sub(first));
            if count == 0 {
                return None;
            }
            let is_written = |slot: u64| {
                ledger.is_some_and(|ledger| ledger.generation(slot - self.share.start) > 0)
            };
            if self.kind == SweepKind::Fill || (first..first + count).any(is_written) {
                return Some((first, count));
            }
            self.next += count;
        }
    }

    /// Takes a completion, checks data that was read, records slots that were written.
    pub(super) fn complete(
        &mut self,
        plan: &LoadPlan,
        ledger: Option<&mut Ledger>,
        completion: IoCompletion,
        index: usize,
    ) -> SweepResult {
        let mut swept = SweepResult::default();
        let Some((first, count)) = self.flights[index].take() else { return swept };
        let status = completion.status;
        match (self.kind, ledger, &completion.buffer) {
            _ if !status.is_success() => {
                let what = if self.kind == SweepKind::Fill { "filling" } else { "reading back" };
                swept.wrong.push(format!("{what} block {}: {status}", plan.lba_of(first)));
            }
            (SweepKind::Fill, Some(ledger), _) => {
                for slot in first..first + count {
                    if let Some(taken) = ledger.take(slot - self.share.start) {
                        ledger.release(taken, 1);
                    }
                }
            }
            (SweepKind::ReadBack, Some(ledger), Some(buffer)) => {
                let slots = buffer.chunks_exact(plan.slot_bytes());
                for (slot, data) in (first..first + count).zip(slots) {
                    let generation = ledger.generation(slot - self.share.start);
                    if generation > 0 {
                        let expected = ExpectedBlock::Generation(generation);
                        check(plan, data, slot, expected, &mut swept);
                    }
                }
            }
            _ => {}
        }
        self.buffers.extend(completion.buffer);
        swept
    }
}

/// Writes the pattern of consecutive slots.
pub(super) fn stamp(plan: &LoadPlan, data: &mut [u8], slot: u64, generation: u32) {
    let blocks = data.chunks_exact_mut(plan.block_bytes as usize);
    for (block, lba) in blocks.zip(plan.lba_of(slot)..) {
        verify::fill(block, plan.author, lba, generation);
    }
}

/// Checks every block of a slot.
pub(super) fn check(
    plan: &LoadPlan,
    data: &[u8],
    slot: u64,
    expected: ExpectedBlock,
    swept: &mut SweepResult,
) {
    let blocks = data.chunks_exact(plan.block_bytes as usize);
    for (block, lba) in blocks.zip(plan.lba_of(slot)..) {
        match verify::check(block, plan.author, lba, expected) {
            Ok(verify::BlockCheck::Checked) => swept.checked += 1,
            Ok(verify::BlockCheck::Unwritten) => {}
            Err(wrong) => swept.wrong.push(format!("block {lba} {wrong}")),
        }
    }
}

/// Fills `data` with random bytes, which do not compress.
pub(super) fn randomise(data: &mut [u8], rng: &mut SplitMix) {
    let (words, _) = data.as_chunks_mut::<8>();
    words.iter_mut().for_each(|word| *word = rng.next().to_le_bytes());
}
