//! Short transfers, interruptions, missing features: nothing is lost, and every request ends.

use super::*;
use crate::disk::{Allocate, DiskTask, TaskProgress};
use roadtrain_system::ring::UserData;

/// Makes a file of 64 KiB whose every 512 bytes differ.
fn striped(dir: &Path) -> (DiskStore, Vec<u8>) {
    let path = dir.join("disk");
    let content: Vec<u8> = (0..64 * KIB).map(|i| (i / 512 + 1) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    (open_disk(&file(path, None, 512)), content)
}

/// Starts a task as an operation of its own, so that tests can set the kernel's results.
fn start(
    harness: &mut RingHarness,
    store: &DiskStore,
    (op, buffer): OpWithBuffer,
) -> (DiskTask, TaskProgress) {
    let mut task = DiskTask::new(store.disk.clone(), op, buffer);
    let progress = task.start(&mut harness.ring, 1);
    (task, progress)
}

fn finish(
    harness: &mut RingHarness,
    task: &mut DiskTask,
    mut progress: TaskProgress,
) -> Result<(), Status> {
    loop {
        assert_eq!(task.is_pending(), progress == TaskProgress::Pending);
        match progress {
            TaskProgress::Done(result) => return result,
            TaskProgress::Pending => {
                let result = harness.wait();
                progress = task.resume(result, &mut harness.ring);
            }
        }
    }
}

fn buffer_of(mut task: DiskTask) -> Buffer {
    task.completion(StoreToken::new(0, 0), Ok(())).buffer.expect("it comes back")
}

#[test]
fn short_transfers_are_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (store, content) = striped(dir.path());
    let mut harness = RingHarness::new();
    // Results are cut down to lengths from which direct I/O can and cannot continue.
    for amounts in [[4096, 512], [1000, 1], [1, 16000]] {
        let read = (StoreOperation::Read { offset: 1024 }, Some(filled(32 * KIB, 0)));
        let (mut task, mut progress) = start(&mut harness, &store, read);
        for amount in amounts {
            assert_eq!(progress, TaskProgress::Pending);
            let mut result = harness.wait();
            while result == -libc::EINVAL {
                progress = task.resume(result, &mut harness.ring);
                assert_eq!(progress, TaskProgress::Pending, "falls back to the page cache");
                result = harness.wait();
            }
            assert!(result > amount);
            progress = task.resume(amount, &mut harness.ring);
        }
        finish(&mut harness, &mut task, progress).unwrap();
        let buffer = buffer_of(task);
        assert!(buffer[..] == content[1024..1024 + 32 * 1024]);
    }
}

#[test]
fn short_writes_and_comparisons_are_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = striped(dir.path());
    let mut harness = RingHarness::new();
    let write = (StoreOperation::Write { offset: 0, fua: true }, Some(filled(8192, 9)));
    let (mut task, progress) = start(&mut harness, &store, write);
    assert_eq!(progress, TaskProgress::Pending);
    assert_eq!(harness.wait(), 8192);
    let progress = task.resume(700, &mut harness.ring);
    finish(&mut harness, &mut task, progress).unwrap();

    let compare = (StoreOperation::Compare { offset: 0 }, Some(filled(8192, 9)));
    let (mut task, progress) = start(&mut harness, &store, compare);
    assert_eq!(progress, TaskProgress::Pending);
    assert_eq!(harness.wait(), 8192);
    let progress = task.resume(10, &mut harness.ring);
    finish(&mut harness, &mut task, progress).unwrap();
}

