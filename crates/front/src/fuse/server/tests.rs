use super::super::device::Kernel;
use super::super::mount_state::MountedDevice;
use super::super::tree::Tree;
use super::*;
use crate::cases::cases;
use crate::disk::harness::{Mock, MockOptions, patterned};
use crate::disk::{DiskInfo, LiveDisk, test_info};
use proptest::prelude::*;
use roadtrain_host_engine::IoOp;
use roadtrain_wire::fuse::{FallocateIn, InHeader, ReadIn, WriteIn, fallocate_mode};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// A server between a fake kernel device and the mock lane.
struct FuseHarness {
    kernel: Kernel,
    mock: Mock,
    server: FuseServer,
    unique: u64,
}

impl FuseHarness {
    fn new(options: MockOptions) -> Self {
        let (kernel, device) = Kernel::new();
        let disk = Arc::new(LiveDisk::new(options.info.clone()).unwrap());
        let session = Arc::new(MountState::new(Tree::new(vec![disk], (0, 0), 0)));
        let (begin, beginner) = std::io::pipe().unwrap();
        let reactor = ReactorInfo { index: 0, count: 1, lanes: options.lanes, core: None };
        let server = FuseServer::new(
            Arc::clone(&session),
            reactor,
            Vec::new(),
            begin,
            NamespaceWatch::default,
        );
        session.begin(MountedDevice { device, uring: false });
        drop(beginner);
        FuseHarness { kernel, mock: Mock::new(options, 1), server, unique: 0 }
    }

    /// Sends a request about the file; returns its number.
    fn send_request(&mut self, opcode: Opcode, args: &[u8], payload: &[u8]) -> u64 {
        self.unique += 2;
        let unique = self.unique;
        let len = (size_of::<InHeader>() + args.len() + payload.len()) as u32;
        let header = InHeader { len, opcode: opcode.0, unique, nodeid: 2, ..InHeader::default() };
        self.kernel.send_request(&[header.as_bytes(), args, payload]);
        unique
    }

    fn read(&mut self, offset: u64, size: u32) -> u64 {
        let read = ReadIn { offset, size, ..ReadIn::default() };
        self.send_request(Opcode::READ, read.as_bytes(), &[])
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let write = WriteIn { offset, size: data.len() as u32, ..WriteIn::default() };
        self.send_request(Opcode::WRITE, write.as_bytes(), data)
    }

    /// Runs turns until `count` replies are there; returns errors and data by number.
    fn answers(&mut self, count: usize) -> HashMap<u64, (i32, Vec<u8>)> {
        let mut answers = HashMap::new();
        for _ in 0..10_000 {
            self.mock.turn(&mut self.server);
            while let Some((header, data)) = self.kernel.try_answer() {
                assert_eq!(header.len as usize, size_of_val(&header) + data.len());
                let again = answers.insert(header.unique, (header.error, data));
                assert!(again.is_none(), "answered twice");
            }
            if answers.len() == count {
                return answers;
            }
        }
        panic!("{} of {count} answers", answers.len());
    }

    fn answer(&mut self) -> (i32, Vec<u8>) {
        self.answers(1).into_values().next().unwrap()
    }
}

#[test]
fn whole_blocks_go_as_they_come() {
    let mut harness = FuseHarness::new(MockOptions::default());
    harness.read(512, 4096);
    assert_eq!(harness.answer(), (0, patterned(512..4608)));
    harness.write(1024, &[7; 2048]);
    let (error, data) = harness.answer();
    assert_eq!((error, data.len(), data[..4] == 2048u32.to_ne_bytes()), (0, 8, true));
    let submitted: Vec<_> = harness
        .mock
        .submitted
        .iter()
        .map(|submitted| (submitted.0, submitted.1, submitted.2))
        .collect();
    assert_eq!(submitted, [(IoOp::Read, 1, 8), (IoOp::Write, 2, 4)], "one request each");
    assert_eq!(harness.mock.disk.lock().unwrap()[1024..3072], [7; 2048]);
}

#[test]
fn partial_blocks_are_carried_out_too() {
    let mut harness = FuseHarness::new(MockOptions::default());
    harness.write(700, &[9; 1000]);
    assert_eq!(harness.answer().0, 0);
    harness.read(600, 1200);
    let expected = [patterned(600..700), vec![9; 1000], patterned(1700..1800)].concat();
    assert_eq!(harness.answer(), (0, expected));
    // Larger than the lane's transfer limit (128 KiB).
    harness.read(1, 190_000);
    let (error, data) = harness.answer();
    assert_eq!((error, data.len()), (0, 190_000));
    assert_eq!(data[2000..], patterned(2001..190_001));
}

#[test]
fn reads_and_writes_stop_at_the_end() {
    let mut harness = FuseHarness::new(MockOptions::default());
    let end = 1 << 20;
    harness.read(end - 100, 4096);
    assert_eq!(harness.answer(), (0, patterned((1 << 20) - 100..1 << 20)));
    harness.read(end, 4096);
    assert_eq!(harness.answer(), (0, vec![]));
    harness.write(end - 512, &[1; 1024]);
    assert_eq!(harness.answer().1[..4], 512u32.to_ne_bytes());
    harness.write(end, &[1; 512]);
    assert_eq!(harness.answer().0, -libc::ENOSPC);
}

