use super::*;
use crate::disk::{DiskInfo, test_info};
use roadtrain_wire::fuse::OutHeader;

const BYTES: u64 = 1 << 20;

fn tree() -> Tree {
    let disk = |info| Arc::new(LiveDisk::new(info).unwrap());
    let other = DiskInfo { nsid: 12, read_only: true, ..test_info() };
    Tree::new(vec![disk(test_info()), disk(other)], (7, 8), 1000)
}

/// Requests `opcode` of `nodeid`; returns the outcome and the data.
fn call(tree: &Tree, opcode: Opcode, nodeid: u64, args: &[u8]) -> (FuseOutcome, Vec<u8>) {
    let header = InHeader { opcode: opcode.0, nodeid, ..InHeader::default() };
    let (mut padded, mut out) = ([0; 128], vec![0xee; 4096]);
    padded[..args.len()].copy_from_slice(args);
    let answer = tree.answer(&header, &padded, &mut out);
    if let FuseOutcome::Data(bytes) = answer {
        out.truncate(bytes);
    }
    (answer, out)
}

fn data<T: FromBytes>(tree: &Tree, opcode: Opcode, nodeid: u64, args: &[u8]) -> T {
    let (answer, out) = call(tree, opcode, nodeid, args);
    assert_eq!(answer, FuseOutcome::Data(size_of::<T>()), "{opcode:?}");
    T::read_from_bytes(&out).unwrap()
}

fn work(disk: usize, op: DiskOp, at: u64, end: u64, fua: bool) -> FuseOutcome {
    FuseOutcome::Work(FuseWork { disk, op, at, end, fua })
}

#[test]
fn names_lead_to_files() {
    let tree = tree();
    let entry: EntryOut = data(&tree, Opcode::LOOKUP, ROOT_ID, b"nvme0n1\0");
    assert_eq!((entry.nodeid, entry.attr.ino, entry.attr_valid), (2, 2, 0));
    assert_eq!((entry.attr.mode, entry.attr.size), (libc::S_IFREG | 0o600, BYTES));
    assert_eq!((entry.attr.uid, entry.attr.gid, entry.attr.blocks), (7, 8, BYTES / 512));
    let other: EntryOut = data(&tree, Opcode::LOOKUP, ROOT_ID, b"nvme0n12\0rubbish");
    assert_eq!((other.nodeid, other.attr.mode), (3, libc::S_IFREG | 0o400));
    for name in [&b"nvme0n2\0"[..], b"nvme0n\0", b"\0", b"nvme0n1x\0", &[b'x'; 128]] {
        assert_eq!(call(&tree, Opcode::LOOKUP, ROOT_ID, name).0, FuseOutcome::Error(libc::ENOENT));
    }
    assert_eq!(call(&tree, Opcode::LOOKUP, 2, b"x\0").0, FuseOutcome::Error(libc::ENOTDIR));
}

#[test]
fn a_size_is_the_present_one() {
    let tree = tree();
    let root: AttrOut = data(&tree, Opcode::GETATTR, ROOT_ID, &[]);
    assert_eq!(root.attr.mode, libc::S_IFDIR | 0o700);
    tree.disks()[0].resize(4096);
    let file: AttrOut = data(&tree, Opcode::GETATTR, 2, &[]);
    assert_eq!((file.attr.size, file.attr_valid), (2 * BYTES, 0));
    for nodeid in [0, 4, u64::MAX] {
        assert_eq!(call(&tree, Opcode::GETATTR, nodeid, &[]).0, FuseOutcome::Error(libc::ENOENT));
    }
}

#[test]
fn attributes_are_those_of_a_device() {
    let tree = tree();
    let set = |valid, size| {
        let args = SetattrIn { valid, size, ..SetattrIn::default() };
        call(&tree, Opcode::SETATTR, 2, args.as_bytes())
    };
    let (answer, out) = set(setattr_valid::SIZE, 0);
    assert_eq!(answer, FuseOutcome::Data(size_of::<AttrOut>()), "O_TRUNC");
    assert_eq!(AttrOut::read_from_bytes(&out).unwrap().attr.size, BYTES);
    assert_eq!(set(setattr_valid::SIZE, BYTES + 1).0, FuseOutcome::Error(libc::EFBIG));
    assert_eq!(set(setattr_valid::MODE, 0).0, FuseOutcome::Error(libc::EPERM));
    assert_eq!(set(1 << 5, 0).0, FuseOutcome::Data(size_of::<AttrOut>()), "a time");
}

