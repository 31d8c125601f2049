//! Stores as a reactor uses them: real files, devices and rings.

mod holes;
mod model;
mod opening;
mod system;
mod trouble;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use roadtrain_wire::status::Status;

use super::*;
use crate::skipped::skipped_test as skipped;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::ReactorRing;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn memory(size: u64, lba_bytes: u32) -> StoreSpec {
    StoreSpec { kind: StoreKind::Memory { size }, lba_bytes, read_only: false }
}

fn null(size: u64) -> StoreSpec {
    StoreSpec { kind: StoreKind::Null { size }, lba_bytes: 4096, read_only: false }
}

fn file(path: impl Into<PathBuf>, size: Option<u64>, lba_bytes: u32) -> StoreSpec {
    let kind = StoreKind::File { path: path.into(), size, create: true };
    StoreSpec { kind, lba_bytes, read_only: false }
}

fn block(path: &Path, lba_bytes: u32) -> StoreSpec {
    StoreSpec { kind: StoreKind::Block { path: path.into() }, lba_bytes, read_only: false }
}

fn read_only(spec: StoreSpec) -> StoreSpec {
    StoreSpec { read_only: true, ..spec }
}

fn open_disk(spec: &StoreSpec) -> DiskStore {
    let StoreKind::File { path, size, create } = &spec.kind else { panic!("not a file") };
    DiskStore::open_file(spec, path, *size, *create).unwrap()
}

fn filled(len: u64, byte: u8) -> Buffer {
    let mut buffer = Buffer::alloc(len as usize);
    buffer.fill(byte);
    buffer
}

/// A ring that runs operations one after another.
struct RingHarness {
    ring: ReactorRing,
    executor: StoreExecutor,
    uses: u32,
}

/// An operation with its buffer.
type OpWithBuffer = (StoreOperation, Option<Buffer>);

impl RingHarness {
    fn new() -> RingHarness {
        let executor = StoreExecutor::new(StoreCompletions::new(|_| false));
        RingHarness { ring: ReactorRing::new(8).unwrap(), executor, uses: 0 }
    }

    /// Returns the result of the completion for which a task waits.
    fn wait(&mut self) -> i32 {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            // A signal ends a wait early.
            self.ring.submit_and_wait(1, Some(Duration::from_secs(30))).unwrap();
            if let Some(completion) = self.ring.next_completion() {
                return completion.result;
            }
            assert!(Instant::now() < until, "a pending task completes");
        }
    }

    fn run(
        &mut self,
        store: &dyn Store,
        work: OpWithBuffer,
    ) -> (Result<(), Status>, Option<Buffer>) {
        self.uses += 1;
        let (token, had_buffer) = (StoreToken::new(7, self.uses), work.1.is_some());
        store.submit(work.0, work.1, token, &mut self.executor.io(&mut self.ring));
        let completion = loop {
            if let Some(completion) = self.executor.next(&mut self.ring) {
                break completion;
            }
            let result = self.wait();
            self.executor.resume(&mut self.ring, 0, result);
        };
        assert_eq!(completion.token, token);
        assert_eq!(completion.buffer.is_some(), had_buffer, "the buffer comes back");
        assert_eq!(self.ring.next_completion(), None, "one completion for each entry");
        (completion.result, completion.buffer)
    }

    fn read(&mut self, store: &dyn Store, offset: u64, len: u64) -> Result<Vec<u8>, Status> {
        let (result, buffer) =
            self.run(store, (StoreOperation::Read { offset }, Some(filled(len, 0xee))));
        result.map(|()| buffer.unwrap().to_vec())
    }

    fn write(&mut self, store: &dyn Store, offset: u64, buffer: Buffer) -> Result<(), Status> {
        self.run(store, (StoreOperation::Write { offset, fua: false }, Some(buffer))).0
    }

    fn discard(&mut self, store: &dyn Store, ranges: &[(u64, u64)]) -> Result<(), Status> {
        ranges.iter().try_for_each(|&(offset, len)| {
            self.run(store, (StoreOperation::Discard { range: ByteRange { offset, len } }, None)).0
        })
    }

    fn zero(&mut self, store: &dyn Store, offset: u64, len: u64) -> Result<(), Status> {
        let range = ByteRange { offset, len };
        self.run(store, (StoreOperation::WriteZeroes { range, deallocate: false }, None)).0
    }

    fn compare(&mut self, store: &dyn Store, offset: u64, expected: Buffer) -> Result<(), Status> {
        self.run(store, (StoreOperation::Compare { offset }, Some(expected))).0
    }

    fn flush(&mut self, store: &dyn Store) -> Result<(), Status> {
        self.run(store, (StoreOperation::Flush, None)).0
    }
}