/// The system reports a failed write-back once to each descriptor: a write must not consume the report of the flushed
/// one.
#[test]
fn a_forced_write_takes_no_report_away_from_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = striped(dir.path());
    let mut harness = RingHarness::new();
    for is_direct in [true, false] {
        if !is_direct {
            store.disk.refuse_direct();
        }
        let shares = store.disk.data_fd(false) == store.disk.control_fd();
        assert!(is_direct || shares, "without direct I/O there is one descriptor");
        for (fua, result) in [(true, Ok(())), (false, Ok(())), (true, Err(Status::WRITE_FAULT))] {
            let write = (StoreOperation::Write { offset: 0, fua }, Some(filled(4096, 9)));
            let (mut task, progress) = start(&mut harness, &store, write);
            finish(&mut harness, &mut task, progress).unwrap();
            let completion = task.completion(StoreToken::new(0, 0), result);
            assert_eq!(completion.is_unforced, shares && fua && result.is_ok());
        }
    }
}

#[test]
fn interruptions_are_retried() {
    let dir = tempfile::tempdir().unwrap();
    let (store, content) = striped(dir.path());
    let mut harness = RingHarness::new();
    let (mut task, progress) =
        start(&mut harness, &store, (StoreOperation::Read { offset: 0 }, Some(filled(4096, 0))));
    assert_eq!(progress, TaskProgress::Pending);
    for errno in [libc::EINTR, libc::EAGAIN, libc::EAGAIN] {
        assert_eq!(harness.wait(), 4096);
        assert_eq!(task.resume(-errno, &mut harness.ring), TaskProgress::Pending);
    }
    finish(&mut harness, &mut task, TaskProgress::Pending).unwrap();
    let buffer = buffer_of(task);
    assert!(buffer[..] == content[..4096]);
}

#[test]
fn errors_end_the_task() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = striped(dir.path());
    let mut harness = RingHarness::new();
    for (op, errno, expected) in [
        (
            (StoreOperation::Read { offset: 0 }, Some(filled(512, 0))),
            libc::EIO,
            Status::UNRECOVERED_READ_ERROR,
        ),
        (
            (StoreOperation::Write { offset: 0, fua: false }, Some(filled(512, 0))),
            libc::EIO,
            Status::WRITE_FAULT,
        ),
        ((StoreOperation::Flush, None), libc::ENOSPC, Status::CAPACITY_EXCEEDED),
        ((StoreOperation::Flush, None), libc::EINVAL, Status::INTERNAL_ERROR),
        (
            (StoreOperation::Discard { range: ByteRange { offset: 0, len: 512 } }, None),
            libc::EIO,
            Status::WRITE_FAULT,
        ),
    ] {
        let moves = op.1.is_some();
        let (mut task, progress) = start(&mut harness, &store, op);
        assert_eq!(progress, TaskProgress::Pending);
        harness.wait();
        let TaskProgress::Done(Err(status)) = task.resume(-errno, &mut harness.ring) else {
            panic!("errno {errno} ends it")
        };
        assert!(status.is(expected), "{status}");
        let had_buffer = task.completion(StoreToken::new(0, 0), Ok(())).buffer.is_some();
        assert_eq!(had_buffer, moves, "the buffers come back");
    }
}

#[test]
fn a_cut_file_is_a_read_error() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = striped(dir.path());
    let mut harness = RingHarness::new();
    let outside = std::fs::OpenOptions::new().write(true).open(dir.path().join("disk")).unwrap();
    for len in [8192, 5000, 0] {
        outside.set_len(len).unwrap();
        let status = harness.read(&store, 4096, 8192).unwrap_err();
        assert!(status.is(Status::UNRECOVERED_READ_ERROR), "{status}");
    }
}

#[test]
fn filesystems_without_holes_get_zeroes_written() {
    let dir = tempfile::tempdir().unwrap();
    let (store, content) = striped(dir.path());
    store.disk.refuse(Allocate::Punch);
    store.disk.refuse(Allocate::Zero);
    let mut harness = RingHarness::new();
    harness.discard(&store, &[(0, 4096)]).unwrap();
    assert!(harness.read(&store, 0, 64 * KIB).unwrap() == content, "advice that was not followed");
    let range = ByteRange { offset: 512, len: 60 * KIB };
    let zeroes = StoreOperation::WriteZeroes { range, deallocate: true };
    harness.run(&store, (zeroes, None)).0.unwrap();
    let mut expected = content;
    expected[512..512 + 60 * 1024].fill(0);
    assert!(harness.read(&store, 0, 64 * KIB).unwrap() == expected);
}