#[test]
fn files_are_opened_for_direct_access() {
    let tree = tree();
    let open = |nodeid, flags: i32| {
        let args = OpenIn { flags: flags.cast_unsigned(), ..OpenIn::default() };
        call(&tree, Opcode::OPEN, nodeid, args.as_bytes())
    };
    let opened = OpenOut::read_from_bytes(&open(2, libc::O_RDWR).1[..]).unwrap();
    assert_ne!(opened.open_flags & open_flag::DIRECT_IO, 0);
    assert_ne!(opened.open_flags & open_flag::PARALLEL_DIRECT_WRITES, 0);
    assert_eq!(open(3, libc::O_RDONLY).0, FuseOutcome::Data(size_of::<OpenOut>()));
    assert_eq!(open(3, libc::O_RDWR).0, FuseOutcome::Error(libc::EROFS));
    assert_eq!(open(3, libc::O_WRONLY).0, FuseOutcome::Error(libc::EROFS));
    assert_eq!(open(ROOT_ID, libc::O_RDWR).0, FuseOutcome::Error(libc::EISDIR));
}

#[test]
fn reads_and_writes_end_where_the_disk_does() {
    let tree = tree();
    let read = |offset, size| {
        let args = ReadIn { offset, size, ..ReadIn::default() };
        call(&tree, Opcode::READ, 2, args.as_bytes()).0
    };
    assert_eq!(read(100, 50), work(0, DiskOp::Read, 100, 150, false));
    assert_eq!(read(BYTES - 10, 4096), work(0, DiskOp::Read, BYTES - 10, BYTES, false));
    assert_eq!(read(BYTES, 1), FuseOutcome::Data(0));
    assert_eq!(read(0, u32::MAX), work(0, DiskOp::Read, 0, BYTES, false));
    assert_eq!(read(u64::MAX, 4096), FuseOutcome::Data(0));
    let write = |offset, size, flags: i32| {
        let args = WriteIn { offset, size, flags: flags.cast_unsigned(), ..WriteIn::default() };
        call(&tree, Opcode::WRITE, 2, args.as_bytes()).0
    };
    assert_eq!(write(0, 512, 0), work(0, DiskOp::Write, 0, 512, false));
    assert_eq!(write(0, 512, libc::O_SYNC), work(0, DiskOp::Write, 0, 512, true));
    assert_eq!(write(BYTES - 1, 512, 0), work(0, DiskOp::Write, BYTES - 1, BYTES, false));
    assert_eq!(write(BYTES, 512, 0), FuseOutcome::Error(libc::ENOSPC));
    assert_eq!(call(&tree, Opcode::READ, ROOT_ID, &[]).0, FuseOutcome::Error(libc::EISDIR));
    assert_eq!(call(&tree, Opcode::FSYNC, 3, &[]).0, work(1, DiskOp::Flush, 0, 0, false));
}

#[test]
fn holes_read_as_zeroes() {
    let tree = tree();
    let fallocate = |offset, length, mode| {
        let args = FallocateIn { offset, length, mode, ..FallocateIn::default() };
        call(&tree, Opcode::FALLOCATE, 2, args.as_bytes()).0
    };
    let zeroes = |deallocate| DiskOp::WriteZeroes { deallocate };
    assert_eq!(fallocate(0, BYTES, 3), work(0, zeroes(true), 0, BYTES, false));
    assert_eq!(fallocate(5, 10, 16), work(0, zeroes(false), 5, 15, false));
    assert_eq!(fallocate(0, BYTES, 0), FuseOutcome::Data(0));
    assert_eq!(fallocate(0, BYTES + 1, 0), FuseOutcome::Error(libc::ENOSPC));
    assert_eq!(fallocate(1, u64::MAX, 3), FuseOutcome::Error(libc::ENOSPC));
    assert_eq!(fallocate(0, 10, 8), FuseOutcome::Error(libc::EOPNOTSUPP));
}