/// Makes stores of both kinds, empty, 1 MiB; the directory keeps the file.
fn each_kind(lba_bytes: u32) -> Vec<(Arc<dyn Store>, Option<tempfile::TempDir>)> {
    let dir = tempfile::tempdir().unwrap();
    let spec = file(dir.path().join("disk"), Some(MIB), lba_bytes);
    vec![(open(&memory(MIB, lba_bytes)).unwrap(), None), (open(&spec).unwrap(), Some(dir))]
}

#[test]
fn a_store_that_is_made_read_only_can_be_read() {
    let below = open(&memory(MIB, 512)).unwrap();
    let mut harness = RingHarness::new();
    harness.write(&*below, 0, filled(4096, 5)).unwrap();
    let store = ReadOnlyStore::new(below.clone());
    let refused = Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    assert_eq!(harness.write(&store, 0, filled(4096, 6)), refused);
    assert_eq!(harness.discard(&store, &[(0, 4096)]), refused);
    assert_eq!(harness.read(&store, 0, 4096).unwrap(), [5; 4096]);
    let geometry = StoreGeometry { read_only: true, ..below.geometry() };
    assert_eq!(
        (store.geometry(), store.identity().unwrap()),
        (geometry, below.identity().unwrap())
    );
}

#[test]
fn geometry_is_that_of_the_opened_store() {
    let opened = |spec: &StoreSpec| open(spec).unwrap().geometry();
    let expected =
        StoreGeometry { lba_shift: 9, blocks: 2048, read_only: false, volatile_cache: false };
    assert_eq!(opened(&memory(MIB, 512)), expected);
    let expected = StoreGeometry { lba_shift: 12, blocks: 256, ..expected };
    assert_eq!(opened(&null(MIB)), expected);
    assert_eq!((expected.lba_bytes(), expected.bytes()), (4096, MIB));
    let dir = tempfile::tempdir().unwrap();
    let spec = file(dir.path().join("disk"), Some(MIB), 4096);
    assert_eq!(opened(&spec), StoreGeometry { volatile_cache: true, ..expected });
    assert_eq!(opened(&read_only(spec)), StoreGeometry { read_only: true, ..expected });
}

#[test]
fn fua_flush_and_compare() {
    let mut harness = RingHarness::new();
    for (store, _dir) in each_kind(4096) {
        let write = (StoreOperation::Write { offset: 8192, fua: true }, Some(filled(16 * KIB, 7)));
        harness.run(&*store, write).0.unwrap();
        harness.flush(&*store).unwrap();
        harness.compare(&*store, 8192, filled(16 * KIB, 7)).unwrap();
        let mut differs = filled(16 * KIB, 7);
        *differs.last_mut().unwrap() = 8;
        let status = harness.compare(&*store, 8192, differs).unwrap_err();
        assert!(status.is(Status::COMPARE_FAILURE));
        harness.compare(&*store, 0, filled(8192, 0)).unwrap();
    }
}

#[test]
fn write_zeroes_in_all_ways() {
    let mut harness = RingHarness::new();
    for (store, _dir) in each_kind(512) {
        for deallocate in [false, true] {
            harness.write(&*store, 0, filled(MIB, 9)).unwrap();
            let range = ByteRange { offset: 512, len: MIB - 1024 };
            let zeroes = StoreOperation::WriteZeroes { range, deallocate };
            harness.run(&*store, (zeroes, None)).0.unwrap();
            let mut expected = vec![0; MIB as usize];
            expected[..512].fill(9);
            expected[MIB as usize - 512..].fill(9);
            assert!(harness.read(&*store, 0, MIB).unwrap() == expected);
        }
    }
}

