//! Short transfers, interruptions, missing abilities: nothing is lost, and every request ends.

use super::super::disk::Allocate;
use super::*;

/// A file of 64 KiB whose every 512 bytes differ.
fn striped(dir: &Path) -> (Backend, Vec<u8>) {
    let path = dir.join("disk");
    let content: Vec<u8> = (0..64 * KIB).map(|i| (i / 512 + 1) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    (Backend::open(&file(path, None, 512)).unwrap(), content)
}

fn disk(backend: &Backend) -> &Disk {
    match &backend.store {
        Store::Disk(disk) => disk,
        _ => panic!("not a disk"),
    }
}

#[test]
fn short_transfers_are_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, content) = striped(dir.path());
    let mut rig = Rig::new();
    // What the kernel says is cut down to amounts that direct I/O can and cannot continue from.
    for amounts in [[4096, 512], [1000, 1], [1, 16000]] {
        let read = IoOp::Read { offset: 1024, buffer: filled(32 * KIB, 0) };
        let (mut task, mut progress) = rig.start(&backend, read);
        for amount in amounts {
            assert_eq!(progress, Progress::Pending);
            let mut result = rig.wait();
            while result == -libc::EINVAL {
                progress = task.resume(result, &mut rig.ring);
                assert_eq!(progress, Progress::Pending, "falls back to the page cache");
                result = rig.wait();
            }
            assert!(result > amount);
            progress = task.resume(amount, &mut rig.ring);
        }
        rig.finish(&mut task, progress).unwrap();
        let Some(IoOp::Read { buffer, .. }) = task.take_op() else { panic!("a read") };
        assert!(buffer[..] == content[1024..1024 + 32 * 1024]);
    }
}

#[test]
fn short_writes_and_comparisons_are_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, _) = striped(dir.path());
    let mut rig = Rig::new();
    let write = IoOp::Write { offset: 0, buffer: filled(8192, 9), fua: true };
    let (mut task, progress) = rig.start(&backend, write);
    assert_eq!(progress, Progress::Pending);
    assert_eq!(rig.wait(), 8192);
    let progress = task.resume(700, &mut rig.ring);
    rig.finish(&mut task, progress).unwrap();

    let (expected, scratch) = (filled(8192, 9), Some(Buffer::alloc(4096)));
    let compare = IoOp::Compare { offset: 0, expected, scratch };
    let (mut task, progress) = rig.start(&backend, compare);
    assert_eq!(progress, Progress::Pending);
    assert_eq!(rig.wait(), 4096);
    let progress = task.resume(10, &mut rig.ring);
    rig.finish(&mut task, progress).unwrap();
}

/// Read and Compare with Force Unit Access: what they tell has to outlast the power.
#[test]
fn stable_data_is_synced_before_it_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, content) = striped(dir.path());
    let mut rig = Rig::new();
    let mut expected = Buffer::alloc(4096);
    expected.copy_from_slice(&content[..4096]);
    for op in [
        IoOp::Read { offset: 0, buffer: filled(4096, 0) },
        IoOp::Compare { offset: 0, expected, scratch: Some(Buffer::alloc(4096)) },
    ] {
        rig.next_user_data += 1;
        let mut task = IoTask::new(op).after_sync();
        let progress = task.start(&backend, &mut rig.ring, rig.next_user_data);
        assert_eq!((progress, rig.wait()), (Progress::Pending, 0), "fdatasync moves nothing");
        let progress = task.resume(0, &mut rig.ring);
        rig.finish(&mut task, progress).unwrap();
        if let Some(IoOp::Read { buffer, .. }) = task.take_op() {
            assert!(buffer[..] == content[..4096]);
        }
    }
    // What cannot be made stable is not told.
    rig.next_user_data += 1;
    let mut task = IoTask::new(IoOp::Read { offset: 0, buffer: filled(512, 0) }).after_sync();
    assert_eq!(task.start(&backend, &mut rig.ring, rig.next_user_data), Progress::Pending);
    rig.wait();
    assert!(matches!(task.resume(-libc::EIO, &mut rig.ring), Progress::Done(Err(_))));
}

#[test]
fn interruptions_are_retried() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, content) = striped(dir.path());
    let mut rig = Rig::new();
    let (mut task, progress) =
        rig.start(&backend, IoOp::Read { offset: 0, buffer: filled(4096, 0) });
    assert_eq!(progress, Progress::Pending);
    for errno in [libc::EINTR, libc::EAGAIN, libc::EAGAIN] {
        assert_eq!(rig.wait(), 4096);
        assert_eq!(task.resume(-errno, &mut rig.ring), Progress::Pending);
    }
    rig.finish(&mut task, Progress::Pending).unwrap();
    let Some(IoOp::Read { buffer, .. }) = task.take_op() else { panic!("a read") };
    assert!(buffer[..] == content[..4096]);
}