#[test]
fn long_work_goes_in_steps() {
    let (op, fua) = (DiskOp::WriteZeroes { deallocate: true }, false);
    let work = FuseWork { disk: 0, op, at: 512, end: 5 << 30, fua };
    assert_eq!((work.request().offset, work.request().length), (512, 1 << 30));
    let last = FuseWork { at: (5 << 30) - 7, ..work };
    assert_eq!(last.request().length, 7);
}

/// Decodes entries as names with their offsets.
fn entries(mut bytes: &[u8]) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    while let Ok((entry, rest)) = Dirent::read_from_prefix(bytes) {
        let name = std::str::from_utf8(&rest[..entry.namelen as usize]).unwrap();
        found.push((name.to_owned(), entry.off));
        bytes = &rest[(entry.namelen as usize).next_multiple_of(8)..];
    }
    assert!(bytes.is_empty());
    found
}

#[test]
fn a_directory_is_read_piece_by_piece() {
    let tree = tree();
    let read = |offset, size| {
        let args = ReadIn { offset, size, ..ReadIn::default() };
        let (answer, out) = call(&tree, Opcode::READDIR, ROOT_ID, args.as_bytes());
        assert!(matches!(answer, FuseOutcome::Data(bytes) if bytes <= size as usize));
        entries(&out)
    };
    let all = [(".", 1), ("..", 2), ("nvme0n1", 3), ("nvme0n12", 4)];
    let all: Vec<_> = all.map(|(name, off)| (name.to_owned(), off)).into();
    assert_eq!(read(0, 4096), all);
    assert_eq!(read(2, 4096), all[2..]);
    assert_eq!(read(0, 70), all[..2], "a third one does not fit");
    assert_eq!(read(4, 4096), []);
    assert_eq!(read(u64::MAX, 4096), []);
    assert_eq!(call(&tree, Opcode::READDIR, 2, &[]).0, FuseOutcome::Error(libc::ENOTDIR));
}

#[test]
fn all_is_data() {
    let tree = tree();
    let seek_from = |offset, whence| {
        let args = LseekIn { offset, whence, ..LseekIn::default() };
        call(&tree, Opcode::LSEEK, 2, args.as_bytes())
    };
    let found = |(_, out): (FuseOutcome, Vec<u8>)| LseekOut::read_from_bytes(&out).unwrap().offset;
    assert_eq!(found(seek_from(5, seek::DATA)), 5);
    assert_eq!(found(seek_from(5, seek::HOLE)), BYTES);
    assert_eq!(seek_from(BYTES, seek::DATA).0, FuseOutcome::Error(libc::ENXIO));
    assert_eq!(seek_from(5, 0).0, FuseOutcome::Error(libc::EINVAL));
    let all: StatfsOut = data(&tree, Opcode::STATFS, ROOT_ID, &[]);
    assert_eq!((all.blocks, all.bfree, all.files), (2 * BYTES / 4096, 0, 2));
}

#[test]
fn unknown_requests_are_refused() {
    let tree = tree();
    for opcode in (0..100).map(Opcode).chain([Opcode(4096), Opcode(u32::MAX)]) {
        for nodeid in [0, 1, 2, 3, 4, u64::MAX] {
            for args in [[0; 128], [0xff; 128]] {
                let (answer, _) = call(&tree, opcode, nodeid, &args);
                let FuseOutcome::Work(work) = answer else { continue };
                assert!(work.at <= work.end && work.end <= BYTES, "{opcode:?}: {work:?}");
            }
        }
    }
    for opcode in [Opcode::FLUSH, Opcode(22), Opcode(35), Opcode(99)] {
        assert_eq!(call(&tree, opcode, 2, &[]).0, FuseOutcome::Error(libc::ENOSYS));
    }
    let header = InHeader { opcode: Opcode::GETATTR.0, nodeid: 1, ..InHeader::default() };
    let mut small = [0; size_of::<OutHeader>()];
    assert_eq!(tree.answer(&header, &[0; 128], &mut small), FuseOutcome::Error(libc::EIO));
    let read = InHeader { opcode: Opcode::READ.0, nodeid: 2, ..InHeader::default() };
    assert_eq!(tree.answer(&read, &[0; 39], &mut []), FuseOutcome::Error(libc::EINVAL));
}
