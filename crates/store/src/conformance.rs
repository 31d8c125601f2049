//! Conformance test that every store has to pass.
//!
//! ```
//! use roadtrain_store::{MemoryStore, conformance};
//! use std::sync::Arc;
//!
//! conformance::run(|| Arc::new(MemoryStore::new(1 << 20, 512, false).unwrap()));
//! ```

use crate::{
    ByteRange, Store, StoreCompletion, StoreCompletions, StoreExecutor, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::clock;
use roadtrain_system::ring::{ReactorRing, UserData};
use roadtrain_wire::lba_status::{list_bytes, parse_list};
use roadtrain_wire::status::Status;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for a completion.
const LONG: Duration = Duration::from_secs(60);
/// Time without any completion after all operations have completed.
const QUIET: Duration = Duration::from_millis(20);
/// Least blocks of a store under test.
const BLOCKS_MIN: u64 = 64;

/// Tests the stores that `make` returns. Each is new, has no other user, and has 64 blocks at least.
///
/// # Panics
/// Panics if the store breaks the contract; the message says how.
pub fn run(make: impl Fn() -> Arc<dyn Store>) {
    for check in [
        describes_itself,
        keeps_what_is_written,
        answers_each_of_many_once,
        compares,
        zeroes_and_discards,
        refuses_what_is_outside,
        ends_what_is_cancelled,
        lends_what_it_holds,
        reports_what_is_allocated,
        resizes_or_refuses,
    ] {
        let mut harness = ConformanceHarness::new(make());
        check(&mut harness);
        harness.is_quiet();
    }
}

/// Minimal reactor: a ring and an executor.
struct ConformanceHarness {
    store: Arc<dyn Store>,
    ring: ReactorRing,
    executor: StoreExecutor,
    from_threads: Receiver<StoreCompletion>,
    submitted: u32,
}

impl ConformanceHarness {
    fn new(store: Arc<dyn Store>) -> ConformanceHarness {
        let (sender, from_threads) = channel();
        let completions = StoreCompletions::new(move |completion| sender.send(completion).is_ok());
        let ring = ReactorRing::new(64).expect("io_uring");
        ConformanceHarness {
            store,
            ring,
            executor: StoreExecutor::new(completions),
            from_threads,
            submitted: 0,
        }
    }

    fn block(&self) -> usize {
        self.store.geometry().lba_bytes() as usize
    }

    /// Returns `blocks` blocks of bytes that depend on `seed`.
    fn pattern(&self, blocks: usize, seed: u64) -> Buffer {
        let mut buffer = Buffer::alloc(blocks * self.block());
        for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(seed << 32 | index as u64).to_le_bytes());
        }
        buffer
    }

    fn submit(&mut self, op: StoreOperation, buffer: Option<Buffer>) -> StoreToken {
        self.submitted += 1;
        let token = StoreToken::new(self.submitted, self.submitted);
        self.store.submit(op, buffer, token, &mut self.executor.io(&mut self.ring));
        token
    }

    /// Waits at most `wait` for the next completion.
    fn answer(&mut self, wait: Duration) -> Option<StoreCompletion> {
        let deadline = Instant::now() + wait;
        loop {
            self.executor.expire(&mut self.ring, clock::now());
            if let Some(completion) = self.executor.next(&mut self.ring) {
                return Some(completion);
            }
            while let Ok(completion) = self.from_threads.try_recv() {
                self.executor.complete(completion);
            }
            let pause = Some(Duration::from_micros(200));
            self.ring.submit_and_wait(1, pause).expect("the ring works");
            while let Some(cqe) = self.ring.next_completion() {
                let index = UserData::unpack(cqe.user_data).index;
                self.executor.resume(&mut self.ring, index, cqe.result);
            }
            if self.executor.next_due() != Some(Default::default()) && Instant::now() >= deadline {
                return None;
            }
        }
    }

    fn run(
        &mut self,
        op: StoreOperation,
        buffer: Option<Buffer>,
    ) -> (Result<(), Status>, Option<Buffer>) {
        let (what, had) = (format!("{op:?}"), buffer.as_ref().map(|buffer| buffer.len()));
        let token = self.submit(op, buffer);
        let completion = self.answer(LONG).unwrap_or_else(|| panic!("{what} is not answered"));
        assert_eq!(completion.token, token, "{what}: the answer has another token");
        let has = completion.buffer.as_ref().map(|buffer| buffer.len());
        assert_eq!(has, had, "{what}: the buffer does not come back as it was");
        (completion.result, completion.buffer)
    }

    fn good(&mut self, op: StoreOperation, buffer: Option<Buffer>) -> Option<Buffer> {
        let what = format!("{op:?}");
        let (result, buffer) = self.run(op, buffer);
        assert_eq!(result, Ok(()), "{what} fails");
        buffer
    }

    fn write(&mut self, block: u64, data: Buffer, fua: bool) {
        let offset = block * self.block() as u64;
        self.good(StoreOperation::Write { offset, fua }, Some(data));
    }

    fn read(&mut self, block: u64, blocks: usize) -> Buffer {
        let mut buffer = Buffer::alloc(blocks * self.block());
        buffer.fill(0xee);
        let offset = block * self.block() as u64;
        self.good(StoreOperation::Read { offset }, Some(buffer)).expect("it came back")
    }

    fn is_quiet(&mut self) {
        let more = self.answer(QUIET);
        assert!(more.is_none(), "an operation is answered twice: {more:?}");
    }
}

