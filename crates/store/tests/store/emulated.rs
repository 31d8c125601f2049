//! Blocks of 512 bytes over a store of 4,096, as several reactors use them.

use crate::late::LateStore;
use roadtrain_store::{
    ByteRange, EmulatedBlockStore, MemoryStore, Store, StoreCompletion, StoreCompletions,
    StoreExecutor, StoreOperation, StoreToken,
};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::ReactorRing;
use roadtrain_wire::status::Status;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const BLOCK: u64 = 512;
/// Longest wait for a completion.
const LONG: Duration = Duration::from_secs(60);

/// A reactor's part of a store: ring, executor, completions of other threads.
struct StoreReactor {
    store: Arc<dyn Store>,
    ring: ReactorRing,
    executor: StoreExecutor,
    from_threads: Receiver<StoreCompletion>,
    submitted: u32,
}

impl StoreReactor {
    fn new(store: Arc<dyn Store>) -> StoreReactor {
        let (sender, from_threads) = channel();
        let completions = StoreCompletions::new(move |completion| sender.send(completion).is_ok());
        let (ring, executor) = (ReactorRing::new(8).unwrap(), StoreExecutor::new(completions));
        StoreReactor { store, ring, executor, from_threads, submitted: 0 }
    }

    fn submit(&mut self, op: StoreOperation, buffer: Option<Buffer>) -> StoreToken {
        self.submitted += 1;
        // All reactors use the same tokens.
        let token = StoreToken::new(self.submitted % 16, self.submitted);
        self.store.submit(op, buffer, token, &mut self.executor.io(&mut self.ring));
        token
    }

    fn next(&mut self, wait: Duration) -> Option<StoreCompletion> {
        loop {
            if let Some(completion) = self.executor.next(&mut self.ring) {
                return Some(completion);
            }
            let completion = self.from_threads.recv_timeout(wait).ok()?;
            self.executor.complete(completion);
        }
    }

    fn run(&mut self, op: StoreOperation, buffer: Option<Buffer>) -> StoreCompletion {
        let token = self.submit(op, buffer);
        let completion = self.next(LONG).expect("it completes");
        assert_eq!(completion.token, token);
        completion
    }

    fn write(&mut self, offset: u64, bytes: u64, byte: u8) {
        let op = StoreOperation::Write { offset, fua: false };
        assert_eq!(self.run(op, Some(filled(bytes, byte))).result, Ok(()));
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Buffer {
        let completion = self.run(StoreOperation::Read { offset }, Some(filled(bytes, 0xee)));
        assert_eq!(completion.result, Ok(()));
        completion.buffer.unwrap()
    }
}

fn filled(bytes: u64, byte: u8) -> Buffer {
    let mut buffer = Buffer::alloc(bytes as usize);
    buffer.fill(byte);
    buffer
}

/// Eight reactors on threads of their own, each with a block of every physical block, while one of them also writes whole
/// physical blocks behind those.
#[test]
fn reactors_that_write_neighbours_lose_none() {
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 60;
    let below = Arc::new(LateStore::with(64, 12, 0));
    let store: Arc<dyn Store> = Arc::new(EmulatedBlockStore::new(below, 9));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = store.clone();
            scope.spawn(move || {
                let mut reactor = StoreReactor::new(store);
                for round in 0..ROUNDS {
                    let physical = round % 3;
                    let offset = (physical * WRITERS + writer) * BLOCK;
                    reactor.write(offset, BLOCK, (writer * 16 + round % 16) as u8);
                    // Runs that begin and end inside of physical blocks, side by side.
                    let run = 4 * 4096 + (writer * 11 + 3) * BLOCK;
                    reactor.write(run, 11 * BLOCK, (writer * 16 + round % 16) as u8);
                    let found = reactor.read(run, 11 * BLOCK);
                    assert!(found.iter().all(|&byte| byte == (writer * 16 + round % 16) as u8));
                }
            });
        }
    });
    let mut reactor = StoreReactor::new(store);
    for physical in 0..3 {
        for writer in 0..WRITERS {
            let last = (0..ROUNDS).rev().find(|round| round % 3 == physical).unwrap();
            let found = reactor.read((physical * WRITERS + writer) * BLOCK, BLOCK);
            let expected = (writer * 16 + last % 16) as u8;
            assert!(found.iter().all(|&byte| byte == expected), "{physical}, {writer}");
        }
    }
    for writer in 0..WRITERS {
        let found = reactor.read(4 * 4096 + (writer * 11 + 3) * BLOCK, 11 * BLOCK);
        let expected = (writer * 16 + (ROUNDS - 1) % 16) as u8;
        assert!(found.iter().all(|&byte| byte == expected), "the run of {writer}");
    }
}