#[test]
fn a_failure_is_its_requests_own() {
    let fails = Some((3, Status::UNRECOVERED_READ_ERROR));
    let mut harness = FuseHarness::new(MockOptions { fails, ..MockOptions::default() });
    let (good, bad) = (harness.read(0, 512), harness.read(3 * 512, 512));
    let answers = harness.answers(2);
    assert_eq!(answers[&good], (0, patterned(0..512)));
    assert_eq!(answers[&bad], (-libc::EIO, vec![]));
    harness.read(0, 512);
    assert_eq!(harness.answer().0, 0, "the slot lives on");
}

#[test]
fn holes_and_flushes_reach_the_disk() {
    let mut harness = FuseHarness::new(MockOptions::default());
    let mode = fallocate_mode::PUNCH_HOLE | fallocate_mode::KEEP_SIZE;
    let hole = FallocateIn { offset: 100, length: 5000, mode, ..FallocateIn::default() };
    harness.send_request(Opcode::FALLOCATE, hole.as_bytes(), &[]);
    assert_eq!(harness.answer(), (0, vec![]));
    assert_eq!(harness.mock.disk.lock().unwrap()[99..5101][1..5001], [0; 5000]);
    assert_eq!(harness.mock.disk.lock().unwrap()[..100], patterned(0..100));
    harness.send_request(Opcode::FSYNC, &[0; 16], &[]);
    assert_eq!(harness.answer(), (0, vec![]));
    assert_eq!(harness.mock.submitted.last().unwrap().0, IoOp::Flush);
}

#[test]
fn a_removed_namespace_says_so() {
    let mut harness = FuseHarness::new(MockOptions::default());
    harness.server.session.tree.disks()[0].remove();
    harness.read(0, 512);
    assert_eq!(harness.answer().0, -libc::ENXIO);
}

#[test]
fn some_requests_get_no_reply() {
    let mut harness = FuseHarness::new(MockOptions::default());
    for opcode in [Opcode::FORGET, Opcode::BATCH_FORGET, Opcode::INTERRUPT] {
        for _ in 0..2 * DEVICE_DEPTH {
            harness.send_request(opcode, &[0; 16], &[]);
            harness.mock.turn(&mut harness.server);
        }
    }
    let unique = harness.send_request(Opcode::GETATTR, &[0; 16], &[]);
    let answers = harness.answers(1);
    assert_eq!((answers[&unique].0, answers[&unique].1.len()), (0, 104));
}

#[test]
fn more_than_all_slots_wait_at_the_device() {
    let mut harness = FuseHarness::new(MockOptions { room: 3, ..MockOptions::default() });
    let count = DEVICE_DEPTH + 40;
    for at in 0..count as u64 {
        harness.read(at * 512, 512);
    }
    assert!(harness.answers(count).values().all(|(error, data)| *error == 0 && data.len() == 512));
}

#[test]
fn it_ends_when_all_is_answered() {
    let mut harness = FuseHarness::new(MockOptions::default());
    harness.read(0, 4096);
    while harness.mock.submitted.is_empty() {
        harness.mock.turn(&mut harness.server);
    }
    harness.mock.stopping.store(true, Ordering::Relaxed);
    let FuseHarness { kernel, mock, server, .. } = harness;
    let (mock, server) = mock.run(server);
    assert!(mock.in_flight.is_empty() && mock.watches.is_empty());
    assert!(server.disks[0].jobs.is_clean());
    assert_eq!(kernel.answer().0.error, 0);
}

#[derive(Clone, Copy, Debug)]
enum FuseStep {
    Read,
    Write(u8),
    Hole,
}

fn steps() -> impl Strategy<Value = Vec<(FuseStep, u16, u16)>> {
    let step = prop_oneof![
        2 => Just(FuseStep::Read),
        2 => any::<u8>().prop_map(FuseStep::Write),
        1 => Just(FuseStep::Hole),
    ];
    proptest::collection::vec((step, any::<u16>(), 1u16..9000), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// One request at a time, so that a plain array is the model.
    #[test]
    fn any_ranges_behave_like_memory(steps in steps(), lba_shift in 9u32..13, lanes in 1usize..3) {
        let info = DiskInfo { lba_bytes: 1 << lba_shift, blocks: 1 << (17 - lba_shift), ..test_info() };
        let bytes = 1 << 17;
        let mut harness = FuseHarness::new(MockOptions { info, lanes, ..MockOptions::default() });
        let mut model = patterned(0..bytes);
        for (step, offset, length) in steps {
            let (start, length) = (usize::from(offset), usize::from(length));
            let range = start..(start + length).min(bytes);
            match step {
                FuseStep::Read => {
                    harness.read(start as u64, length as u32);
                    prop_assert_eq!(harness.answer(), (0, model[range].to_vec()));
                }
                FuseStep::Write(byte) => {
                    harness.write(start as u64, &vec![byte; range.len()]);
                    prop_assert_eq!(harness.answer().0, 0);
                    model[range].fill(byte);
                }
                FuseStep::Hole => {
                    let (offset, length) = (start as u64, range.len() as u64);
                    let mode = fallocate_mode::ZERO_RANGE;
                    let hole = FallocateIn { offset, length, mode, ..FallocateIn::default() };
                    harness.send_request(Opcode::FALLOCATE, hole.as_bytes(), &[]);
                    prop_assert_eq!(harness.answer().0, 0);
                    model[range].fill(0);
                }
            }
        }
        prop_assert!(*harness.mock.disk.lock().unwrap() == model);
    }
}