#[test]
fn errors_end_the_task() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, _) = striped(dir.path());
    let mut rig = Rig::new();
    for (op, errno, expected) in [
        (
            IoOp::Read { offset: 0, buffer: filled(512, 0) },
            libc::EIO,
            Status::UNRECOVERED_READ_ERROR,
        ),
        (
            IoOp::Write { offset: 0, buffer: filled(512, 0), fua: false },
            libc::EIO,
            Status::WRITE_FAULT,
        ),
        (IoOp::Flush, libc::ENOSPC, Status::CAPACITY_EXCEEDED),
        (IoOp::Flush, libc::EINVAL, Status::INTERNAL_ERROR),
        (
            IoOp::Discard { ranges: [ByteRange { offset: 0, len: 512 }].into() },
            libc::EIO,
            Status::WRITE_FAULT,
        ),
    ] {
        let (mut task, progress) = rig.start(&backend, op);
        assert_eq!(progress, Progress::Pending);
        rig.wait();
        let Progress::Done(Err(status)) = task.resume(-errno, &mut rig.ring) else {
            panic!("errno {errno} ends it")
        };
        assert!(status.is(expected), "{status}");
        assert!(task.take_op().is_some(), "the buffers come back");
    }
}

#[test]
fn a_cut_file_is_a_read_error() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, _) = striped(dir.path());
    let mut rig = Rig::new();
    let outside = std::fs::OpenOptions::new().write(true).open(dir.path().join("disk")).unwrap();
    for len in [8192, 5000, 0] {
        outside.set_len(len).unwrap();
        let status = rig.read(&backend, 4096, 8192).unwrap_err();
        assert!(status.is(Status::UNRECOVERED_READ_ERROR), "{status}");
    }
}

#[test]
fn filesystems_without_holes_get_zeroes_written() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, content) = striped(dir.path());
    disk(&backend).refuse(Allocate::Punch);
    disk(&backend).refuse(Allocate::Zero);
    let mut rig = Rig::new();
    rig.discard(&backend, &[(0, 4096)]).unwrap();
    assert!(rig.read(&backend, 0, 64 * KIB).unwrap() == content, "advice that was not followed");
    let range = ByteRange { offset: 512, len: 60 * KIB };
    let op = IoOp::WriteZeroes { range, fua: true, deallocate: true };
    rig.run(&backend, op).0.unwrap();
    let mut expected = content;
    expected[512..512 + 60 * 1024].fill(0);
    assert!(rig.read(&backend, 0, 64 * KIB).unwrap() == expected);
}

#[test]
fn zeroes_longer_than_those_at_hand_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let spec = file(dir.path().join("disk"), Some(3 * MIB + 8192), 4096);
    let backend = Backend::open(&spec).unwrap();
    disk(&backend).refuse(Allocate::Zero);
    let mut rig = Rig::new();
    rig.write(&backend, 0, filled(3 * MIB + 8192, 1)).unwrap();
    rig.zero(&backend, 4096, 3 * MIB).unwrap();
    let content = rig.read(&backend, 0, 3 * MIB + 8192).unwrap();
    let zeroed = 4096..4096 + 3 * MIB as usize;
    assert!(content.iter().enumerate().all(|(i, &b)| b == u8::from(!zeroed.contains(&i))));
}

#[test]
fn an_unsupported_call_is_learnt_once() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, content) = striped(dir.path());
    let mut rig = Rig::new();
    let ranges = [(0, 512), (4096, 512)].map(|(offset, len)| ByteRange { offset, len });
    let (mut task, progress) = rig.start(&backend, IoOp::Discard { ranges: ranges.into() });
    assert_eq!(progress, Progress::Pending);
    assert_eq!(rig.wait(), 0);
    assert_eq!(task.resume(-libc::EOPNOTSUPP, &mut rig.ring), Progress::Done(Ok(())));
    let (_, progress) = rig.start(&backend, IoOp::Discard { ranges: ranges.into() });
    assert_eq!(progress, Progress::Done(Ok(())));
    assert!(rig.read(&backend, 4096, 512).unwrap() == content[4096..4608]);
}

#[test]
fn a_dropped_task_keeps_its_buffer_from_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, _) = striped(dir.path());
    let mut pool = crate::buffer::Pool::new(2 << 20);
    let mut rig = Rig::new();
    let buffer = pool.take(4096).unwrap();
    let (task, progress) = rig.start(&backend, IoOp::Read { offset: 0, buffer });
    assert_eq!(progress, Progress::Pending);
    drop(task);
    assert_eq!(rig.wait(), 4096);
    assert!(pool.take(1 << 20).is_none(), "its chunk must not be used for anything else");
}

#[test]
fn buffers_go_back_to_their_pool() {
    let mut pool = crate::buffer::Pool::new(2 << 20);
    let mut rig = Rig::new();
    let backend = Backend::open(&memory(MIB, 512)).unwrap();
    let (expected, scratch) = (pool.take(4096).unwrap(), pool.take(4096));
    let (_, op) = rig.run(&backend, IoOp::Compare { offset: 0, expected, scratch });
    op.give_buffers(&mut pool);
    let buffer = pool.take(4096).unwrap();
    let (_, op) = rig.run(&backend, IoOp::Read { offset: 0, buffer });
    op.give_buffers(&mut pool);
    assert_eq!(pool.usage().taken_bytes, 0);
}

#[test]
fn a_compare_without_room_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, _) = striped(dir.path());
    for scratch in [None, Some(Buffer::alloc(0))] {
        let op = IoOp::Compare { offset: 0, expected: filled(512, 1), scratch };
        assert!(Rig::new().run(&backend, op).0.unwrap_err().is(Status::INTERNAL_ERROR));
    }
}
