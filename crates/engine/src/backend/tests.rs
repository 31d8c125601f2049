//! Backends as a reactor uses them: real files, devices and rings.

mod model;
mod opening;
mod system;
mod trouble;

use std::path::{Path, PathBuf};
use std::time::Duration;

use roadtrain_wire::status::Status;

use super::*;
use crate::buffer::Buffer;
use crate::ring::Ring;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Says what could not be tested and why, past the test harness's capture.
pub(super) fn skipped(test: &str, reason: &dyn std::fmt::Display) {
    crate::skipped::skipped_test(test, reason);
}

fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn memory(size: u64, lba_bytes: u32) -> BackendSpec {
    BackendSpec { kind: BackendKind::Memory { size }, lba_bytes, read_only: false }
}

fn null(size: u64) -> BackendSpec {
    BackendSpec { kind: BackendKind::Null { size }, lba_bytes: 4096, read_only: false }
}

fn file(path: impl Into<PathBuf>, size: Option<u64>, lba_bytes: u32) -> BackendSpec {
    let kind = BackendKind::File { path: path.into(), size, create: true };
    BackendSpec { kind, lba_bytes, read_only: false }
}

fn block(path: &Path, lba_bytes: u32) -> BackendSpec {
    BackendSpec { kind: BackendKind::Block { path: path.into() }, lba_bytes, read_only: false }
}

fn read_only(spec: BackendSpec) -> BackendSpec {
    BackendSpec { read_only: true, ..spec }
}

fn filled(len: u64, byte: u8) -> Buffer {
    let mut buffer = Buffer::alloc(len as usize);
    buffer.fill(byte);
    buffer
}

/// A ring, and operations run on it one after another.
struct Rig {
    ring: Ring,
    next_user_data: u64,
}

impl Rig {
    fn new() -> Rig {
        Rig { ring: Ring::new(8).unwrap(), next_user_data: 1 }
    }

    fn start(&mut self, backend: &Backend, op: IoOp) -> (IoTask, Progress) {
        self.next_user_data += 1;
        let mut task = IoTask::new(op);
        let progress = task.start(backend, &mut self.ring, self.next_user_data);
        (task, progress)
    }

    /// The result of the completion that the last started task waits for.
    fn wait(&mut self) -> i32 {
        self.ring.submit_and_wait(1, Some(Duration::from_secs(30))).unwrap();
        let cqe = self.ring.next_completion().expect("a pending task completes");
        assert_eq!(cqe.user_data, self.next_user_data);
        cqe.result
    }

    fn finish(&mut self, task: &mut IoTask, mut progress: Progress) -> Result<(), Status> {
        loop {
            assert_eq!(task.is_pending(), progress == Progress::Pending);
            match progress {
                Progress::Done(result) => return result,
                Progress::Pending => {
                    let result = self.wait();
                    progress = task.resume(result, &mut self.ring);
                }
            }
        }
    }

    fn run(&mut self, backend: &Backend, op: IoOp) -> (Result<(), Status>, IoOp) {
        let (mut task, progress) = self.start(backend, op);
        let result = self.finish(&mut task, progress);
        assert_eq!(self.ring.next_completion(), None, "one completion for each entry");
        (result, task.take_op().unwrap())
    }

    fn read(&mut self, backend: &Backend, offset: u64, len: u64) -> Result<Vec<u8>, Status> {
        let (result, op) = self.run(backend, IoOp::Read { offset, buffer: filled(len, 0xee) });
        let IoOp::Read { buffer, .. } = op else { panic!("a read stays a read") };
        result.map(|()| buffer.to_vec())
    }

    fn write(&mut self, backend: &Backend, offset: u64, buffer: Buffer) -> Result<(), Status> {
        self.run(backend, IoOp::Write { offset, buffer, fua: false }).0
    }

    fn discard(&mut self, backend: &Backend, ranges: &[(u64, u64)]) -> Result<(), Status> {
        let ranges = ranges.iter().map(|&(offset, len)| ByteRange { offset, len }).collect();
        self.run(backend, IoOp::Discard { ranges }).0
    }