fn describes_itself(harness: &mut ConformanceHarness) {
    let geometry = harness.store.geometry();
    assert!(matches!(geometry.lba_shift, 9 | 12), "blocks are of 512 or 4096 bytes");
    assert!(geometry.blocks >= BLOCKS_MIN, "this test needs {BLOCKS_MIN} blocks");
    assert!(!geometry.read_only, "this test writes");
    assert!(!geometry.volatile_cache || harness.store.is_volatile(), "its cache is to be flushed");
    let checked = harness.store.limits().check(geometry.lba_shift);
    assert_eq!(checked, Ok(()), "NVMe can express its limits");
    let identity = harness.store.identity().expect("it says who it is");
    assert_eq!(harness.store.identity().ok(), Some(identity), "it is the same each time");
}

fn keeps_what_is_written(harness: &mut ConformanceHarness) {
    for (block, blocks, fua) in [(0, 1, false), (3, 4, true), (BLOCKS_MIN - 2, 2, false)] {
        harness.write(block, harness.pattern(blocks, block), fua);
        assert!(*harness.read(block, blocks) == *harness.pattern(blocks, block), "block {block}");
    }
    harness.good(StoreOperation::Flush, None);
    harness.write(4, harness.pattern(1, 99), false);
    let found = harness.read(3, 4);
    let (old, new, block) = (harness.pattern(4, 3), harness.pattern(1, 99), harness.block());
    assert!(found[block..2 * block] == new[..], "the last write counts");
    assert!(found[..block] == old[..block] && found[2 * block..] == old[2 * block..], "no other");
    harness.good(StoreOperation::Read { offset: 0 }, Some(Buffer::alloc(0)));
    harness.good(StoreOperation::Write { offset: 0, fua: false }, Some(Buffer::alloc(0)));
    harness.store.sync().expect("it is stable");
}

fn answers_each_of_many_once(harness: &mut ConformanceHarness) {
    for is_read in [false, true] {
        let mut open = HashMap::new();
        for block in 0..BLOCKS_MIN {
            let offset = block * harness.block() as u64;
            let (op, buffer) = match is_read {
                true => (StoreOperation::Read { offset }, Buffer::alloc(harness.block())),
                false => (
                    StoreOperation::Write { offset, fua: block % 8 == 7 },
                    harness.pattern(1, block),
                ),
            };
            open.insert(harness.submit(op, Some(buffer)), block);
        }
        while !open.is_empty() {
            let completion = harness.answer(LONG).expect("each is answered");
            let block = open.remove(&completion.token).expect("once");
            assert_eq!(completion.result, Ok(()), "block {block}");
            let buffer = completion.buffer.expect("the buffer comes back");
            assert!(!is_read || *buffer == *harness.pattern(1, block), "block {block}");
        }
    }
}