#[test]
fn an_operation_that_waits_can_be_cancelled_and_blocks_no_other() {
    let below = Arc::new(LateStore::with(4, 12, 0));
    let store: Arc<dyn Store> = Arc::new(EmulatedBlockStore::new(below, 9));
    let mut reactor = StoreReactor::new(store.clone());
    let write = |block: u64| StoreOperation::Write { offset: block * BLOCK, fua: false };
    let first = reactor.submit(write(0), Some(filled(BLOCK, 1)));
    let waiting = reactor.submit(write(1), Some(filled(BLOCK, 2)));
    let whole = reactor.submit(write(0), Some(filled(4096, 3)));
    store.cancel(waiting);
    reactor.executor.cancel(&mut reactor.ring, waiting);
    let mut ended = HashMap::new();
    while ended.len() < 3 {
        let completion = reactor.next(LONG).expect("each completes");
        assert!(completion.buffer.is_some(), "the buffer comes back");
        assert!(ended.insert(completion.token, completion.result).is_none(), "once");
    }
    assert_eq!((ended[&first], ended[&whole]), (Ok(()), Ok(())));
    assert!(ended[&waiting].is_err_and(|status| status.is(Status::ABORT_REQUESTED)));
    assert!(reactor.read(0, 4096).iter().all(|&byte| byte == 3), "in the order of submission");
    assert!(reactor.next(Duration::from_millis(20)).is_none(), "no other completion");
}

/// More memory than the budget is requested at once: all operations complete.
#[test]
fn operations_wait_for_memory() {
    let below = Arc::new(LateStore::with(16 << 10, 12, 0));
    let store: Arc<dyn Store> = Arc::new(EmulatedBlockStore::new(below, 9));
    let mut reactor = StoreReactor::new(store);
    let mut open = HashMap::new();
    for number in 0..80_u64 {
        let (offset, fua) = ((number * 300 + 1) * BLOCK, false);
        let token =
            reactor.submit(StoreOperation::Write { offset, fua }, Some(filled(256 * BLOCK, 7)));
        open.insert(token, number);
    }
    while !open.is_empty() {
        let completion = reactor.next(LONG).expect("each completes");
        assert_eq!(completion.result, Ok(()));
        assert!(open.remove(&completion.token).is_some());
    }
    assert!(reactor.read(301 * BLOCK, 256 * BLOCK).iter().all(|&byte| byte == 7));
}

#[test]
fn a_failed_read_of_neighbours_fails_the_write_and_frees_the_block() {
    // Each third operation that moves data fails: the first write has two, the read of the second one is the third.
    let below = Arc::new(LateStore::with(4, 12, 3));
    let mut reactor = StoreReactor::new(Arc::new(EmulatedBlockStore::new(below, 9)));
    reactor.write(0, BLOCK, 1);
    let write = StoreOperation::Write { offset: BLOCK, fua: false };
    let failed = reactor.run(write, Some(filled(BLOCK, 2)));
    assert!(failed.result.is_err_and(|status| status.is(Status::WRITE_FAULT)), "{failed:?}");
    reactor.write(2 * BLOCK, BLOCK, 3);
}

#[test]
fn ranges_become_those_of_physical_blocks() {
    let memory = Arc::new(MemoryStore::new(1 << 20, 4096, false).unwrap());
    let store = Arc::new(EmulatedBlockStore::new(memory, 9));
    let geometry = store.geometry();
    assert_eq!((geometry.lba_shift, geometry.blocks), (9, 2048));
    assert!(store.in_place().is_none(), "writes would pass by");
    let mut reactor = StoreReactor::new(store);
    reactor.write(0, 64 << 10, 9);
    for deallocate in [false, true] {
        let range = ByteRange { offset: 3 * BLOCK, len: 20 * BLOCK };
        let zeroes = StoreOperation::WriteZeroes { range, deallocate };
        assert_eq!(reactor.run(zeroes, None).result, Ok(()));
        let found = reactor.read(0, 24 * BLOCK);
        let is_zero = |block: usize| found[block * 512..(block + 1) * 512].iter().all(|&b| b == 0);
        for block in 0..24 {
            assert_eq!(is_zero(block), (3..23).contains(&block), "block {block}");
        }
        reactor.write(0, 64 << 10, 9);
    }
    let range = ByteRange { offset: BLOCK, len: 4096 };
    assert_eq!(reactor.run(StoreOperation::Discard { range }, None).result, Ok(()));
    assert!(reactor.read(0, 8192).iter().all(|&byte| byte == 9), "no whole physical block");
}