    fn zero(&mut self, backend: &Backend, offset: u64, len: u64) -> Result<(), Status> {
        let range = ByteRange { offset, len };
        self.run(backend, IoOp::WriteZeroes { range, fua: false, deallocate: false }).0
    }

    fn compare(&mut self, backend: &Backend, offset: u64, expected: Buffer) -> Result<(), Status> {
        let scratch = (!backend.is_immediate()).then(|| Buffer::alloc(8192));
        self.run(backend, IoOp::Compare { offset, expected, scratch }).0
    }
}

/// Backends of both kinds, empty, 1 MiB; the directory keeps the file.
fn each_kind(lba_bytes: u32) -> Vec<(Backend, Option<tempfile::TempDir>)> {
    let dir = tempfile::tempdir().unwrap();
    let spec = file(dir.path().join("disk"), Some(MIB), lba_bytes);
    vec![
        (Backend::open(&memory(MIB, lba_bytes)).unwrap(), None),
        (Backend::open(&spec).unwrap(), Some(dir)),
    ]
}

#[test]
fn geometry_tells_what_was_opened() {
    let opened = |spec: &BackendSpec| Backend::open(spec).unwrap().geometry();
    let expected = Geometry { lba_shift: 9, blocks: 2048, read_only: false, volatile_cache: false };
    assert_eq!(opened(&memory(MIB, 512)), expected);
    let expected = Geometry { lba_shift: 12, blocks: 256, ..expected };
    assert_eq!(opened(&null(MIB)), expected);
    assert_eq!((expected.lba_bytes(), expected.bytes()), (4096, MIB));
    let dir = tempfile::tempdir().unwrap();
    let spec = file(dir.path().join("disk"), Some(MIB), 4096);
    assert_eq!(opened(&spec), Geometry { volatile_cache: true, ..expected });
    assert_eq!(opened(&read_only(spec)), Geometry { read_only: true, ..expected });
}

#[test]
fn fua_flush_and_compare() {
    let mut rig = Rig::new();
    for (backend, _dir) in each_kind(4096) {
        let op = IoOp::Write { offset: 8192, buffer: filled(16 * KIB, 7), fua: true };
        rig.run(&backend, op).0.unwrap();
        rig.run(&backend, IoOp::Flush).0.unwrap();
        rig.compare(&backend, 8192, filled(16 * KIB, 7)).unwrap();
        let mut differs = filled(16 * KIB, 7);
        *differs.last_mut().unwrap() = 8;
        let status = rig.compare(&backend, 8192, differs).unwrap_err();
        assert!(status.is(Status::COMPARE_FAILURE));
        rig.compare(&backend, 0, filled(8192, 0)).unwrap();
    }
}

#[test]
fn write_zeroes_in_all_ways() {
    let mut rig = Rig::new();
    for (backend, _dir) in each_kind(512) {
        for deallocate in [false, true] {
            for fua in [false, true] {
                rig.write(&backend, 0, filled(MIB, 9)).unwrap();
                let range = ByteRange { offset: 512, len: MIB - 1024 };
                rig.run(&backend, IoOp::WriteZeroes { range, fua, deallocate }).0.unwrap();
                let mut expected = vec![0; MIB as usize];
                expected[..512].fill(9);
                expected[MIB as usize - 512..].fill(9);
                assert!(rig.read(&backend, 0, MIB).unwrap() == expected);
            }
        }
    }
}