fn compares(harness: &mut ConformanceHarness) {
    harness.write(1, harness.pattern(2, 5), false);
    let offset = harness.block() as u64;
    harness.good(StoreOperation::Compare { offset }, Some(harness.pattern(2, 5)));
    let mut other = harness.pattern(2, 5);
    *other.last_mut().expect("not empty") ^= 1;
    let (result, _) = harness.run(StoreOperation::Compare { offset }, Some(other));
    let status = result.expect_err("the last byte differs");
    let is_right = status.is(Status::COMPARE_FAILURE) && status.is_dnr();
    assert!(is_right, "{status}, and not Compare Failure with Do Not Retry");
}

fn zeroes_and_discards(harness: &mut ConformanceHarness) {
    let block = harness.block() as u64;
    for deallocate in [false, true] {
        harness.write(0, harness.pattern(8, 1), false);
        let range = ByteRange { offset: 2 * block, len: 4 * block };
        harness.good(StoreOperation::WriteZeroes { range, deallocate }, None);
        let (found, old) = (harness.read(0, 8), harness.pattern(8, 1));
        let (from, to) = (2 * block as usize, 6 * block as usize);
        assert!(found[from..to].iter().all(|&byte| byte == 0), "it reads as zeroes");
        assert!(found[..from] == old[..from] && found[to..] == old[to..], "and no more");
    }
    harness.write(0, harness.pattern(8, 2), false);
    for (at, blocks) in [(1, 1), (5, 1), (7, 0)] {
        let range = ByteRange { offset: at * block, len: blocks * block };
        harness.good(StoreOperation::Discard { range }, None);
    }
    let (found, old) = (harness.read(0, 8), harness.pattern(8, 2));
    for at in [0, 2, 3, 4, 6, 7] {
        let range = at * block as usize..(at + 1) * block as usize;
        assert!(found[range.clone()] == old[range], "block {at} was not discarded");
    }
}

fn refuses_what_is_outside(harness: &mut ConformanceHarness) {
    let (end, block) = (harness.store.geometry().bytes(), harness.block() as u64);
    for offset in [end - block, end, u64::MAX - block + 1] {
        let range = ByteRange { offset, len: 2 * block };
        let buffer = || Some(Buffer::alloc(2 * block as usize));
        for (op, buffer) in [
            (StoreOperation::Read { offset }, buffer()),
            (StoreOperation::Write { offset, fua: false }, buffer()),
            (StoreOperation::Compare { offset }, buffer()),
            (StoreOperation::WriteZeroes { range, deallocate: false }, None),
            (StoreOperation::Discard { range }, None),
        ] {
            let what = format!("{op:?}");
            let status = harness.run(op, buffer).0.expect_err(&what);
            assert!(status.is(Status::LBA_OUT_OF_RANGE) && status.is_dnr(), "{what}: {status}");
        }
    }
    for op in [StoreOperation::Read { offset: 0 }, StoreOperation::Write { offset: 0, fua: false }]
    {
        assert!(harness.run(op, None).0.is_err(), "there is no buffer");
    }
}

fn ends_what_is_cancelled(harness: &mut ConformanceHarness) {
    harness.write(0, harness.pattern(1, 3), false);
    let mut open: Vec<StoreToken> = Vec::new();
    for _ in 0..16 {
        let buffer = Buffer::alloc(harness.block());
        open.push(harness.submit(StoreOperation::Read { offset: 0 }, Some(buffer)));
    }
    for &token in &open {
        harness.store.cancel(token);
        harness.executor.cancel(&mut harness.ring, token);
    }
    while !open.is_empty() {
        let completion = harness.answer(LONG).expect("each is answered, cancelled or not");
        let index = open.iter().position(|token| *token == completion.token).expect("once");
        open.swap_remove(index);
        let buffer = completion.buffer.expect("the buffer comes back");
        match completion.result {
            Ok(()) => assert!(*buffer == *harness.pattern(1, 3)),
            Err(status) => assert!(status.is(Status::ABORT_REQUESTED), "{status}"),
        }
    }
}