#[test]
fn zeroes_longer_than_those_at_hand_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let spec = file(dir.path().join("disk"), Some(3 * MIB + 8192), 4096);
    let store = open_disk(&spec);
    store.disk.refuse(Allocate::Zero);
    let mut harness = RingHarness::new();
    harness.write(&store, 0, filled(3 * MIB + 8192, 1)).unwrap();
    harness.zero(&store, 4096, 3 * MIB).unwrap();
    let content = harness.read(&store, 0, 3 * MIB + 8192).unwrap();
    let zeroed = 4096..4096 + 3 * MIB as usize;
    assert!(content.iter().enumerate().all(|(i, &b)| b == u8::from(!zeroed.contains(&i))));
}

#[test]
fn an_unsupported_call_is_learnt_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, content) = striped(dir.path());
    let mut harness = RingHarness::new();
    let [first, second] = [0, 4096].map(|offset| ByteRange { offset, len: 512 });
    let (mut task, progress) =
        start(&mut harness, &store, (StoreOperation::Discard { range: first }, None));
    assert_eq!(progress, TaskProgress::Pending);
    assert_eq!(harness.wait(), 0);
    assert_eq!(task.resume(-libc::EOPNOTSUPP, &mut harness.ring), TaskProgress::Done(Ok(())));
    let (_, progress) =
        start(&mut harness, &store, (StoreOperation::Discard { range: second }, None));
    assert_eq!(progress, TaskProgress::Done(Ok(())));
    assert!(harness.read(&store, 4096, 512).unwrap() == content[4096..4608]);
}

#[test]
fn a_dropped_task_keeps_its_buffer_from_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = striped(dir.path());
    let mut pool = roadtrain_system::buffer::BufferPool::new(2 << 20);
    let mut harness = RingHarness::new();
    let buffer = pool.take(4096).unwrap();
    let (task, progress) =
        start(&mut harness, &store, (StoreOperation::Read { offset: 0 }, Some(buffer)));
    assert_eq!(progress, TaskProgress::Pending);
    drop(task);
    assert_eq!(harness.wait(), 4096);
    assert!(pool.take(1 << 20).is_none(), "its chunk must not be used for anything else");
}

#[test]
fn a_compare_without_a_buffer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = striped(dir.path());
    let compare = (StoreOperation::Compare { offset: 0 }, None);
    assert!(RingHarness::new().run(&store, compare).0.unwrap_err().is(Status::INTERNAL_ERROR));
}

/// A step in the kernel that it can abort: a read from a pipe without data.
#[test]
fn a_step_in_the_kernel_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let fifo = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let store = DiskStore::from_file(fifo, MIB, 512).unwrap();
    let mut harness = RingHarness::new();
    for round in 0..3 {
        let token = StoreToken::new(7, round);
        let read = (StoreOperation::Read { offset: 0 }, Some(filled(4096, 0)));
        store.submit(read.0, read.1, token, &mut harness.executor.io(&mut harness.ring));
        harness.ring.submit_and_wait(0, None).unwrap();
        assert!(harness.executor.next(&mut harness.ring).is_none());
        harness.executor.cancel(&mut harness.ring, token);
        let completion = loop {
            harness.ring.submit_and_wait(1, Some(Duration::from_secs(60))).unwrap();
            let cqe = harness.ring.next_completion().expect("the kernel gives it up");
            let index = UserData::unpack(cqe.user_data).index;
            harness.executor.resume(&mut harness.ring, index, cqe.result);
            if let Some(completion) = harness.executor.next(&mut harness.ring) {
                break completion;
            }
        };
        assert_eq!((completion.token, completion.result), (token, Err(Status::ABORT_REQUESTED)));
        assert!(completion.buffer.is_some());
    }
}