#[test]
fn nothing_reaches_beyond_the_capacity() {
    let mut rig = Rig::new();
    for (backend, _dir) in each_kind(4096) {
        for offset in [MIB - 4096, MIB, u64::MAX - 4095] {
            let len = 8192;
            let range = ByteRange { offset, len };
            let buffer = || filled(len, 1);
            for op in [
                IoOp::Read { offset, buffer: buffer() },
                IoOp::Write { offset, buffer: buffer(), fua: false },
                IoOp::Compare { offset, expected: buffer(), scratch: Some(buffer()) },
                IoOp::WriteZeroes { range, fua: false, deallocate: false },
                IoOp::Discard { ranges: [ByteRange { offset: 0, len }, range].into() },
            ] {
                assert!(rig.run(&backend, op).0.unwrap_err().is(Status::LBA_OUT_OF_RANGE));
            }
            assert!(backend.read_range(offset, len as usize).is_none());
            assert!(backend.write_range(offset, len as usize).is_none());
            assert!(!backend.write_at(offset, &buffer()));
        }
        assert!(rig.read(&backend, 0, MIB).unwrap().iter().all(|&b| b == 0));
    }
}

#[test]
fn read_only_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, [5; 8192]).unwrap();
    let mut rig = Rig::new();
    for spec in [memory(8192, 4096), file(&path, None, 4096)] {
        let backend = Backend::open(&read_only(spec)).unwrap();
        let range = ByteRange { offset: 0, len: 4096 };
        for op in [
            IoOp::Write { offset: 0, buffer: filled(4096, 1), fua: false },
            IoOp::WriteZeroes { range, fua: false, deallocate: true },
            IoOp::Discard { ranges: [range].into() },
        ] {
            assert!(rig.run(&backend, op).0.unwrap_err().is(Status::NAMESPACE_WRITE_PROTECTED));
        }
        assert!(!backend.write_at(0, &[1; 4096]));
        assert!(backend.write_range(0, 4096).is_none());
        rig.run(&backend, IoOp::Flush).0.unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), [5; 8192]);
}

#[test]
fn null_reads_zeroes_and_drops_writes() {
    let mut rig = Rig::new();
    let backend = Backend::open(&null(4 * MIB)).unwrap();
    assert!(backend.is_immediate());
    assert!(backend.write_at(0, &[1; 4096]));
    rig.write(&backend, 0, filled(2 * MIB, 1)).unwrap();
    assert!(rig.read(&backend, 0, 2 * MIB).unwrap().iter().all(|&b| b == 0));
    rig.compare(&backend, 0, filled(3 * MIB, 0)).unwrap();
    assert!(rig.compare(&backend, 0, filled(3 * MIB, 1)).is_err());
    let zeroes = backend.read_range(4096, 4096).unwrap();
    // SAFETY: `read_range` gives 4096 readable bytes, which are constant.
    assert!(unsafe { std::slice::from_raw_parts(zeroes, 4096) }.iter().all(|&b| b == 0));
    assert!(backend.read_range(0, 2 << 20).is_none(), "longer than the zeroes at hand");
}

#[test]
fn memory_is_reached_directly() {
    let mut rig = Rig::new();
    let backend = Backend::open(&memory(MIB, 512)).unwrap();
    assert!(backend.write_at(512, &[3; 512]));
    let (from, to) =
        (backend.read_range(512, 512).unwrap(), backend.write_range(512, 512).unwrap());
    assert_eq!(from, to.cast_const());
    // SAFETY: 512 bytes of the backend's memory, which nobody else uses.
    unsafe { to.write(4) };
    let mut expected = vec![3; 512];
    expected[0] = 4;
    assert_eq!(rig.read(&backend, 512, 512).unwrap(), expected);
}

#[test]
fn a_task_without_bytes_succeeds() {
    let mut rig = Rig::new();
    for (backend, _dir) in each_kind(4096) {
        rig.read(&backend, 0, 0).unwrap();
        rig.write(&backend, MIB, filled(0, 0)).unwrap();
        rig.discard(&backend, &[]).unwrap();
        rig.discard(&backend, &[(0, 0), (4096, 0)]).unwrap();
        let range = ByteRange { offset: 0, len: 0 };
        let op = IoOp::WriteZeroes { range, fua: true, deallocate: false };
        rig.run(&backend, op).0.unwrap();
    }
}