fn lends_what_it_holds(harness: &mut ConformanceHarness) {
    let Some(memory) = harness.store.in_place() else { return };
    let (block, end) = (harness.block(), harness.store.geometry().bytes());
    assert!(memory.read_range(end, block).is_none() && memory.write_range(end, block).is_none());
    harness.write(2, harness.pattern(1, 8), false);
    let range = ByteRange { offset: 2 * block as u64, len: block as u64 };
    if memory.is_announced() {
        harness.good(StoreOperation::ReadInPlace { range }, None);
    }
    let Some(start) = memory.read_range(range.offset, block) else { return };
    // SAFETY: the range holds that many bytes of the store's memory, which has no other user.
    let found = unsafe { std::slice::from_raw_parts(start, block) };
    assert!(*found == *harness.pattern(1, 8), "the memory is the store's");
}

fn reports_what_is_allocated(harness: &mut ConformanceHarness) {
    if !harness.store.reports_allocation() {
        return;
    }
    let (block, count) = (harness.block() as u64, harness.store.geometry().blocks);
    let is_kept = harness.read(0, 1).iter().all(|&byte| byte == 0) && {
        harness.write(3, harness.pattern(2, 7), false);
        harness.write(count - 1, harness.pattern(1, 8), false);
        harness.read(3, 1)[..] == harness.pattern(1, 7)[..]
    };
    for (first, blocks) in [(0, count), (2, 2), (4, 1), (count - 1, 1)] {
        let range = ByteRange { offset: first * block, len: blocks * block };
        let list = harness
            .good(StoreOperation::QueryAllocation { range }, Some(Buffer::alloc(list_bytes(64))));
        let list = list.expect("it came back");
        let (head, descriptors) = parse_list(&list).expect("a list");
        assert_eq!(head.count.get() as usize, descriptors.len(), "it does not fit");
        let ranges: Vec<(u64, u64)> =
            descriptors.iter().map(|d| (d.dslba.get(), u64::from(d.nlb.get()) + 1)).collect();
        let mut at = first;
        for (slba, blocks) in &ranges {
            assert!(*slba >= at, "not in order, or before the range: {ranges:?}");
            at = slba + blocks;
        }
        assert!(at <= first + blocks, "beyond the range: {ranges:?}");
        let is_there = |block| ranges.iter().any(|&(slba, n)| (slba..slba + n).contains(&block));
        let written = [3, 4, count - 1].into_iter();
        for block in written.filter(|block| is_kept && (first..first + blocks).contains(block)) {
            assert!(is_there(block), "block {block} was written, and is said to be a hole");
        }
    }
    let behind = ByteRange { offset: count * block, len: block };
    let (result, _) =
        harness.run(StoreOperation::QueryAllocation { range: behind }, Some(Buffer::alloc(4096)));
    assert_eq!(result, Err(Status::LBA_OUT_OF_RANGE.dnr()), "a query beyond the capacity");
}

fn resizes_or_refuses(harness: &mut ConformanceHarness) {
    let before = harness.store.geometry();
    let plan = harness.store.plan(None).expect("its own size");
    assert_eq!(
        (plan.from, plan.to),
        (before.bytes(), before.bytes()),
        "no other program has resized it"
    );
    harness.write(0, harness.pattern(1, 4), false);
    let wanted = before.bytes() * 2;
    match harness.store.resize(wanted) {
        Ok(after) => {
            assert_eq!((after.bytes(), harness.store.geometry()), (wanted, after));
            harness.write(after.blocks - 1, harness.pattern(1, 6), false);
            assert!(*harness.read(after.blocks - 1, 1) == *harness.pattern(1, 6));
        }
        Err(_) => assert_eq!(harness.store.geometry(), before, "a refusal changes nothing"),
    }
    assert!(*harness.read(0, 1) == *harness.pattern(1, 4), "what was there stays");
}