#[test]
fn nothing_reaches_beyond_the_capacity() {
    let mut harness = RingHarness::new();
    for (store, _dir) in each_kind(4096) {
        for offset in [MIB - 4096, MIB, u64::MAX - 4095] {
            let len = 8192;
            let range = ByteRange { offset, len };
            let buffer = || filled(len, 1);
            for op in [
                (StoreOperation::Read { offset }, Some(buffer())),
                (StoreOperation::Write { offset, fua: false }, Some(buffer())),
                (StoreOperation::Compare { offset }, Some(buffer())),
                (StoreOperation::ReadInPlace { range }, None),
                (StoreOperation::WriteZeroes { range, deallocate: false }, None),
                (StoreOperation::Discard { range }, None),
            ] {
                assert!(harness.run(&*store, op).0.unwrap_err().is(Status::LBA_OUT_OF_RANGE));
            }
            if let Some(memory) = store.in_place() {
                assert!(memory.read_range(offset, len as usize).is_none());
                assert!(memory.write_range(offset, len as usize).is_none());
            }
        }
        assert!(harness.read(&*store, 0, MIB).unwrap().iter().all(|&b| b == 0));
    }
}

#[test]
fn read_only_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, [5; 8192]).unwrap();
    let mut harness = RingHarness::new();
    for spec in [memory(8192, 4096), file(&path, None, 4096)] {
        let store = open(&read_only(spec)).unwrap();
        let range = ByteRange { offset: 0, len: 4096 };
        for op in [
            (StoreOperation::Write { offset: 0, fua: false }, Some(filled(4096, 1))),
            (StoreOperation::WriteZeroes { range, deallocate: true }, None),
            (StoreOperation::Discard { range }, None),
        ] {
            assert!(harness.run(&*store, op).0.unwrap_err().is(Status::NAMESPACE_WRITE_PROTECTED));
        }
        assert!(store.in_place().is_none_or(|memory| memory.write_range(0, 4096).is_none()));
        harness.flush(&*store).unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), [5; 8192]);
}

#[test]
fn null_reads_zeroes_and_drops_writes() {
    let mut harness = RingHarness::new();
    let store = open(&null(4 * MIB)).unwrap();
    harness.write(&*store, 0, filled(2 * MIB, 1)).unwrap();
    assert!(harness.read(&*store, 0, 2 * MIB).unwrap().iter().all(|&b| b == 0));
    harness.compare(&*store, 0, filled(3 * MIB, 0)).unwrap();
    assert!(harness.compare(&*store, 0, filled(3 * MIB, 1)).is_err());
    let zeroes = store.in_place().unwrap().read_range(4096, 4096).unwrap();
    // SAFETY: `read_range` returns 4096 readable bytes, which are constant.
    assert!(unsafe { std::slice::from_raw_parts(zeroes, 4096) }.iter().all(|&b| b == 0));
    assert!(
        store.in_place().unwrap().read_range(0, 2 << 20).is_none(),
        "longer than the zeroes at hand"
    );
}

#[test]
fn memory_is_reached_directly() {
    let mut harness = RingHarness::new();
    let store = open(&memory(MIB, 512)).unwrap();
    harness.write(&*store, 512, filled(512, 3)).unwrap();
    let memory = store.in_place().unwrap();
    let (from, to) = (memory.read_range(512, 512).unwrap(), memory.write_range(512, 512).unwrap());
    assert_eq!(from, to.cast_const());
    // SAFETY: 512 bytes of the store's memory, which has no other user.
    unsafe { to.write(4) };
    let mut expected = vec![3; 512];
    expected[0] = 4;
    assert_eq!(harness.read(&*store, 512, 512).unwrap(), expected);
}

#[test]
fn a_task_without_bytes_succeeds() {
    let mut harness = RingHarness::new();
    for (store, _dir) in each_kind(4096) {
        harness.read(&*store, 0, 0).unwrap();
        harness.write(&*store, MIB, filled(0, 0)).unwrap();
        harness.discard(&*store, &[]).unwrap();
        harness.discard(&*store, &[(0, 0), (4096, 0)]).unwrap();
        let range = ByteRange { offset: 0, len: 0 };
        let zeroes = StoreOperation::WriteZeroes { range, deallocate: false };
        harness.run(&*store, (zeroes, None)).0.unwrap();
    }
}
